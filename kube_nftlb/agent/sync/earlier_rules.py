"""The rules that an earlier agent left where nftlb, which is away, may have farms that it is not to serve there.

They are in the agent table alone, which this agent is about to replace. It cannot tell what they were, but at which
listeners: until nftlb answers, so that the farms can be removed from it, all clients of nftlb are refused there.
"""

from collections.abc import Callable, Iterable

from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.engine.nftables.layout import FAMILIES
from kube_nftlb.agent.engine.nftables.layout import listener as listener_of_key
from kube_nftlb.agent.table import layout
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter import netlink
from kube_nftlb.netfilter.nftables.contents import ELEMENT_KEY, VALUE, SetContents, TableContents
from kube_nftlb.netfilter.nftables.reading import ContentsReader
from kube_nftlb.netfilter.table_text import Contents


class EarlierRules:
    """Keeps clients away from listeners that the earlier agent kept some from."""

    def __init__(self, reader: ContentsReader) -> None:
        self._reader = reader
        self._restricted: frozenset[Listener] | None = None
        """The listeners at which some clients were kept out as this agent began; None before they were read."""
        self._given_up: frozenset[Listener] = frozenset()
        """Those that the earlier agent had given up, whoever wants them now, and then those that this one gives up."""
        self._is_decided = False

    async def read(self) -> None:
        """Read the agent table before it is changed, the first time. Raises KernelError."""
        if self._restricted is None:
            found = await self._reader.contents(layout.TABLE, lambda _: True)
            self._restricted, self._given_up = restricted(found), given_up(found)

    def adopt(self, engines: Engines, is_nftlbs: Callable[[Listener], bool]) -> None:
        """Decide which listeners nftlb is not to serve, once all farms are known and the engines were read."""
        if not engines.unreachable:
            self._restricted = self._given_up = frozenset()
        elif not self._is_decided:
            self._given_up |= {each for each in self._restricted or () if not is_nftlbs(each)}
        self._is_decided = True

    @property
    def contents(self) -> Contents:
        """What refuses these clients."""
        return layout.given_up(self._given_up)


def restricted(found: TableContents) -> frozenset[Listener]:
    """Return the listeners with policies, source ranges or refusals in an agent table."""
    return _listeners(found, layout.SOURCE_RANGES, layout.POLICY, layout.NO_ENDPOINTS)


def given_up(found: TableContents) -> frozenset[Listener]:
    """Return the listeners that are given up in an agent table."""
    return _listeners(found, layout.GIVEN_UP)


def _listeners(found: TableContents, *sets: str) -> frozenset[Listener]:
    names = ((family, f"{name}{scope}-{family}") for family in FAMILIES for name in sets for scope in ("", "-all"))
    return frozenset(
        listener_of_key(family, key) for family, name in names if name in found.sets for key in _keys(found.sets[name])
    )


def _keys(of: SetContents) -> Iterable[bytes]:
    return (netlink.find(each, ELEMENT_KEY, VALUE) or b"" for each in of.elements)
