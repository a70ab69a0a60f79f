"""Parse raw objects, put into the cache what is news, and return what each change makes out of date.

Informers, lists and answers to the operator's own writes all come through here. No I/O.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pydantic import ValidationError

from kube_nftlb import metrics, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.node import ips_of
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.index import SliceKey
from kube_nftlb.endpointslices.slices import ServiceKey, parse_slice
from kube_nftlb.kube.resource_versions import check_listed
from kube_nftlb.kube.resources import (
    ENDPOINT_SLICES,
    FARMS,
    NFTLB_NODES,
    NODES,
    PODS,
    POLICIES,
    SERVICE_CIDRS,
    SERVICES,
    JsonObject,
    Resource,
)
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_changes import FarmChanges
from kube_nftlb.operator.cache.farm_record import parse_farm
from kube_nftlb.operator.cache.node_changes import NodeChanges
from kube_nftlb.operator.cache.node_record import parse_core_node, parse_node
from kube_nftlb.operator.cache.policy_record import parse_policy
from kube_nftlb.operator.cache.pool_changes import PoolChanges
from kube_nftlb.operator.cache.reserved import ranges_of
from kube_nftlb.operator.cache.service_changes import ServiceChanges
from kube_nftlb.operator.cache.versioned_map import VersionedMap
from kube_nftlb.operator.farms.external_addresses import ADDRESSES_READ_MAX, SOURCE_RANGES_READ_MAX
from kube_nftlb.operator.model.gated_pods import parse_gated_pod
from kube_nftlb.operator.model.pods import parse_pod, pod_key


class PendingChanges:
    """Counts changes by Service, from ``note`` to ``done``. What is noted after ``begin`` waits for the next one."""

    def __init__(self) -> None:
        self._waiting: Counter[ServiceKey] = Counter()
        self._in_work: Counter[ServiceKey] = Counter()

    def note(self, keys: Iterable[ServiceKey]) -> None:
        """Add a change to each of these Services."""
        self._waiting.update(keys)

    def begin(self, key: ServiceKey) -> None:
        """Start work on a Service, with all of its changes that are not done."""
        if count := self._waiting.pop(key, 0):
            self._in_work[key] += count

    def done(self, key: ServiceKey) -> None:
        """Drop the changes of a Service that work was begun on: its farms have them."""
        self._in_work.pop(key, None)

    def forget(self) -> None:
        """Drop everything, before all Services are reconciled anyway."""
        self._waiting.clear()
        self._in_work.clear()

    def pending(self) -> int:
        """Return the number of all changes that are not done."""
        return self._waiting.total() + self._in_work.total()


ObjectKey = Any
"""The key of an object in its kind's table; each kind has its own type."""


class _Kind(NamedTuple):
    table: VersionedMap[Any, Any]
    key: Callable[[JsonObject], ObjectKey]
    put: Callable[[JsonObject], Affected]
    remove: Callable[[ObjectKey, int], Affected]


