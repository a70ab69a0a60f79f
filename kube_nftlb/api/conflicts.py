"""Decide which farm owns a listener that several farms want. Pure: the operator and all agents reach the same verdict.

A farm wants all its listeners. With the protocol All, it wants every port and protocol of its addresses.
Farms are considered in the order of ``rank``. A farm is accepted if no farm accepted before it owns one of its
listeners. Otherwise it loses all of them, so that farms of a lower rank can own the others.
"""

import bisect
import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import ALL_PORTS, Listener, listeners_of

Rank = tuple[bool, bool, float, str, str]


class FarmKey(NamedTuple):
    """The identity of a farm."""

    namespace: str
    name: str


class Conflict(NamedTuple):
    """Why a farm is not accepted."""

    winner: FarmKey
    listener: Listener
    """A listener of the winner that the loser wants too."""


class _Entry(NamedTuple):
    rank: Rank
    listeners: tuple[Listener, ...]


def farm_key(farm: Farm) -> FarmKey:
    """Return the identity of a farm object."""
    return FarmKey(farm.metadata.namespace, farm.metadata.name)


def rank(farm: Farm) -> Rank:
    """Return a sort key; the lowest wins.

    Farms of a Service come before hand-written ones, then farms without an ExternalIP, then older ones, then by name.

    Anyone who may write a Service can choose its external IPs. If such farms ranked by age alone, one could squat on
    an address that another Service is about to be assigned.
    A farm belongs to a Service if its controller ownerReference says so (v1, Service); the operator removes that
    reference from farms that it did not create. A farm without a creationTimestamp counts as the youngest.
    """
    owned = farm.metadata.service is not None
    created = farm.metadata.creation_timestamp
    age = created.timestamp() if created is not None else float("inf")
    chosen = any(address.type == "ExternalIP" for address in farm.spec.addresses)
    return (not owned, chosen, age, farm.metadata.namespace, farm.metadata.name)


