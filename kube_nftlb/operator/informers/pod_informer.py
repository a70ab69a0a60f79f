"""List and watch the Pods with annotations of kube-nftlb into the cache.

Not with kopf, which keeps a task, a queue and a copy of every object: a cluster has tens of thousands of Pods that
change all the time, and few have such annotations. Only metadata is watched, and nothing is kept of other Pods.
"""

import asyncio
from collections.abc import Callable

from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.events import Events, Subject
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import PODS, JsonObject
from kube_nftlb.operator.cache.affected import NOTHING, Affected
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.model.pods import PodKey, pod_key, slim
from kube_nftlb.operator.model.rejections import Rejection


class PodInformer:
    """Keeps the Pods up to date in ``run``; ``on_change`` gets what each change makes out of date."""

    def __init__(self, kube: Kube, ingest: Ingest, events: Events, on_change: Callable[[Affected], None]) -> None:
        self.listed = asyncio.Event()
        """Set once all Pods are listed: before that, farms might be written without their options."""
        self._kube = kube
        self._ingest = ingest
        self._cache = ingest.cache
        self._events = events
        self._on_change = on_change
        self._reports = False

    async def run(self) -> None:
        """List and watch until cancelled."""
        handlers = Handlers(self._replace, self._put, self._remove)
        await list_and_watch(self._kube, PODS, handlers, metadata_only=True, transform=slim)

    def start_reporting(self) -> None:
        """Report problems of Pods in Events from now on, and all existing ones: this replica became the leader."""
        self._reports = True
        for key, pod in self._cache.pods.items():
            self._report(key, pod.uid, (), pod.problems)

    def _replace(self, listing: Listing) -> None:
        version = int(listing.resource_version)
        listed = {pod_key(raw) for raw in listing.items}
        for key in self._ingest.unlisted(PODS, listed, version):
            self._on_change(self._ingest.forget(PODS, key, version))
        for slimmed in listing.items:
            self._keep(slimmed)
        self.listed.set()

    def _put(self, raw: JsonObject) -> None:
        if (slimmed := slim(raw)) is not None:
            self._keep(slimmed)
        elif self._cache.pods.get(pod_key(raw)) is not None:
            self._on_change(self._forget(raw))

    def _remove(self, raw: JsonObject) -> None:
        # Another Pod of this name, as of a StatefulSet, must not get its options.
        self._on_change(self._forget(raw))

    def _keep(self, slimmed: JsonObject) -> None:
        key = pod_key(slimmed)
        known = self._cache.pods.get(key)
        self._on_change(self._ingest.put(PODS, slimmed))
        if (pod := self._cache.pods.get(key)) is not None:
            before = known.problems if known is not None and known.uid == pod.uid else ()
            self._report(key, pod.uid, before, pod.problems)

    def _forget(self, raw: JsonObject) -> Affected:
        if (known := self._cache.pods.get(pod_key(raw))) is None:
            return NOTHING
        self._report(pod_key(raw), known.uid, known.problems, ())
        return self._ingest.remove(PODS, raw)

    def _report(self, key: PodKey, uid: str, before: tuple[Rejection, ...], now: tuple[Rejection, ...]) -> None:
        # Pods change often, their annotations hardly ever.
        if self._reports and now != before:
            self._events.report(Subject(PODS, *key, uid), now)
