"""List and watch NftlbAddressPools, and the labels of namespaces, by which pools select."""

import asyncio
from collections.abc import Callable

import structlog

from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import ADDRESS_POOLS, NAMESPACES, JsonObject
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.pool_changes import PoolChanges

_log = structlog.get_logger()


class AddressInformer:
    """Keeps both up to date; ``on_change`` gets what each change of a pool makes out of date."""

    def __init__(
        self,
        kube: Kube,
        pools: PoolChanges,
        book: Book,
        on_change: Callable[[Affected], None],
        on_namespace: Callable[[str], None],
    ) -> None:
        """``on_namespace`` gets the name of each namespace that comes or changes."""
        self._kube = kube
        self._pools = pools
        self._book = book
        self._on_change = on_change
        self._on_namespace = on_namespace
        self._pools_listed = asyncio.Event()
        self._namespaces_listed = asyncio.Event()

    async def until_listed(self) -> None:
        """Wait until all are listed: before that, an address might seem to be in no pool."""
        await self._pools_listed.wait()
        await self._namespaces_listed.wait()

    async def run_pools(self) -> None:
        """List and watch pools until cancelled."""
        handlers = Handlers(
            self._replace_pools,
            lambda raw: self._change(raw, self._pools.put),
            lambda raw: self._change(raw, self._pools.remove),
        )
        await list_and_watch(self._kube, ADDRESS_POOLS, handlers)

    async def run_namespaces(self) -> None:
        """List and watch the metadata of namespaces until cancelled."""
        handlers = Handlers(self._replace_namespaces, self._put_namespace, self._remove_namespace)
        await list_and_watch(self._kube, NAMESPACES, handlers, metadata_only=True, transform=_named_labels)

    def _replace_pools(self, listing: Listing) -> None:
        self._on_change(self._pools.replace(listing.items))
        self._pools_listed.set()

    def _change(self, raw: JsonObject, change: Callable[[JsonObject], Affected]) -> None:
        try:
            affected = change(raw)
        except Exception:
            # One malformed object must not stop all others.
            _log.exception("cannot parse address pool, ignored", pool=raw["metadata"]["name"])
        else:
            self._on_change(affected)

    def _replace_namespaces(self, listing: Listing) -> None:
        listed = {raw["metadata"]["name"]: raw["metadata"]["labels"] for raw in listing.items}
        for name in self._book.namespaces.keys() - listed.keys():
            self._book.remove_namespace(name)
        self._book.put_namespaces(listed)
        for name in listed:
            self._on_namespace(name)
        self._namespaces_listed.set()

    def _put_namespace(self, raw: JsonObject) -> None:
        name, labels = raw["metadata"]["name"], raw["metadata"].get("labels") or {}
        changed = self._book.namespaces.get(name) != labels
        self._book.put_namespaces({name: labels})
        if changed:
            self._on_namespace(name)

    def _remove_namespace(self, raw: JsonObject) -> None:
        self._book.remove_namespace(raw["metadata"]["name"])


def _named_labels(raw: JsonObject) -> JsonObject:
    metadata = raw["metadata"]
    return {"metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}}}