class Conflicts:
    """The conflicts among all farms, updated one farm at a time.

    A change looks at the farm's own listeners, and at the lower-ranked farms that want a listener it frees or takes.
    """

    def __init__(self, listeners: Callable[[Farm], tuple[Listener, ...]] = listeners_of) -> None:
        """Start without farms. ``listeners`` returns the listeners of a farm."""
        self._listeners_of = listeners
        self._entries: dict[FarmKey, _Entry] = {}
        self._wanted_by: dict[Listener, tuple[FarmKey, ...]] = {}
        self._wanted_on_ip: dict[str, set[FarmKey]] = {}
        self._owners: dict[Listener, FarmKey] = {}
        self._accepted: set[FarmKey] = set()
        self._accepted_on_ip: dict[str, list[tuple[Rank, FarmKey]]] = {}
        """Sorted, the winner first: a farm that wants a whole address only has to look at the first."""
        self._conflicts: dict[FarmKey, Conflict] = {}

    def put(self, farm: Farm) -> set[FarmKey]:
        """Add or replace a farm. Return the other farms whose verdict changed."""
        key = farm_key(farm)
        entry = _Entry(rank(farm), self._listeners_of(farm))
        if self._entries.get(key) == entry:
            return set()
        affected = self._drop(key)
        self._entries[key] = entry
        for listener in entry.listeners:
            self._wanted_by[listener] = (*self._wanted_by.get(listener, ()), key)
            self._wanted_on_ip.setdefault(listener.ip, set()).add(key)
        return self._decide({key, *affected}) - {key}

    def remove(self, key: FarmKey) -> set[FarmKey]:
        """Remove a farm. Return the other farms whose verdict changed."""
        affected = self._drop(key)
        self._conflicts.pop(key, None)
        return self._decide(affected)

    def get(self, key: FarmKey) -> Conflict | None:
        """Return the conflict that a farm loses, or None if it is accepted or unknown."""
        return self._conflicts.get(key)

    def _drop(self, key: FarmKey) -> set[FarmKey]:
        """Remove a farm's listeners. Return the affected farms."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return set()
        for listener in entry.listeners:
            if others := tuple(other for other in self._wanted_by[listener] if other != key):
                self._wanted_by[listener] = others
            else:
                del self._wanted_by[listener]
            if (on_ip := self._wanted_on_ip.get(listener.ip)) is not None:
                on_ip.discard(key)
                if not on_ip:
                    del self._wanted_on_ip[listener.ip]
        return self._release(key, entry)

    def _accept(self, key: FarmKey) -> set[FarmKey]:
        """Make a farm the owner of its listeners. Return the affected farms."""
        if key in self._accepted:
            return set()
        self._accepted.add(key)
        entry = self._entries[key]
        self._owners.update(dict.fromkeys(entry.listeners, key))
        for ip in {listener.ip for listener in entry.listeners}:
            bisect.insort(self._accepted_on_ip.setdefault(ip, []), (entry.rank, key))
        return self._lower_ranked(entry)

    def _release(self, key: FarmKey, entry: _Entry) -> set[FarmKey]:
        """Free the listeners that a farm owns. Return the affected farms."""
        if key not in self._accepted:
            return set()
        self._accepted.discard(key)
        for ip in {listener.ip for listener in entry.listeners}:
            on_ip = self._accepted_on_ip[ip]
            del on_ip[bisect.bisect_left(on_ip, (entry.rank, key))]
            if not on_ip:
                del self._accepted_on_ip[ip]
        for listener in entry.listeners:
            if self._owners.get(listener) == key:
                del self._owners[listener]
        return self._lower_ranked(entry)

    def _lower_ranked(self, entry: _Entry) -> set[FarmKey]:
        """Return the farms of a lower rank that want one of these listeners."""
        rivals = {key for listener in entry.listeners for key in self._rivals(listener)}
        return {key for key in rivals if self._entries[key].rank > entry.rank}

    def _rivals(self, listener: Listener) -> Iterable[FarmKey]:
        """Return the farms that want a listener, or one that overlaps it."""
        if listener.port == ALL_PORTS:
            return self._wanted_on_ip.get(listener.ip, ())
        return (*self._wanted_by.get(listener, ()), *self._wanted_by.get(listener.whole_address, ()))

    def _decide(self, affected: set[FarmKey]) -> set[FarmKey]:
        """Decide these farms again, and those that this affects in turn. Return the farms whose verdict changed.

        The highest rank goes first: a verdict depends on higher ranks alone, which are final by then.
        """
        queue = [(self._entries[key].rank, key) for key in affected]
        heapq.heapify(queue)
        queued, changed = set(affected), set()
        while queue:
            _, key = heapq.heappop(queue)
            before, conflict = self._conflicts.pop(key, None), self._conflict(key)
            if conflict is not None:
                self._conflicts[key] = conflict
            if conflict != before:
                changed.add(key)
            more = self._release(key, self._entries[key]) if conflict is not None else self._accept(key)
            for other in more - queued:
                queued.add(other)
                heapq.heappush(queue, (self._entries[other].rank, other))
        return changed

    def _conflict(self, key: FarmKey) -> Conflict | None:
        """Return the first conflict of a farm with an accepted farm of a higher rank, or None."""
        entry = self._entries[key]
        for listener in entry.listeners:
            if listener.port == ALL_PORTS:
                first, owner = next(iter(self._accepted_on_ip.get(listener.ip, ())), (entry.rank, key))
                if first < entry.rank:
                    owned = self._entries[owner].listeners
                    return Conflict(owner, next(each for each in owned if each.ip == listener.ip))
            for owned_listener in (listener, listener.whole_address):
                winner = self._owners.get(owned_listener)
                if winner is not None and self._entries[winner].rank < entry.rank:
                    return Conflict(winner, owned_listener)
        return None
