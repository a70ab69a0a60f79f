"""List and watch the Pods with the readiness gate into the cache: by their label, so that no others cost anything."""

import asyncio
from collections.abc import Callable

import structlog

from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import PODS, JsonObject
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.model.gated_pods import SELECTOR, slim
from kube_nftlb.operator.model.pods import pod_key

_log = structlog.get_logger()


class GatedPodInformer:
    """Keeps the Pods with the readiness gate up to date in ``run``; ``on_change`` is called after each change."""

    def __init__(self, kube: Kube, ingest: Ingest, on_change: Callable[[], None]) -> None:
        self.listed = asyncio.Event()
        """Set once all are listed: before that, farms would lose the Pods that they list."""
        self._kube = kube
        self._ingest = ingest
        self._on_change = on_change

    async def run(self) -> None:
        """List and watch until cancelled."""
        handlers = Handlers(self._replace, self._put, self._remove)
        await list_and_watch(self._kube, PODS, handlers, label_selector=SELECTOR, transform=slim)

    def _replace(self, listing: Listing) -> None:
        version = int(listing.resource_version)
        listed = {pod_key(slimmed) for slimmed in listing.items}
        for key in self._ingest.cache.gates.pods.keys() - listed:
            self._ingest.cache.gates.remove(key, version)
        for slimmed in listing.items:
            self._keep(slimmed)
        self.listed.set()
        self._on_change()

    def _put(self, raw: JsonObject) -> None:
        if (slimmed := slim(raw)) is not None:
            self._keep(slimmed)
            self._on_change()

    def _remove(self, raw: JsonObject) -> None:
        self._ingest.cache.gates.remove(pod_key(raw), int(raw["metadata"]["resourceVersion"]))
        self._on_change()

    def _keep(self, slimmed: JsonObject) -> None:
        try:
            self._ingest.put_gated_pod(slimmed)
        except Exception:
            # One malformed object must not stop all others.
            _log.exception("cannot parse Pod, ignored", **pod_key(slimmed)._asdict())
