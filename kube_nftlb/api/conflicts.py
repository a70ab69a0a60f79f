"""Which farm gets an address that several claim. Pure; the operator and every agent come to the same verdict.

A farm claims each (IP, port, protocol) that it listens on; one of the protocol All every port of its IPs, in each
protocol. The rule: take the farms in the order of ``rank``; one is
accepted when no farm accepted before it has any of its claims, else it is refused as a whole and claims nothing, so
that its other addresses are free for farms of a lower rank. The verdict depends on nothing but the set of farms.
"""

import bisect
import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kube_nftlb.api.farm import Farm
from kube_nftlb.api.values import expand_ports

Claim = tuple[str, int, str]
"""IP (or what stands for the IPs of all nodes), port, protocol; the port 0 stands for every port."""

_ALL = "All"

Rank = tuple[bool, bool, float, str, str]


class FarmKey(NamedTuple):
    """The identity of a farm."""

    namespace: str
    name: str


class _Entry(NamedTuple):
    rank: Rank
    claims: tuple[Claim, ...]


def farm_key(farm: Farm) -> FarmKey:
    """The identity of a farm object."""
    return FarmKey(farm.metadata.namespace, farm.metadata.name)


def rank(farm: Farm) -> Rank:
    """Sorts the winner first: a Service's farm before a hand-written one, then what nobody chose, older, then by name.

    An address of the type ExternalIP whoever writes a Service may choose. Farms with one come after those that have
    none, or somebody could wait with it for the address that another Service is going to be given.
    A farm is a Service's when its controller ownerReference says so (v1, Service): the operator takes that from farms
    that it has not made. Without a creationTimestamp it is the youngest.
    """
    owned = farm.metadata.service is not None
    created = farm.metadata.creation_timestamp
    age = created.timestamp() if created is not None else float("inf")
    chosen = any(address.type == "ExternalIP" for address in farm.spec.addresses)
    return (not owned, chosen, age, farm.metadata.namespace, farm.metadata.name)


def claims_of(farm: Farm, node_ips: Iterable[str] = ()) -> tuple[Claim, ...]:
    """Everything that a farm listens on, in the order of its spec.

    Where the addresses of a node are known (of the farm's family), a node port is also a port of each of them.
    """
    protocol = farm.spec.protocol
    own = list(node_ips)
    claims = (
        (ip, port, protocol)
        for address in farm.spec.addresses
        for ip in ([address.ip] if address.ip else [f"nodes ({farm.spec.family})", *own])
        for port in expand_ports(address.ports) or (0,)
    )
    # A farm may name a node's address and have a node port of the same number.
    return tuple(dict.fromkeys(claims))


