"""The only writer of the cache: parse raw objects, put in what is news, and return what each change makes out of date.

Informers, lists and answers to the operator's own writes all come through here. No I/O.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kube_nftlb import metrics, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, PODS, SERVICES, JsonObject, Resource
from kube_nftlb.operator.cache.cache import Cache, CachedSlice, Dirty
from kube_nftlb.operator.cache.farm_record import parse_farm
from kube_nftlb.operator.cache.newest import Newest
from kube_nftlb.operator.cache.node_record import parse_node
from kube_nftlb.operator.cache.pending_changes import PendingChange, PendingChanges
from kube_nftlb.operator.cache.slices import ServiceKey, parse_slice
from kube_nftlb.operator.model.pods import parse_pod, pod_key

ObjectKey = Any
"""The key of an object in its kind's table; each kind has its own type."""

_EVER = datetime.min.replace(tzinfo=UTC)


class _Kind(NamedTuple):
    table: Newest[Any, Any]
    key: Callable[[JsonObject], ObjectKey]
    put: Callable[[JsonObject], Dirty]
    remove: Callable[[ObjectKey, int], Dirty]


class CacheWriter:
    """Changes a cache. The time of changes made in the cluster before ``begun`` counts as unknown."""

    def __init__(self, cache: Cache, begun: datetime = _EVER) -> None:
        self.cache = cache
        self.changes = PendingChanges()
        """Changes of Services and EndpointSlices that no farm has yet."""
        self._begun = begun
        self._kinds = {
            SERVICES: _Kind(
                cache.services, lambda raw: ServiceKey(*_name(raw)), self._put_service, cache.remove_service
            ),
            ENDPOINT_SLICES: _Kind(cache.slices, _name, self._put_slice, cache.remove_slice),
            PODS: _Kind(
                cache.pods, pod_key, lambda kept: cache.put_pod(pod_key(kept), parse_pod(kept)), cache.remove_pod
            ),
            FARMS: _Kind(cache.farms, lambda raw: FarmKey(*_name(raw)), self._put_farm, cache.remove_farm),
            NFTLB_NODES: _Kind(
                cache.nodes,
                lambda raw: raw["metadata"]["name"],
                lambda raw: cache.put_node(parse_node(raw)),
                cache.remove_node,
            ),
        }

    def put(self, resource: Resource, raw: JsonObject) -> Dirty:
        """Put in an object from a watch, a list or an answer; of a Pod what ``model.pods.slim`` leaves of it."""
        kind = self._kinds[resource]
        if not self.is_news(resource, raw):
            return Dirty()
        dirty = kind.put(raw)
        # The trigger time of a slice is that of its last change.
        self._note(resource, dirty, self._made_at(raw) if resource is ENDPOINT_SLICES else None)
        return dirty

    def remove(self, resource: Resource, raw: JsonObject) -> Dirty:
        """Remove an object whose deletion a watch delivered."""
        dirty = self.forget(resource, self.key(resource, raw), _version(raw))
        self._note(resource, dirty, None)
        return dirty

    def forget(self, resource: Resource, key: ObjectKey, version: int) -> Dirty:
        """Remove an object that is known to be gone at a resourceVersion."""
        return self._kinds[resource].remove(key, version)

    def set_progress(self, key: FarmKey, *, accepted: bool, unfinished_since: int | None) -> None:
        """Note if a farm is accepted, and the resourceVersion that some node has not reached, or None."""
        (self.cache.refused.discard if accepted else self.cache.refused.add)(key)
        if unfinished_since is not None:
            self.cache.unfinished.add(key, unfinished_since)
        else:
            self.cache.unfinished.discard(key)

    def key(self, resource: Resource, raw: JsonObject) -> ObjectKey:
        """Return the key of an object in its kind's table."""
        return self._kinds[resource].key(raw)

    def is_news(self, resource: Resource, raw: JsonObject) -> bool:
        """Return True if an object is newer than its cached state."""
        return self._kinds[resource].table.is_news(self.key(resource, raw), _version(raw))

    def unlisted(self, resource: Resource, listed: set[ObjectKey], version: int) -> list[ObjectKey]:
        """Return the cached keys that a list made at ``version`` would have, and has not."""
        return [key for key, known in self._kinds[resource].table.versions() if known <= version and key not in listed]

    def _note(self, resource: Resource, dirty: Dirty, made_at: datetime | None) -> None:
        if resource is SERVICES:
            metrics.SERVICE_CHANGES.inc()
            self.changes.note(dirty.services, PendingChange(services=1))
        elif resource is ENDPOINT_SLICES:
            metrics.ENDPOINT_SLICE_CHANGES.inc()
            self.changes.note(dirty.services, PendingChange(slices=1, made_at=made_at))

    def _made_at(self, raw: JsonObject) -> datetime | None:
        time = timestamps.parse((raw["metadata"].get("annotations") or {}).get(names.ANNOTATION_TRIGGER_TIME))
        return time if time is not None and time > self._begun else None

    def _put_service(self, raw: JsonObject) -> Dirty:
        metadata = raw["metadata"]
        # Only what is read is kept: `kubectl apply` leaves a copy of the whole object in an annotation.
        slim = {
            **metadata,
            "annotations": {
                key: value
                for key, value in (metadata.get("annotations") or {}).items()
                if key.startswith(names.ANNOTATION_PREFIX)
            },
            "labels": {
                label: ""
                for label in (names.LABEL_PROXY_NAME, names.LABEL_HEADLESS)
                if label in (metadata.get("labels") or {})
            },
            "ownerReferences": (),
        }
        status = {"loadBalancer": (raw.get("status") or {}).get("loadBalancer") or {}}
        service = Service.model_validate({"metadata": slim, "spec": raw.get("spec") or {}, "status": status})
        return self.cache.put_service(service)

    def _put_slice(self, raw: JsonObject) -> Dirty:
        return self.cache.put_slice(_name(raw), CachedSlice(_version(raw), parse_slice(raw)))

    def _put_farm(self, raw: JsonObject) -> Dirty:
        return self.cache.put_farm(*parse_farm(raw, self.cache.farms.get(FarmKey(*_name(raw)))))


def _name(raw: JsonObject) -> tuple[str, str]:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _version(raw: JsonObject) -> int:
    return int(raw["metadata"]["resourceVersion"])
