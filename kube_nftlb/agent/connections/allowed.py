"""What may go on of the connections to each listener, and when to look for what may not. Pure: no I/O.

Nothing is remembered of endpoints that were there: whatever is not allowed goes. So an agent that starts also ends the
connections to endpoints that went while it was away.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Literal, NamedTuple

from kube_nftlb.agent.endpoints.selection import answering, cut_off
from kube_nftlb.agent.model import NodeFarm, SentFarm
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.netfilter.conntrack.entries import SCTP, TCP, UDP, Endpoint, Entry
from kube_nftlb.netfilter.conntrack.filters import Target

WATCH_S: Final = 2
"""Connections are looked for until this many seconds after a change: one may just have begun."""
GRACE_S: Final = 1.0
"""Time in seconds that an endpoint must be gone before connections over TCP are cut: one that moves to another slice
may be in neither for a moment."""
_AGAIN_S: Final = 1.0
_PROTOCOLS: Final = {"TCP": (TCP,), "UDP": (UDP,), "SCTP": (SCTP,), "All": (TCP, UDP, SCTP)}
TRANSLATED: Final = frozenset(("snat", "dnat"))

Reason = Literal["BackendDown", "BackendGone", "EndpointGone", "Untranslated"]


class Allowed(NamedTuple):
    """What may go on of the connections to a farm's listeners. In endpoints, port 0 stands for all."""

    farm: str = ""
    namespace: str = ""
    flows: frozenset[Endpoint] = frozenset()
    """Translated UDP flows may go on that these endpoints answer."""
    connections: frozenset[Endpoint] | None = None
    """Translated TCP connections may go on that these endpoints answer; None: all may."""
    down: frozenset[bytes] = frozenset()
    """No connection may that these addresses answer."""
    untranslated: bool = True
    """False if UDP flows may not go on from before anything was served: the kernel never translates them."""
    own_ips: frozenset[bytes] = frozenset()
    """Where an endpoint may be, or have been, a listener: the kernel does not call UDP flows to it translated."""

    def reason(self, entry: Entry) -> Reason | None:
        """Return why a connection may not go on, or None."""
        if entry.answerer[0] in self.down:
            return "BackendDown"
        if entry.protocol == UDP:
            if has(self.flows, entry.answerer):
                return None
            if entry.is_translated or entry.answerer[0] in self.own_ips:
                return "BackendGone"
            return None if self.untranslated else "Untranslated"
        if entry.protocol != TCP or self.connections is None or not entry.is_translated:
            return None
        return None if has(self.connections, entry.answerer) else "EndpointGone"

    @property
    def concerns_translated(self) -> bool:
        """True if all that may not go on is translated."""
        return self.untranslated and not self.own_ips and not self.down


@dataclass(slots=True)
class _Watch:
    """The times at which to look for connections, in seconds."""

    due: float = math.inf
    until: float = -math.inf

    def start(self, now: float, seconds: float = WATCH_S) -> None:
        self.due, self.until = now, max(self.until, now + seconds)

    def looked(self, now: float) -> None:
        self.due = min(now + _AGAIN_S, self.until) if now < self.until else math.inf


@dataclass(slots=True)
class _Farm:
    allowed: Allowed
    listeners: frozenset[Listener]
    targets: frozenset[Target]
    leaving: dict[Endpoint, float] = field(default_factory=dict)
    """The time from which each endpoint that has just left counts as gone."""
    cut_at: float = math.inf
    watch: _Watch = field(default_factory=_Watch)

    @property
    def due(self) -> float:
        return min(self.cut_at, self.watch.due)

    def allowed_at(self, now: float) -> Allowed:
        """Return what is allowed now."""
        if self.allowed.connections is None:
            return self.allowed
        leaving = {each for each, at in self.leaving.items() if at > now}
        return self.allowed._replace(connections=self.allowed.connections | leaving)

    def looked(self, now: float) -> Allowed:
        """Return what is allowed now, and set when to look for the rest again."""
        allowed = self.allowed_at(now)
        self.leaving = {each: at for each, at in self.leaving.items() if at > now}
        if self.cut_at <= now:
            self.cut_at = min(self.leaving.values(), default=math.inf)
        if self.watch.due <= now:
            self.watch.looked(now)
        return allowed