class Claims:
    """All farms' claims, kept up to date one farm at a time.

    A change costs a look at each of the farm's claims, and the verdicts of those farms behind it alone that what is
    free now, or taken, may concern.
    """

    def __init__(self, claims: Callable[[Farm], tuple[Claim, ...]] = claims_of) -> None:
        """``claims`` tells what a farm listens on."""
        self._claims_of = claims
        self._entries: dict[FarmKey, _Entry] = {}
        self._claimants: dict[Claim, tuple[FarmKey, ...]] = {}
        self._on_ip: dict[str, set[FarmKey]] = {}
        self._holders: dict[Claim, FarmKey] = {}
        self._accepted: set[FarmKey] = set()
        self._accepted_on_ip: dict[str, list[tuple[Rank, FarmKey]]] = {}
        """The highest rank first: who claims every port of an IP asks for nothing but the first."""
        self._losses: dict[FarmKey, tuple[FarmKey, Claim]] = {}

    def put(self, farm: Farm) -> set[FarmKey]:
        """Add or replace a farm. Returns the other farms whose verdict changed."""
        key = farm_key(farm)
        entry = _Entry(rank(farm), self._claims_of(farm))
        if self._entries.get(key) == entry:
            return set()
        concerned = self._drop(key)
        self._entries[key] = entry
        for claim in entry.claims:
            self._claimants[claim] = (*self._claimants.get(claim, ()), key)
            self._on_ip.setdefault(claim[0], set()).add(key)
        return self._judge({key, *concerned}) - {key}

    def remove(self, key: FarmKey) -> set[FarmKey]:
        """Forget a farm. Returns the other farms whose verdict changed."""
        concerned = self._drop(key)
        self._losses.pop(key, None)
        return self._judge(concerned)

    def winner_over(self, key: FarmKey) -> tuple[FarmKey, Claim] | None:
        """None where the farm is accepted, or unknown; else the accepted farm it loses to, and what that farm has."""
        return self._losses.get(key)

    def _drop(self, key: FarmKey) -> set[FarmKey]:
        """Take a farm's claims out; returns the farms that this concerns."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return set()
        for claim in entry.claims:
            if others := tuple(other for other in self._claimants[claim] if other != key):
                self._claimants[claim] = others
            else:
                del self._claimants[claim]
            if (on_ip := self._on_ip.get(claim[0])) is not None:
                on_ip.discard(key)
                if not on_ip:
                    del self._on_ip[claim[0]]
        return self._release(key, entry)

    def _release(self, key: FarmKey, entry: _Entry) -> set[FarmKey]:
        """What a farm held is free; returns the farms that this concerns."""
        if key not in self._accepted:
            return set()
        self._accepted.discard(key)
        for ip in {claim[0] for claim in entry.claims}:
            on_ip = self._accepted_on_ip[ip]
            del on_ip[bisect.bisect_left(on_ip, (entry.rank, key))]
            if not on_ip:
                del self._accepted_on_ip[ip]
        for claim in entry.claims:
            if self._holders.get(claim) == key:
                del self._holders[claim]
        return self._behind(entry)

    def _behind(self, entry: _Entry) -> set[FarmKey]:
        """The farms of a lower rank that have a claim which one of these meets."""
        rivals = {key for claim in entry.claims for key in self._rivals(claim)}
        return {key for key in rivals if self._entries[key].rank > entry.rank}

    def _rivals(self, claim: Claim) -> Iterable[FarmKey]:
        """The farms that have a claim which this one meets."""
        ip, port, _ = claim
        if port == 0:
            return self._on_ip.get(ip, ())
        return (*self._claimants.get(claim, ()), *self._claimants.get((ip, 0, _ALL), ()))

    def _judge(self, concerned: set[FarmKey]) -> set[FarmKey]:
        """Judge these anew, and whom that concerns in turn, the highest rank first; returns whose verdict changed.

        What a verdict depends on has a higher rank, and so is final when its turn comes.
        """
        queue = [(self._entries[key].rank, key) for key in concerned]
        heapq.heapify(queue)
        queued, changed = set(concerned), set()
        while queue:
            _, key = heapq.heappop(queue)
            before, loss = self._losses.pop(key, None), self._obstacle(key)
            if loss is not None:
                self._losses[key] = loss
            if loss != before:
                changed.add(key)
            more = self._release(key, self._entries[key]) if loss is not None else self._accept(key)
            for other in more - queued:
                queued.add(other)
                heapq.heappush(queue, (self._entries[other].rank, other))
        return changed

    def _obstacle(self, key: FarmKey) -> tuple[FarmKey, Claim] | None:
        """The first that a farm claims and an accepted one of a higher rank has: that one, and what it has."""
        entry = self._entries[key]
        for claim in entry.claims:
            ip, port, _ = claim
            if port == 0:
                first, holder = next(iter(self._accepted_on_ip.get(ip, ())), (entry.rank, key))
                if first < entry.rank:
                    return holder, next(held for held in self._entries[holder].claims if held[0] == ip)
            for held in (claim, (ip, 0, _ALL)):
                holder_of = self._holders.get(held)
                if holder_of is not None and self._entries[holder_of].rank < entry.rank:
                    return holder_of, held
        return None

    def _accept(self, key: FarmKey) -> set[FarmKey]:
        """A farm has all that it claims; returns the farms that this concerns."""
        if key in self._accepted:
            return set()
        self._accepted.add(key)
        entry = self._entries[key]
        self._holders.update(dict.fromkeys(entry.claims, key))
        for ip in {claim[0] for claim in entry.claims}:
            bisect.insort(self._accepted_on_ip.setdefault(ip, []), (entry.rank, key))
        return self._behind(entry)
