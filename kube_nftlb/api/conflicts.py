"""Which farm gets an address that several claim. Pure; the operator and every agent come to the same verdict.

A farm claims each (IP, port, protocol) that it listens on; one of the protocol All every port of its IPs, in each
protocol. The rule: take the farms in the order of ``rank``; one is
accepted when no farm accepted before it has any of its claims, else it is refused as a whole and claims nothing, so
that its other addresses are free for farms of a lower rank. The verdict depends on nothing but the set of farms.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.api.farm import Farm
from kube_nftlb.api.values import expand_ports

Claim = tuple[str, int, str]
"""IP (or what stands for the IPs of all nodes), port, protocol; the port 0 stands for every port."""

_ALL = "All"

Rank = tuple[bool, float, str, str]


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
    """Sorts the winner first: a Service's farm before a hand-written one, older before younger, then by name.

    A farm is a Service's when its controller ownerReference says so (v1, Service): the operator takes that from farms
    that it has not made. Without a creationTimestamp it is the youngest.
    """
    owned = any(owner.controls_as_service for owner in farm.metadata.owner_references)
    created = farm.metadata.creation_timestamp
    age = created.timestamp() if created is not None else float("inf")
    return (not owned, age, farm.metadata.namespace, farm.metadata.name)


def claims_of(farm: Farm) -> tuple[Claim, ...]:
    """Everything that a farm listens on, in the order of its spec."""
    protocol = farm.spec.protocol
    return tuple(
        (address.ip or f"nodes ({farm.spec.family})", port, protocol)
        for address in farm.spec.addresses
        for port in expand_ports(address.ports) or (0,)
    )


class Claims:
    """All farms' claims, kept up to date one farm at a time.

    A farm that shares no claim costs one dictionary look-up per claim; verdicts are made anew only for the farms that
    are connected with the changed one through shared claims.
    """

    def __init__(self) -> None:
        self._entries: dict[FarmKey, _Entry] = {}
        self._claimants: dict[Claim, tuple[FarmKey, ...]] = {}
        self._on_ip: dict[str, set[FarmKey]] = {}
        self._losses: dict[FarmKey, tuple[FarmKey, Claim]] = {}

    def put(self, farm: Farm) -> set[FarmKey]:
        """Add or replace a farm. Returns the other farms whose verdict changed."""
        key = farm_key(farm)
        entry = _Entry(rank(farm), claims_of(farm))
        if self._entries.get(key) == entry:
            return set()
        neighbours = self._drop(key)
        self._entries[key] = entry
        for claim in entry.claims:
            neighbours.update(self._rivals(claim))
            self._claimants[claim] = (*self._claimants.get(claim, ()), key)
            self._on_ip.setdefault(claim[0], set()).add(key)
        neighbours.discard(key)
        return self._judge(key, neighbours)

    def remove(self, key: FarmKey) -> set[FarmKey]:
        """Forget a farm. Returns the other farms whose verdict changed."""
        return self._judge(key, self._drop(key))

    def winner_over(self, key: FarmKey) -> tuple[FarmKey, Claim] | None:
        """None where the farm is accepted, or unknown; else the accepted farm it loses to, and what that farm has."""
        return self._losses.get(key)

    def _drop(self, key: FarmKey) -> set[FarmKey]:
        """Take a farm's claims out; returns those that it shared one with."""
        entry = self._entries.pop(key, None)
        neighbours: set[FarmKey] = set()
        for claim in entry.claims if entry is not None else ():
            if others := tuple(other for other in self._claimants[claim] if other != key):
                self._claimants[claim] = others
            else:
                del self._claimants[claim]
            if (on_ip := self._on_ip.get(claim[0])) is not None:
                on_ip.discard(key)
                if not on_ip:
                    del self._on_ip[claim[0]]
            neighbours.update(self._rivals(claim))
        return neighbours

    def _rivals(self, claim: Claim) -> Iterable[FarmKey]:
        """The farms that have a claim which this one meets."""
        ip, port, _ = claim
        if port == 0:
            return self._on_ip.get(ip, ())
        return (*self._claimants.get(claim, ()), *self._claimants.get((ip, 0, _ALL), ()))

    def _judge(self, changed: FarmKey, neighbours: set[FarmKey]) -> set[FarmKey]:
        if not neighbours:
            self._losses.pop(changed, None)
            return set()
        group = self._connected({changed, *neighbours})
        before = {key: self._losses.pop(key, None) for key in (*group, changed)}
        holders: dict[Claim, FarmKey] = {}
        first_on_ip: dict[str, Claim] = {}
        for key in sorted(group, key=lambda member: self._entries[member].rank):
            for claim in self._entries[key].claims:
                ip, port, _ = claim
                whole = (ip, 0, _ALL)
                obstacle = first_on_ip.get(ip, whole) if port == 0 else whole if whole in holders else claim
                if (holder := holders.get(obstacle)) is not None:
                    self._losses[key] = (holder, obstacle)
                    break
            else:
                for claim in self._entries[key].claims:
                    holders[claim] = key
                    first_on_ip.setdefault(claim[0], claim)
        return {key for key, verdict in before.items() if key != changed and verdict != self._losses.get(key)}

    def _connected(self, seeds: set[FarmKey]) -> set[FarmKey]:
        group: set[FarmKey] = set()
        todo = [key for key in seeds if key in self._entries]
        while todo:
            key = todo.pop()
            if key in group:
                continue
            group.add(key)
            for claim in self._entries[key].claims:
                todo.extend(other for other in self._rivals(claim) if other not in group)
        return group