@dataclass(slots=True)
class _Closed:
    """Listeners that a farm has given up."""

    targets: frozenset[Target]
    watch: _Watch = field(default_factory=_Watch)


class AllowedConnections:
    """Notes the changes of farms. Their order counts: of two that had a listener, the later one has it."""

    def __init__(self) -> None:
        self._farms: dict[str, _Farm] = {}
        self._waiting: dict[str, _Farm] = {}
        """Those of them whose connections are to be looked for."""
        self._closed: dict[str, _Closed] = {}

    def changed(self, name: str, farm: NodeFarm | None, before: SentFarm | None, now: float) -> None:
        """Note that this node has programmed a farm, or withdrawn it; ``before`` is what it had of it."""
        listeners = frozenset(farm.listeners) if farm is not None else frozenset[Listener]()
        had = before.listeners if before is not None else frozenset[Listener]()
        self._close(name, frozenset(targets(had - listeners, {UDP})), now)
        earlier = self._farms.pop(name, None)
        self._waiting.pop(name, None)
        if farm is not None:
            begun = not farm.refuses and farm.spec.mode in TRANSLATED
            begun = begun and (before is None or before.refuses or not listeners <= had)
            own_ips = _own_ips(farm) | (earlier.allowed.own_ips if earlier is not None else frozenset())
            new = _farm(name, farm, listeners, untranslated=not begun, own_ips=own_ips)
            if new.targets:
                self._farms[name] = new
                self._plan(new, earlier, now)
                self._wait(new)

    def _plan(self, new: _Farm, earlier: _Farm | None, now: float) -> None:
        """Set the times at which to look for connections of a farm that has changed."""
        begun = not new.allowed.untranslated
        if earlier is not None:
            new.watch, new.leaving, new.cut_at = earlier.watch, earlier.leaving, earlier.cut_at
            # As long as it is watched.
            if new.watch.due < math.inf and not earlier.allowed.untranslated:
                new.allowed = new.allowed._replace(untranslated=False)
        if begun or new.allowed.down or earlier is None or new.allowed.flows != earlier.allowed.flows:
            self._look(new, now)
        if new.allowed.connections is None:
            new.leaving, new.cut_at = {}, math.inf
            return
        allowed_before = (earlier and earlier.allowed.connections) or frozenset()
        ended = allowed_before - new.allowed.connections
        new.leaving = {each: at for each, at in new.leaving.items() if each not in new.allowed.connections}
        new.leaving.update((each, now + GRACE_S) for each in ended)
        is_new = earlier is None or earlier.allowed.connections is None or new.listeners != earlier.listeners
        if ended or is_new:
            new.cut_at = min(new.cut_at, now + GRACE_S)

    def _wait(self, farm: _Farm) -> None:
        if farm.due < math.inf:
            self._waiting[farm.allowed.farm] = farm

    def _close(self, name: str, closed: frozenset[Target], now: float) -> None:
        if closed:
            before = self._closed.pop(name, _Closed(frozenset()))
            self._closed[name] = _Closed(closed | before.targets)
            self._closed[name].watch.start(now)

    def _look(self, farm: _Farm, now: float, seconds: float = WATCH_S) -> None:
        if farm.allowed.down or any(protocol == UDP for _, protocol, _ in farm.targets):
            farm.watch.start(now, seconds)

    def check(self, name: str, now: float) -> None:
        """Have the connections of a farm looked for once, if they are not anyway."""
        farm = self._farms.get(name)
        if farm is not None and farm.watch.due == math.inf:
            farm.allowed = farm.allowed._replace(untranslated=True)
            self._look(farm, now, 0)
            self._wait(farm)

    def next_due(self) -> float:
        """Return when to look for connections; infinite if there is nothing to do."""
        closed = (each.watch.due for each in self._closed.values())
        return min(*(each.due for each in self._waiting.values()), *closed, math.inf, math.inf)

    def take(self, now: float) -> dict[Target, Allowed]:
        """Return what is allowed where it is time to look for what is not."""
        due: dict[Target, Allowed] = {}
        for name, closed in list(self._closed.items()):
            if closed.watch.due == math.inf:
                # Only now: the last look may have failed (``again``).
                del self._closed[name]
            elif closed.watch.due <= now:
                closed.watch.looked(now)
                due.update(dict.fromkeys(closed.targets, Allowed(name)))
        due.update(self._of_successors(due.keys(), now))
        for name, farm in list(self._waiting.items()):
            if farm.due > now:
                continue
            due.update(dict.fromkeys(farm.targets, farm.looked(now)))
            if farm.due == math.inf:
                del self._waiting[name]
        return due

    def _of_successors(self, closed: Iterable[Target], now: float) -> Iterator[tuple[Target, Allowed]]:
        """Yield what is allowed where a farm has closed targets by now: flows to its endpoints may have begun since."""
        ports: dict[tuple[bytes, int], set[int]] = {}
        for ip, protocol, port in closed:
            ports.setdefault((ip, protocol), set()).add(port)
        for farm in self._farms.values() if ports else ():
            if held := _held(ports, farm.targets):
                yield from dict.fromkeys(held, farm.allowed_at(now)).items()

    def again(self, farms: Collection[str], at: float) -> None:
        """Look for connections of these farms again, at a time."""
        for name in farms:
            if (farm := self._farms.get(name)) is not None:
                farm.watch.due = min(farm.watch.due, at)
                self._wait(farm)
            if (closed := self._closed.get(name)) is not None:
                closed.watch.due = min(closed.watch.due, at)


