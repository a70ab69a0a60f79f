"""Change address pools and the labels of namespaces. No I/O.

Each change returns what it makes out of date: the Services that ask for external IPs, which cannot be a pool's, and
those with an address that is of another pool now, or of none, as their condition says.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kube_nftlb.api.address_ranges import ip_of
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.cluster import ClusterAddresses
from kube_nftlb.operator.addresses.pools import Pool, parse, problems
from kube_nftlb.operator.cache.affected import NOTHING, Affected
from kube_nftlb.operator.cache.cache import Cache

Json = dict[str, Any]


class _Changes(NamedTuple):
    """How often the cluster's own addresses have changed."""

    others: int
    cluster_ips: int


class PoolChanges:
    """Makes changes to a cache, whose ``addresses`` are ``book``."""

    def __init__(self, cache: Cache, book: Book) -> None:
        self._cache = cache
        self._book = book
        self._judged_at = _Changes(-1, -1)
        cache.reserved.of_load_balancers = self._of_load_balancers

    def replace(self, raws: Iterable[Json]) -> Affected:
        """Replace all pools."""
        return self._put({pool.name: pool for pool in map(parse, raws)})

    def put(self, raw: Json) -> Affected:
        """Add or replace a pool."""
        pool, known = parse(raw), self._book.pools.get(raw["metadata"]["name"])
        if known is not None and (known.spec, known.metadata.uid) == (pool.spec, pool.metadata.uid):
            if (known.metadata.generation, known.status) != (pool.metadata.generation, pool.status):
                # Our own status comes back, or another one, or a new generation without a difference.
                self._book.changes += 1
            known.metadata, known.status = pool.metadata, pool.status
            return NOTHING
        return self._put({**self._book.pools, pool.name: pool})

    def remove(self, raw: Json) -> Affected:
        """Remove a pool."""
        return self._put({name: pool for name, pool in self._book.pools.items() if name != raw["metadata"]["name"]})

    def judge(self, *, cluster_ips: bool = False) -> Affected:
        """Judge all pools anew if the cluster's own addresses have changed.

        Cluster IPs may change often: if nothing else has, that counts with ``cluster_ips`` alone.
        """
        pools, changes = self._book.pools, self._changes()
        others_same = changes.others == self._judged_at.others
        if not pools or (others_same and not (cluster_ips and changes != self._judged_at)):
            return NOTHING
        self._judged_at = changes
        return self._put(pools) if problems(pools.values(), self._cluster()) != self._book.problems else NOTHING

    def _put(self, pools: Mapping[str, Pool]) -> Affected:
        before = {pool.name: pool.ranges for pool in self._book.accepted}
        self._judged_at = self._changes()
        moved = self._book.put_pools(list(pools.values()), self._cluster())
        same = before == {pool.name: pool.ranges for pool in self._book.accepted}
        return NOTHING if same else Affected(services=self._cache.service_index.asking() | moved)

    def _changes(self) -> "_Changes":
        return _Changes(self._cache.reserved.changes, self._cache.reserved.changed_cluster_ips)

    def _cluster(self) -> ClusterAddresses:
        return ClusterAddresses(self._cache.reserved.addresses(), self._cache.reserved.ranges())

    def _of_load_balancers(self, text: str, service: ServiceKey) -> str | None:
        ip = ip_of(text)
        if (pool := self._book.pool_of(ip)) is not None:
            return f"it is in the address pool {pool.name}, which Services of type LoadBalancer have addresses of"
        return "another Service of type LoadBalancer has it" if self._book.at(ip, service) else None
