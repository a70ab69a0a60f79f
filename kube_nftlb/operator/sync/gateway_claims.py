"""Find out which addresses Gateways have had before this process decides about them."""

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter
from typing import get_args

from kube_nftlb.api.address_ranges import Ip
from kube_nftlb.api.gateway.route import RouteKindName
from kube_nftlb.kube.resources import GATEWAYS
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.gateways import listed, regained
from kube_nftlb.operator.addresses.requests import Holder, Request
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.gateway_store import GatewayStore, Ref
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey


class GatewayClaims:
    """Reads the statuses of Gateways; ``gateways_of`` returns those that a route refers to."""

    def __init__(
        self,
        store: GatewayStore,
        cache: Cache,
        book: Book,
        gateways_of: Callable[[RouteKey], Collection[ObjectKey]],
    ) -> None:
        self._store = store
        self._cache = cache
        self._book = book
        self._gateways_of = gateways_of

    def put(self, requests: Iterable[Request]) -> None:
        """Have the book know what Gateways have had, the oldest ones first.

        What somebody else has by now never counts. Of the rest a Gateway has what its farms have, whatever has become
        of the pool, and else what it could get anew: a status may be out of date, or another controller's.
        """
        ordered = sorted(requests, key=attrgetter("rank"))
        for request in ordered:
            served = [ip for ip in self._listed(request.key) if self._is_served(request.key, ip)]
            self._book.put_gateway(request, tuple(ip for ip in served if not self._book.at(ip, request.key)))
        for request in ordered:
            self._book.put_gateway(request, regained(request, self._listed(request.key), self._book))

    def _listed(self, holder: Holder) -> tuple[Ip, ...]:
        written = self._store.written[Ref(GATEWAYS, holder.namespace, holder.name)]
        return tuple(listed(written.status))

    def _is_served(self, holder: Holder, ip: Ip) -> bool:
        """Return True if a farm of a route of a Gateway has an address: then we gave it to that Gateway."""
        key = ObjectKey(holder.namespace, holder.name)
        for name in self._cache.farm_index.balanced.get(str(ip)):
            farm = self._cache.farms.get(name)
            if farm is None or not farm.made_of_route or farm.owner is None:
                continue
            routes = (RouteKey(kind, name.namespace, farm.owner.name) for kind in get_args(RouteKindName))
            if any(key in self._gateways_of(route) for route in routes):
                return True
        return False