class Ingest:
    """Changes a cache."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.changes = PendingChanges()
        """Changes of Services that no farm has yet."""
        self._unreadable: dict[tuple[Resource, ObjectKey], int] = {}
        """The resourceVersions of objects that cannot be parsed. What was known of them before stays."""
        self.pools = PoolChanges(cache, cache.addresses) if cache.addresses is not None else None
        """None unless Services get addresses from pools."""
        self.services = services = ServiceChanges(cache)
        self._farms = farms = FarmChanges(cache)
        self.nodes = nodes = NodeChanges(cache)
        self._kinds = {
            SERVICES: _Kind(cache.services, lambda raw: ServiceKey(*_name(raw)), self._put_service, services.remove),
            ENDPOINT_SLICES: _Kind(cache.slices.versions, _name, self._put_slice, self._remove_slice),
            PODS: _Kind(
                cache.pods, pod_key, lambda raw: services.put_pod(pod_key(raw), parse_pod(raw)), services.remove_pod
            ),
            FARMS: _Kind(cache.farms, lambda raw: FarmKey(*_name(raw)), self._put_farm, farms.remove),
            POLICIES: _Kind(
                cache.policies,
                PolicyKey.of,
                lambda raw: farms.put_policy(parse_policy(raw, cache.policies.get(PolicyKey.of(raw)))),
                farms.remove_policy,
            ),
            NODES: _Kind(cache.core_nodes, _bare_name, self._put_core_node, nodes.remove_core),
            SERVICE_CIDRS: _Kind(
                cache.service_cidrs, _bare_name, self._put_service_cidrs, services.remove_service_cidrs
            ),
            NFTLB_NODES: _Kind(cache.nodes, _bare_name, lambda raw: nodes.put(parse_node(raw)), nodes.remove),
        }

    def put(self, resource: Resource, raw: JsonObject) -> Affected:
        """Put in an object from a watch, a list or an answer; of a Pod what ``model.pods.slim`` leaves of it.

        Raises an exception of any kind if it cannot be parsed.
        """
        kind = self._kinds[resource]
        if not self.is_newer(resource, raw):
            return Affected()
        key = resource, self.key(resource, raw)
        try:
            affected = kind.put(raw)
        except Exception:
            self._unreadable[key] = _version(raw)
            raise
        self._unreadable.pop(key, None)
        return self._noted(resource, affected)

    def remove(self, resource: Resource, raw: JsonObject) -> Affected:
        """Remove an object whose deletion a watch delivered."""
        return self._noted(resource, self.forget(resource, self.key(resource, raw), _version(raw)))

    def forget(self, resource: Resource, key: ObjectKey, version: int) -> Affected:
        """Remove an object that is known to be gone at a resourceVersion."""
        affected = self._kinds[resource].remove(key, version)
        if self._unreadable.get((resource, key), version + 1) <= version:
            del self._unreadable[resource, key]
            if resource is SERVICES:
                if self.cache.addresses is not None:
                    self.cache.addresses.remove(key)
                affected |= Affected(services=frozenset({key}))
        return affected

    def is_unreadable(self, key: ServiceKey) -> bool:
        """Return True for a Service that cannot be parsed: its farms stay as they are."""
        return (SERVICES, key) in self._unreadable

    def put_gated_pod(self, raw: JsonObject) -> None:
        """Put in a Pod with the readiness gate: what ``model.gated_pods.slim`` leaves of it."""
        self.cache.gates.put(pod_key(raw), parse_gated_pod(raw))

    def key(self, resource: Resource, raw: JsonObject) -> ObjectKey:
        """Return the key of an object in its kind's table."""
        return self._kinds[resource].key(raw)

    def is_newer(self, resource: Resource, raw: JsonObject) -> bool:
        """Return True if an object is newer than its cached state, and not known to be unreadable."""
        key, version = self.key(resource, raw), _version(raw)
        if version <= self._unreadable.get((resource, key), -1):
            return False
        return self._kinds[resource].table.is_newer(key, version)

    def check_listed(self, resource: Resource, raw: JsonObject, listed_at: int) -> None:
        """Raise RestoredError if a list made at ``listed_at`` has an older state of an object than is known."""
        known = self._kinds[resource].table.newest(self.key(resource, raw))
        check_listed(f"{resource.plural} {raw['metadata']['name']}", _version(raw), known, listed_at)

    def unlisted(self, resource: Resource, listed: set[ObjectKey], version: int) -> list[ObjectKey]:
        """Return the cached keys that a list made at ``version`` would have, and has not."""
        known = dict(self._kinds[resource].table.versions())
        known |= {key: each for (of, key), each in self._unreadable.items() if of is resource}
        return [key for key, known_version in known.items() if known_version <= version and key not in listed]

    def _noted(self, resource: Resource, affected: Affected) -> Affected:
        if resource is SERVICES:
            metrics.SERVICE_CHANGES.inc()
            self.changes.note(affected.services)
        return affected

    def _put_service(self, raw: JsonObject) -> Affected:
        metadata = raw["metadata"]
        # Only what is read is kept: `kubectl apply` leaves a copy of the whole object in an annotation.
        slim = {
            **metadata,
            "annotations": {
                key: value
                for key, value in (metadata.get("annotations") or {}).items()
                if key.startswith(names.ANNOTATION_PREFIX)
            },
            "labels": self._labels(metadata.get("labels") or {}),
            "ownerReferences": (),
        }
        status = {
            "loadBalancer": truncated_load_balancer((raw.get("status") or {}).get("loadBalancer") or {}),
            "conditions": [
                each
                for each in (raw.get("status") or {}).get("conditions") or ()
                if each.get("type") in (names.SERVICE_CONDITION, names.ADDRESS_CONDITION)
            ],
        }
        spec = truncated_spec(raw.get("spec") or {}, self.cache.budgets.limits.service_ports)
        try:
            service = Service.model_validate({"metadata": slim, "spec": spec, "status": status})
        except ValidationError:
            # Its addresses stay its own.
            known = {"metadata": slim, "spec": {"type": "LoadBalancer"}, "status": status}
            self.services.keep_addresses(ServiceKey(*_name(raw)), Service.model_validate(known))
            raise
        return self.services.put(service)

    def _labels(self, labels: dict[str, str]) -> dict[str, str]:
        # Pools select Services by any label.
        if self.cache.addresses is not None:
            return labels
        return {names.LABEL_PROXY_NAME: ""} if names.LABEL_PROXY_NAME in labels else {}

    def _put_core_node(self, raw: JsonObject) -> Affected:
        pod_cidrs = ranges_of((raw.get("spec") or {}).get("podCIDRs") or ())
        return self.nodes.put_core(raw["metadata"]["name"], parse_core_node(raw), ips_of(raw), pod_cidrs)

    def _put_service_cidrs(self, raw: JsonObject) -> Affected:
        cidrs = ranges_of((raw.get("spec") or {}).get("cidrs") or ())
        conditions = (raw.get("status") or {}).get("conditions") or ()
        # Without a condition it is in use: so does the API server judge it.
        ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "True") == "True"
        assignable = ready and "deletionTimestamp" not in raw["metadata"]
        return self.services.put_service_cidrs(raw["metadata"]["name"], _version(raw), cidrs, assignable=assignable)

    def _put_slice(self, raw: JsonObject) -> Affected:
        key, new = _name(raw), parse_slice(raw)
        return self._farms.put_slice(key, _version(raw), new) | self.services.put_api_slice(key, new)

    def put_slice_again(self, raw: JsonObject) -> Affected:
        """Put in an EndpointSlice that was cut, since its namespace had too many endpoints, and has room now."""
        return self._farms.put_slice_again(_name(raw), _version(raw), parse_slice(raw))

    def _remove_slice(self, key: SliceKey, version: int) -> Affected:
        affected = self._farms.remove_slice(key, version)
        is_gone = self.cache.slices.versions.get(key) is None
        return affected | self.services.put_api_slice(key, None) if is_gone else affected

    def _put_farm(self, raw: JsonObject) -> Affected:
        return self._farms.put(*parse_farm(raw, self.cache.farms.get(FarmKey(*_name(raw)))))


def _name(raw: JsonObject) -> tuple[str, str]:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _bare_name(raw: JsonObject) -> str:
    name: str = raw["metadata"]["name"]
    return name


def _version(raw: JsonObject) -> int:
    return int(raw["metadata"]["resourceVersion"])


def truncated_spec(spec: JsonObject, ports_max: int) -> JsonObject:
    """Truncate a Service's lists to one item past their limits: to validate a megabyte takes a second.

    The extra item marks the truncation.
    """
    limits = {
        "ports": ports_max,
        "externalIPs": ADDRESSES_READ_MAX,
        "loadBalancerSourceRanges": SOURCE_RANGES_READ_MAX,
    }
    return spec | {key: _truncated(spec[key], most) for key, most in limits.items() if key in spec}


def truncated_load_balancer(load_balancer: JsonObject) -> JsonObject:
    """Truncate status.loadBalancer of a Service, likewise."""
    return {"ingress": _truncated(load_balancer.get("ingress"), ADDRESSES_READ_MAX)}


def _truncated(value: Any, most: int) -> Any:
    return value[: most + 1] if isinstance(value, list) else value
