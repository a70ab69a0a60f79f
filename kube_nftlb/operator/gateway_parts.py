"""What serves Gateway API, connected: a part of ``parts.Parts``."""

from collections.abc import Callable, Coroutine
from typing import Any

from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Part
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.gateway_store import KINDS, GatewayStore, Ref
from kube_nftlb.operator.cache.ip_addresses import IPAddresses
from kube_nftlb.operator.gateway.objects import Options
from kube_nftlb.operator.informers.gateway_informer import GatewayInformer
from kube_nftlb.operator.informers.ip_address_informer import IPAddressInformer
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.sync.cluster_ips import ClusterIPs
from kube_nftlb.operator.sync.gateway_statuses import GatewayStatuses
from kube_nftlb.operator.sync.gateways import Gateways
from kube_nftlb.operator.sync.reconciler import Reconciler
from kube_nftlb.settings import DefaultEngine

_STATUS_WORKERS = 4

_Work = Callable[[], Coroutine[Any, Any, None]]


class GatewayParts:
    """The objects of Gateway API, what reads them, and what follows from them."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        book: Book,
        events: Events,
        reconciler: Reconciler,
        clock: Callable[[], float],
        on_change: Callable[[Affected], None],
        engine: DefaultEngine,
        permissions: Permissions,
        cluster_ips: int,
    ) -> None:
        """``engine`` is that of the farms of routes; ``clock`` returns seconds. See ``Gateways`` for ``on_change``.

        The Gateways of a namespace may have so many ``cluster_ips``.
        """
        self._cache = cache
        self._store = GatewayStore(cache.services, book.namespaces, Options(engine))
        budget = reconciler.statuses.budget
        self._statuses = GatewayStatuses(kube, self._store, events, budget, clock)
        ip_addresses = IPAddresses()
        self._cluster_ips = ClusterIPs(kube, cache, ip_addresses, clock, cluster_ips)
        self._ip_addresses = IPAddressInformer(kube, ip_addresses, self._cluster_ips.seen)
        self._cluster_ips.unavailable = lambda: self._ip_addresses.problem
        self.gateways = Gateways(
            self._store, cache, book, reconciler.routes, self._statuses, self._cluster_ips, on_change, permissions
        )
        reconciler.statuses.observers.append(self.gateways)
        self._informer = GatewayInformer(kube, self._store, self.gateways.wake, self._statuses.seen)

    def readers(self) -> list[_Work]:
        """Return what reads, in every replica."""
        return [self._informer.run, self._ip_addresses.run]

    def writers(self) -> list[_Work]:
        """Return what writes, in the leader alone."""
        return [self._decide, self._cluster_ips.work, *[self._statuses.work] * _STATUS_WORKERS]

    async def _decide(self) -> None:
        # Services do not wait for that, but for new addresses: a kind that cannot be listed is no reason to let all be.
        await self._informer.until_listed()
        await self._ip_addresses.listed.wait()
        await self._informer.catch_up()
        await self._ip_addresses.catch_up(self._cache.farm_index.has_cluster_ips)
        await self.gateways.run()

    def knows(self, part: Part) -> bool | None:
        """Return whether the object that Events are about exists; None if it is of another kind."""
        resource, namespace, name, uid = part.subject
        return self._store.uid(Ref(resource, namespace, name)) == uid if resource in KINDS else None
