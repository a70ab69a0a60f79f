"""The rules that an earlier agent left where farms are gone, of which only nftlb knows, which is away.

They are in the agent table alone, which this agent is about to replace. It cannot tell what they were, but at which
listeners: until nftlb answers, so that the farms can be removed from it, all clients are refused there.
"""

from collections.abc import Callable, Iterable

from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.engine.nftables.layout import FAMILIES
from kube_nftlb.agent.engine.nftables.layout import listener as listener_of_key
from kube_nftlb.agent.table import layout
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.nftables.contents import SetContents, TableContents
from kube_nftlb.netfilter.nftables.reading import ContentsReader
from kube_nftlb.netfilter.readback import ELEMENT_KEY, VALUE
from kube_nftlb.netfilter.table_text import Contents


class EarlierRules:
    """Keeps clients away from listeners that the earlier agent kept some from."""

    def __init__(self, reader: ContentsReader) -> None:
        self._reader = reader
        self._restricted: frozenset[Listener] | None = None
        """The listeners at which some clients were kept out as this agent began; None before they were read."""
        self._is_decided = False
        self._unknown: frozenset[Listener] = frozenset()
        """Those of no farm."""

    async def read(self) -> None:
        """Read the agent table before it is changed, the first time. Raises KernelError."""
        if self._restricted is None:
            self._restricted = restricted(await self._reader.contents(layout.TABLE, lambda _: True))

    def adopt(self, engines: Engines, owner: Callable[[Listener], FarmKey | None]) -> None:
        """Decide which listeners are of no farm, once all farms are known and the engines were read."""
        if not engines.unreachable:
            self._restricted = self._unknown = frozenset()
        elif not self._is_decided:
            self._unknown = frozenset(each for each in self._restricted or () if owner(each) is None)
        self._is_decided = True

    def contents(self, engines: Engines) -> Contents:
        """Return what refuses these clients now: not where another engine has a farm by now."""
        return layout.refused(each for each in self._unknown if not engines.owners([each]))


def restricted(found: TableContents) -> frozenset[Listener]:
    """Return the listeners with policies, source ranges or refusals in an agent table."""
    names = (
        (family, f"{map_}{scope}-{family}")
        for family in FAMILIES
        for map_ in (layout.SOURCE_RANGES, layout.POLICY, layout.NO_ENDPOINTS)
        for scope in ("", "-all")
    )
    return frozenset(
        listener_of_key(family, key) for family, name in names if name in found.sets for key in _keys(found.sets[name])
    )


def _keys(of: SetContents) -> Iterable[bytes]:
    return (netlink.find(each, ELEMENT_KEY, VALUE) or b"" for each in of.elements)
