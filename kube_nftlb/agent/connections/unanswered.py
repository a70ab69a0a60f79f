"""The farms whose unanswered connections over TCP may wait for an endpoint that is gone. Pure: no I/O.

Conntrack sends a repeated first packet where the first one went. If that endpoint has ended since, the client would
wait until it gives up, a minute or two, though others could answer. So what nobody has answered yet is forgotten once
its endpoint has left the farm, and the next packet is the first of a new connection.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import NamedTuple

from kube_nftlb.agent.connections.allowed import targets
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.netfilter.conntrack.entries import TCP, Endpoint, Entry
from kube_nftlb.netfilter.conntrack.filters import Target

_TRANSLATED = frozenset(("snat", "dnat"))


class Waiting(NamedTuple):
    """Farms whose endpoints have changed, by the targets of their clients."""

    farms: Mapping[Target, NodeFarm]

    def is_lost(self, entry: Entry) -> bool:
        """Return True for a connection without an answer, to an endpoint that its farm does not have any more."""
        if entry.protocol != TCP or entry.has_reply or not entry.is_translated:
            return False
        ip, port = entry.server
        farm = self.farms.get((ip, TCP, port)) or self.farms.get((ip, TCP, 0))
        return farm is not None and not _has(farm, entry.answerer)


class UnansweredConnections:
    """Notes the farms that have changed, until their connections are looked for: once for all of them."""

    def __init__(self) -> None:
        self._changed: dict[str, NodeFarm] = {}

    def changed(self, name: str, farm: NodeFarm | None) -> None:
        """Note that this node has programmed a farm anew, or withdrawn it."""
        self._changed.pop(name, None)
        if farm is not None and farm.spec.mode in _TRANSLATED:
            self._changed[name] = farm

    @property
    def pending(self) -> bool:
        """True if there are farms to look for."""
        return bool(self._changed)

    def take(self) -> Waiting:
        """Return the farms that have changed since the last time."""
        changed, self._changed = self._changed, {}
        return Waiting({target: farm for farm in changed.values() for target in targets(farm.listeners, {TCP})})

    def again(self, waiting: Waiting) -> None:
        """Have connections of these farms looked for again, but for those that have changed meanwhile."""
        self._changed = {**{farm.name: farm for farm in waiting.farms.values()}, **self._changed}


def _has(farm: NodeFarm, answerer: Endpoint) -> bool:
    """Return True if a farm has an endpoint at this address and port; one without a port has them all."""
    ip, port = answerer
    backends = (*(each.backend for each in farm.endpoints), *farm.candidates.cluster)
    return any(each.port in (port, None) and ip_address(each.ip).packed == ip for each in backends)