def targets(listeners: Iterable[Listener], protocols: Collection[int] = (TCP, UDP, SCTP)) -> Iterator[Target]:
    """Yield the targets of listeners, for those of their protocols that are asked for."""
    for listener in listeners:
        for protocol in _PROTOCOLS[listener.protocol]:
            if protocol in protocols:
                yield ip_address(listener.ip).packed, protocol, listener.port


def _held(closed: Mapping[tuple[bytes, int], Set[int]], targets_: Iterable[Target]) -> set[Target]:
    """Return the targets of closed ports that a farm with these targets has, by itself or with a whole address."""
    found: set[Target] = set()
    for ip, protocol, port in targets_:
        ports = closed.get((ip, protocol), frozenset())
        if port == ALL_PORTS:
            found |= {(ip, protocol, each) for each in ports}
        elif port in ports or ALL_PORTS in ports:
            found.add((ip, protocol, port))
    return found


def _own_ips(farm: NodeFarm) -> frozenset[bytes]:
    """Return the addresses of listeners that may be endpoints of a farm with UDP, as the node's own may."""
    if farm.spec.protocol not in ("UDP", "All") or farm.spec.mode not in TRANSLATED:
        return frozenset()
    # Nobody tells of endpoints that went before this agent began. What the node's own programs send goes untranslated
    # to others where the farm is not for them.
    of_node = farm.addresses if farm.spec.intra_connect else ()
    ips = {each.ip for each in of_node if each.type == "NodePort"} | {each.ip for each in farm.own_endpoints}
    return frozenset(ip_address(ip).packed for ip in ips)


def _farm(
    name: str, farm: NodeFarm, listeners: frozenset[Listener], *, untranslated: bool, own_ips: frozenset[bytes]
) -> _Farm:
    """Return a farm with the targets whose connections may have to end."""
    connections = flows = None
    if farm.spec.on_gone == "cut":
        connections = packed((each.ip, each.port) for each in farm.spec.backends if each.ready or each.serving)
    if farm.spec.protocol in ("UDP", "All"):
        flows = packed((each.ip, each.port) for each in answering(farm.spec))
    down = cut_off(farm.spec) - {each.backend.ip for each in farm.endpoints}
    protocols = {TCP, UDP, SCTP} if down else {UDP} if connections is None else {TCP, UDP}
    allowed = Allowed(
        name,
        farm.key.namespace,
        flows or frozenset(),
        connections,
        frozenset(ip_address(each).packed for each in down),
        untranslated,
        own_ips,
    )
    return _Farm(allowed, listeners, frozenset(targets(listeners, protocols)))


def packed(endpoints: Iterable[tuple[str, int | None]]) -> frozenset[Endpoint]:
    """Return endpoints as the kernel has them; port 0 stands for all."""
    return frozenset((ip_address(ip).packed, port or 0) for ip, port in endpoints)


def has(endpoints: frozenset[Endpoint], answerer: Endpoint) -> bool:
    """Return True if who answers is among these endpoints."""
    return answerer in endpoints or (answerer[0], 0) in endpoints
