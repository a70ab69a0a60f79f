"""Who has which address: pools, what Services and Gateways ask for, and what they have. Pure.

All Services of type LoadBalancer count, also those that get their addresses from another program: nobody gets an
address that one of them has.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from kube_nftlb.api.address_ranges import Ip, RangeMap
from kube_nftlb.api.base import Family
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.addresses.pools import Cluster, Pool, problems
from kube_nftlb.operator.addresses.requests import GatewayKey, Given, Holder, Request, given, request_of


class Book:
    """Changes by what is seen, and by what is assigned, which counts before the API server has it."""

    def __init__(self, *, without_class: bool = False) -> None:
        """``without_class``: Services without a class get addresses, too."""
        self._without_class = without_class
        self.pools: dict[str, Pool] = {}
        self.problems: dict[str, str] = {}
        """Why pools are refused, by name."""
        self.accepted: tuple[Pool, ...] = ()
        """The others, in the order in which they are asked."""
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """The labels of all namespaces."""
        self.changes = 0
        """Counts changes of what pools have, and of what Services have of them."""
        self.freed = False
        """Something changed by which Services that wait may get addresses; whoever looks again sets it back."""
        self._requests: dict[Holder, Request] = {}
        self._given: dict[Holder, Given] = {}
        self._assigned: dict[Holder, tuple[Ip, ...]] = {}
        self._holders_at: Multimap[Ip, Holder] = Multimap()
        self._sharing: Multimap[tuple[str, str], Holder] = Multimap()
        self._by_ip: RangeMap[Pool] = RangeMap()
        self._assignable: RangeMap[Pool] = RangeMap()
        self._used: Counter[tuple[str, Family]] = Counter()
        """Addresses that Services have, of those that they can get."""
        self._used_reserved: Counter[tuple[str, Family]] = Counter()
        self._of_namespace: Counter[tuple[str, str]] = Counter()
        """Addresses that the Services of a namespace have, by pool and namespace."""
        self._first_free: dict[tuple[str, Family], int] = {}
        """No lower address of a pool is free."""

    def put_pools(self, pools: Iterable[Pool], cluster: Cluster) -> frozenset[ServiceKey]:
        """Replace all pools, or judge them anew after a change of the cluster's own addresses.

        Return the Services that have an address of another pool than before.
        """
        before = self._by_ip
        self.pools = {pool.name: pool for pool in pools}
        self.problems = problems(self.pools.values(), cluster)
        valid = (pool for pool in self.pools.values() if pool.name not in self.problems)
        self.accepted = tuple(sorted(valid, key=lambda pool: (-pool.spec.priority if pool.spec else 0, pool.name)))
        self._by_ip = RangeMap([(each, pool) for pool in self.accepted for each in pool.ranges])
        self._assignable = RangeMap([(each, pool) for pool in self.accepted for each in pool.assignable])
        self._first_free.clear()
        for counter in (self._used, self._used_reserved, self._of_namespace):
            counter.clear()
        moved: set[Holder] = set()
        for ip in list(self._holders_at.keys()):
            self._count(ip, 1)
            if _name(before.find(ip)) != _name(self.pool_of(ip)):
                moved |= self._holders_at.get(ip)
            for namespace in {key.namespace for key in self._holders_at.get(ip)}:
                self._count_namespace(ip, namespace, 1)
        self.freed = True
        self.changes += 1
        return frozenset(_services(moved))

    def put_namespaces(self, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """Add or replace namespaces by their labels."""
        if any(self.namespaces.get(name) != labels for name, labels in namespaces.items()):
            self.namespaces.update(namespaces)
            self.freed = True

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace."""
        self.namespaces.pop(name, None)

    def put_service(self, key: ServiceKey, service: Service) -> Collection[ServiceKey]:
        """Put in a Service. Return the others with an address of it that are to be decided on again."""
        return self._put(key, request_of(service, without_class=self._without_class), given(service))

    def keep_addresses(self, key: ServiceKey, service: Service) -> None:
        """Give nobody else the addresses in the status of a Service of which nothing else can be read."""
        self._put(key, None, given(service))

    def put_gateway(self, request: Request, given: tuple[Ip, ...]) -> None:
        """Put in a Gateway. ``given`` is what its status has of addresses, beside what was assigned."""
        self._put(request.key, request, Given(given, ours=True) if given else Given())

    def _put(self, key: Holder, request: Request | None, given: Given) -> Collection[ServiceKey]:
        before, had = self._requests.get(key), self._given.get(key, Given())
        if (before, had) == (request, given):
            return ()
        if before is not None and before.sharing_key:
            self._sharing.discard((key.namespace, before.sharing_key), key)
        if before is not None and request is not None and self.has(key) and _shares(request) != _shares(before):
            # It may have kept others from sharing an address.
            self.freed = True
        if request is not None:
            self._requests[key] = request
            if request.sharing_key:
                self._sharing.add((key.namespace, request.sharing_key), key)
        else:
            self._requests.pop(key, None)
        before_ips = set(self.has(key))
        self._move(key, given, self.assigned(key) if request is not None else ())
        ips = before_ips ^ {*self.has(key)} if _claim(request) == _claim(before) else before_ips.union(self.has(key))
        others = {other for ip in ips for other in self._holders_at.get(ip)}
        return set(_services(others - {key}))

    def remove(self, key: Holder) -> Collection[ServiceKey]:
        """Remove a Service or Gateway. Return the others with an address of it."""
        return self._put(key, None, Given())

    def assign(self, key: Holder, ips: tuple[Ip, ...]) -> None:
        """Note what a holder is to have, until its status has it: nobody else gets these addresses."""
        self._move(key, self._given.get(key, Given()), ips)

    def request(self, key: Holder) -> Request | None:
        """Return what a holder asks for; None if it is not ours."""
        return self._requests.get(key)

    def status(self, key: Holder) -> Given:
        """Return what the status of a holder has."""
        return self._given.get(key, Given())

    def assigned(self, key: Holder) -> tuple[Ip, ...]:
        """Return the addresses that a holder is to have by the last decision."""
        return self._assigned.get(key, ())

    def has(self, key: Holder) -> tuple[Ip, ...]:
        """Return the addresses that a holder has, or is to have."""
        return tuple(dict.fromkeys((*self._assigned.get(key, ()), *self.status(key).ips)))

    def at(self, ip: Ip, key: Holder) -> list[Holder]:
        """Return the others that have an address."""
        return [other for other in self._holders_at.get(ip) if other != key]

    def sharing(self, request: Request) -> list[Holder]:
        """Return the Services with the sharing key of one, which it may share addresses with, in order."""
        return sorted(self._sharing.get((request.key.namespace, request.sharing_key))) if request.sharing_key else []

    def pool_of(self, ip: Ip) -> Pool | None:
        """Return the accepted pool that has an address, reserved or not."""
        return self._by_ip.find(ip)

    def is_assignable(self, ip: Ip) -> bool:
        """Return true if a Service can get an address: it is in an accepted pool, and not reserved."""
        return self._assignable.find(ip) is not None

    def used(self, pool: Pool, family: Family) -> int:
        """Return the number of addresses of a pool that Services have."""
        return self._used[pool.name, family] + self._used_reserved[pool.name, family]

    def free(self, pool: Pool, family: Family) -> int:
        """Return the number of addresses of a pool that Services can get."""
        return pool.size(family) - self._used[pool.name, family]

    def of_namespace(self, pool: Pool, namespace: str) -> int:
        """Return the number of addresses of a pool that the Services of a namespace have."""
        return self._of_namespace[pool.name, namespace]

    def services_of_pools(self) -> Counter[str]:
        """Return the number of Services that have addresses of each pool."""
        found: Counter[str] = Counter()
        for key in self._given.keys() | self._assigned.keys():
            if not isinstance(key, GatewayKey):
                found.update({pool.name for ip in self.has(key) if (pool := self.pool_of(ip)) is not None})
        return found

    def first_free(self, pool: Pool, family: Family) -> Ip | None:
        """Return the lowest address of a pool that nobody has; None if there is none."""
        if self.free(pool, family) <= 0:
            return None
        start = self._first_free.get((pool.name, family), 0)
        for each in pool.assignable:
            if each.family != family:
                continue
            number = max(each.first, start)
            while number <= each.last and self._holders_at.get(Ip(family, number)):
                number += 1
            if number <= each.last:
                self._first_free[pool.name, family] = number
                return Ip(family, number)
        return None

    def _move(self, key: Holder, given: Given, assigned: tuple[Ip, ...]) -> None:
        had = set(self.has(key))
        if given == Given():
            self._given.pop(key, None)
        else:
            self._given[key] = given
        if assigned:
            self._assigned[key] = assigned
        else:
            self._assigned.pop(key, None)
        has = set(self.has(key))
        for ip in has - had:
            self._claim(ip, key)
        for ip in had - has:
            self._release(ip, key)

    def _claim(self, ip: Ip, key: Holder) -> None:
        self.changes += 1
        others = self._holders_at.get(ip)
        if not others:
            self._count(ip, 1)
        if all(other.namespace != key.namespace for other in others):
            self._count_namespace(ip, key.namespace, 1)
        self._holders_at.add(ip, key)

    def _release(self, ip: Ip, key: Holder) -> None:
        self.freed = True
        self.changes += 1
        self._holders_at.discard(ip, key)
        others = self._holders_at.get(ip)
        if all(other.namespace != key.namespace for other in others):
            self._count_namespace(ip, key.namespace, -1)
        if not others:
            self._count(ip, -1)
            if (pool := self._assignable.find(ip)) is not None:
                where = pool.name, ip.family
                self._first_free[where] = min(self._first_free.get(where, 0), ip.number)

    def _count(self, ip: Ip, change: int) -> None:
        if (pool := self.pool_of(ip)) is not None:
            counter = self._used if self.is_assignable(ip) else self._used_reserved
            counter[pool.name, ip.family] += change

    def _count_namespace(self, ip: Ip, namespace: str, change: int) -> None:
        if (pool := self.pool_of(ip)) is not None:
            self._of_namespace[pool.name, namespace] += change


def _shares(request: Request) -> tuple[object, ...]:
    """Return what decides on who may share an address with a holder; empty if nobody may."""
    key = request.sharing_key
    return (key, request.ports, request.selector, request.local) if key else ()


def _claim(request: Request | None) -> tuple[object, ...]:
    """Return what decides on who of those with one address loses it, nobody to one not ours, and what it says."""
    return (request.rank, request.sharing_key, request.ports, request.selector, request.local) if request else ()


def _services(holders: Iterable[Holder]) -> Iterator[ServiceKey]:
    return (each for each in holders if isinstance(each, ServiceKey))


def _name(pool: Pool | None) -> str | None:
    return pool.name if pool is not None else None
