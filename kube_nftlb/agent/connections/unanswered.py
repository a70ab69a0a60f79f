"""The farms whose unanswered connections over TCP may wait for an endpoint that is gone. Pure: no I/O.

Conntrack sends a repeated first packet where the first one went. If that endpoint has ended since, the client would
wait until it gives up, a minute or two, though others could answer. So what nobody has answered yet is forgotten once
its endpoint answers no more, and the next packet is the first of a new connection.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kube_nftlb.agent.clock import rest_s
from kube_nftlb.agent.connections.allowed import TRANSLATED, has, packed, targets
from kube_nftlb.agent.endpoints.selection import ANSWERS, answers
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.netfilter.conntrack.entries import TCP, Endpoint, Entry
from kube_nftlb.netfilter.conntrack.filters import Target

_AT_MOST_EVERY_S: Final = 0.25
_REST, _REST_MAX_S = 49, 1.0
"""A look costs the kernel 5 to 20 ms, however few connections there are: it walks through all of its table. So looks
take a fiftieth of the time, if they do not take longer; but come often enough for first packets, which are repeated
after a second, then later.
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Farms whose endpoints have changed, by the targets of their clients."""

    farms: Mapping[Target, NodeFarm]
    _answering: dict[str, frozenset[Endpoint]] = field(default_factory=dict)
    """The endpoints that answer, of farms that have unanswered connections: there may be thousands of each."""

    def is_lost(self, entry: Entry) -> bool:
        """Return True for a connection without an answer, to an endpoint that does not answer any more."""
        if entry.protocol != TCP or entry.has_reply or not entry.is_translated:
            return False
        ip, port = entry.server
        farm = self.farms.get((ip, TCP, port)) or self.farms.get((ip, TCP, 0))
        if farm is None:
            return False
        if farm.name not in self._answering:
            self._answering[farm.name] = answering_endpoints(farm.spec)
        return not has(self._answering[farm.name], entry.answerer)


class UnansweredConnections:
    """Notes the farms that have changed, until their connections are looked for: once for all of them."""

    def __init__(self) -> None:
        self._changed: dict[str, NodeFarm] = {}
        self._not_before = -math.inf

    def changed(self, name: str, farm: NodeFarm | None) -> None:
        """Note that this node has programmed a farm anew, or withdrawn it."""
        self._changed.pop(name, None)
        if farm is not None and farm.spec.mode in TRANSLATED:
            self._changed[name] = farm

    def next_due(self) -> float:
        """Return when to look for connections; infinite if there is nothing to do."""
        return self._not_before if self._changed else math.inf

    def take(self, now: float) -> Waiting:
        """Return the farms that have changed since the last time, if it is time to look for their connections."""
        if now < self.next_due():
            return Waiting({})
        self._not_before = now + _AT_MOST_EVERY_S
        changed, self._changed = self._changed, {}
        return Waiting({target: farm for farm in changed.values() for target in targets(farm.listeners, {TCP})})

    def looked(self, began: float, ended: float) -> None:
        """Note when a look began and ended: it is followed by a rest."""
        rest = rest_s(ended - began, _REST, 0, _REST_MAX_S)
        self._not_before = max(self._not_before, ended + rest)

    def again(self, waiting: Waiting, at: float) -> None:
        """Have connections of these farms looked for again, at a time, but for those that have changed meanwhile."""
        self._not_before = at
        self._changed = {**{farm.name: farm for farm in waiting.farms.values()}, **self._changed}


def answering_endpoints(spec: FarmSpec) -> frozenset[Endpoint]:
    """Return the endpoints that answer, also if they get no new connections: a first packet is on its way to them."""
    backends = spec.backends if spec.state in ANSWERS else ()
    return packed((each.ip, each.port) for each in backends if answers(each))
