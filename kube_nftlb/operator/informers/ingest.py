"""From raw objects of the four kinds to the store: parse what is news, put it in, mark what it touches."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kube_nftlb import metrics, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, SERVICES, JsonObject, Resource
from kube_nftlb.operator.cache.records import parse_farm, parse_node
from kube_nftlb.operator.cache.slices import ServiceKey, parse_slice
from kube_nftlb.operator.cache.store import Dirty, Store, StoredSlice
from kube_nftlb.operator.sync.pending_changes import Change

BY_KOPF = (SERVICES,)
"""What kopf watches: what the operator is there for."""

FOLLOWED = (ENDPOINT_SLICES, FARMS, NFTLB_NODES)
"""What the ``reflector`` follows: what belongs to a Service, what the operator writes itself, what agents report."""

KINDS = (*BY_KOPF, *FOLLOWED)
"""All that the operator lists and watches, but for the Pods."""

ObjectKey = Any
"""The key of an object in its kind's table; each kind has its own."""


_EVER = datetime.min.replace(tzinfo=UTC)


class _Kind(NamedTuple):
    key: Callable[[JsonObject], ObjectKey]
    is_news: Callable[[ObjectKey, int], bool]
    put: Callable[[JsonObject], Dirty]
    remove: Callable[[ObjectKey, int], Dirty]
    versions: Callable[[], Iterable[tuple[ObjectKey, int]]]


class Intake:
    """The way into a store. Changes that were made in the cluster before ``begun`` count as of unknown time."""

    def __init__(self, store: Store, begun: datetime = _EVER) -> None:
        self._store = store
        self._begun = begun
        self._kinds = {
            SERVICES: _Kind(
                lambda raw: ServiceKey(*_name(raw)),
                store.services.is_news,
                self._put_service,
                store.remove_service,
                lambda: ((key, int(service.metadata.resource_version)) for key, service in store.services.items()),
            ),
            ENDPOINT_SLICES: _Kind(
                _name,
                store.slices.is_news,
                self._put_slice,
                store.remove_slice,
                lambda: ((key, stored.resource_version) for key, stored in store.slices.items()),
            ),
            FARMS: _Kind(
                lambda raw: FarmKey(*_name(raw)),
                store.farms.is_news,
                self._put_farm,
                store.remove_farm,
                lambda: ((key, farm.resource_version) for key, farm in store.farms.items()),
            ),
            NFTLB_NODES: _Kind(
                lambda raw: raw["metadata"]["name"],
                store.nodes.is_news,
                lambda raw: store.put_node(parse_node(raw)),
                store.remove_node,
                lambda: ((key, node.resource_version) for key, node in store.nodes.items()),
            ),
        }

    def take(self, resource: Resource, event_type: str | None, raw: JsonObject) -> Dirty:
        """Take in an object from a watch (ADDED, MODIFIED, DELETED), from a list (None) or from an answer (None)."""
        kind, version = self._kinds[resource], _version(raw)
        if event_type == "DELETED":
            dirty = kind.remove(kind.key(raw), version)
        elif kind.is_news(kind.key(raw), version):
            dirty = kind.put(raw)
        else:
            return Dirty()
        if resource is SERVICES:
            metrics.SERVICE_CHANGES.inc()
            self._store.changes.note(dirty.services, Change(services=1))
        elif resource is ENDPOINT_SLICES:
            metrics.ENDPOINT_SLICE_CHANGES.inc()
            # A slice that goes still tells of its last update, which is not what is to be measured.
            made_at = self._made_at(raw) if event_type != "DELETED" else None
            self._store.changes.note(dirty.services, Change(slices=1, made_at=made_at))
        return dirty

    def _made_at(self, raw: JsonObject) -> datetime | None:
        time = timestamps.parse((raw["metadata"].get("annotations") or {}).get(names.ANNOTATION_TRIGGER_TIME))
        return time if time is not None and time > self._begun else None

    def key(self, resource: Resource, raw: JsonObject) -> ObjectKey:
        """The key of an object in its kind's table."""
        return self._kinds[resource].key(raw)

    def is_news(self, resource: Resource, raw: JsonObject) -> bool:
        """Whether an object is newer than what is known of it."""
        return self._kinds[resource].is_news(self.key(resource, raw), _version(raw))

    def unlisted(self, resource: Resource, listed: set[ObjectKey], version: int) -> list[ObjectKey]:
        """What is known of a kind, is not newer than a list made at a resourceVersion, and yet is not in it."""
        return [key for key, known in self._kinds[resource].versions() if known <= version and key not in listed]

    def remove(self, resource: Resource, key: ObjectKey, version: int) -> Dirty:
        """Take in that an object was gone at a resourceVersion."""
        return self._kinds[resource].remove(key, version)

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
        return self._store.put_service(service)

    def _put_slice(self, raw: JsonObject) -> Dirty:
        return self._store.put_slice(_name(raw), StoredSlice(_version(raw), parse_slice(raw)))

    def _put_farm(self, raw: JsonObject) -> Dirty:
        return self._store.put_farm(*parse_farm(raw, self._store.farms.get(FarmKey(*_name(raw)))))


def _name(raw: JsonObject) -> tuple[str, str]:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _version(raw: JsonObject) -> int:
    return int(raw["metadata"]["resourceVersion"])
