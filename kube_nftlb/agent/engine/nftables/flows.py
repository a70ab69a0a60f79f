"""Forget the UDP flows that lead where they should not any more, and cut connections to backends that are down.

Conntrack sends the packets of a flow where its first one went, and does not ask the rules again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kube_nftlb.agent.endpoints.selection import cut_off
from kube_nftlb.agent.engine.base import FarmChange
from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.untranslated import destinations
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.conntrack import Connections, Destination

WATCH_S = 2
"""Flows are looked for until this long after a change: one may just have begun."""


@dataclass(frozen=True, slots=True)
class _Cleanup:
    """The connections to forget after a change of a farm, and the time until which to do so, in seconds.

    Flows to any other than the ``kept`` endpoints go, and all connections to the addresses that are ``cut``. Those
    that began before anybody served them go if ``begun``.
    """

    to: tuple[Destination, ...]
    kept: frozenset[tuple[bytes, int]]
    cut: frozenset[str]
    begun: bool
    until: float


class Flows:
    """Cleans up after changes at once, and for a while after."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._watched: dict[tuple[str, str], _Cleanup] = {}
        self._endpoints: dict[str, frozenset[tuple[bytes, int]]] = {}
        """The endpoints that flows of a farm may lead to, by its name."""

    async def changed(self, change: FarmChange, before: Iterable[Listener], now: float, *, served: bool) -> None:
        """Clean up after the change of a farm that had the listeners ``before``, and was ``served`` or not."""
        farm = change.farm
        listeners = set(farm.listeners) if farm is not None else set()
        if closed := [each for each in before if each not in listeners]:
            await self._watch(
                (change.name, "closed"), closed, _Cleanup((), frozenset(), frozenset(), False, now + WATCH_S)
            )
        if farm is None:
            self._endpoints.pop(change.name, None)
            self._watched.pop((change.name, ""), None)
            return
        kept = _endpoints(farm)
        earlier = self._endpoints.get(change.name)
        self._endpoints[change.name] = kept
        cut = cut_off(farm.spec) - {each.backend.ip for each in farm.endpoints}
        begun = not farm.refuses and (not served or not listeners <= set(before))
        if kept != earlier or cut or begun:
            cleanup = _Cleanup((), kept, frozenset(cut), begun=begun, until=now + WATCH_S)
            await self._watch((change.name, ""), listeners, cleanup)

    async def _watch(self, key: tuple[str, str], listeners: Iterable[Listener], cleanup: _Cleanup) -> None:
        to = tuple(each for listener in listeners for each in destinations(listener))
        flows = any(each.protocol == "udp" for each in to)
        if not (flows or cleanup.cut):
            return
        earlier = self._watched.get(key)
        begun = cleanup.begun or (earlier is not None and earlier.begun)
        cleanup = replace(cleanup, to=to, begun=begun)
        self._watched[key] = cleanup
        await self._clean(cleanup)

    async def again(self, now: float) -> None:
        """Clean up once more after the farms that changed a moment ago."""
        for key, cleanup in list(self._watched.items()):
            if now > cleanup.until:
                del self._watched[key]
            await self._clean(cleanup)

    async def forget_stale(self, name: str, listeners: Iterable[Listener]) -> None:
        """Forget flows to endpoints that a farm has not."""
        to = tuple(each for listener in listeners for each in destinations(listener))
        if name in self._endpoints and any(each.protocol == "udp" for each in to):
            await self._clean(_Cleanup(to, self._endpoints[name], frozenset(), begun=False, until=0))

    async def _clean(self, cleanup: _Cleanup) -> None:
        udp = [each for each in cleanup.to if each.protocol == "udp"]
        if udp:
            await self._connections.forget_flows(udp, cleanup.kept)
            if cleanup.begun:
                await self._connections.forget_untranslated(udp)
        if cleanup.cut:
            await self._connections.cut(cleanup.to, cleanup.cut)


def _endpoints(farm: NodeFarm) -> frozenset[tuple[bytes, int]]:
    backends = [*(each.backend for each in farm.endpoints), *farm.candidates.cluster]
    return frozenset((layout.packed(each.ip), each.port or 0) for each in backends)
