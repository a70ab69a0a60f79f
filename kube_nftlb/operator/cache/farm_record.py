"""Farms in the cache: what decisions need, without whole specs and statuses."""

import functools
import hashlib
import json
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from pydantic import ValidationError

from kube_nftlb import names
from kube_nftlb.api.base import Family, OwnerReference, first_error
from kube_nftlb.api.budgets import Rank, farm_rank, farm_size
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import ENDPOINTS_MAX, BackendsFrom, Farm, FarmStatus, Override
from kube_nftlb.api.values import AddressType
from kube_nftlb.endpointslices.backends import services
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.cache.sanitize import sanitized_spec
from kube_nftlb.operator.farms.ports import PortKey
from kube_nftlb.operator.farms.spec import count_backends, digest, digest_as_decided

Json = dict[str, Any]

_INVALID_SHOWN_MAX = 500
_DIGEST_SIZE = 8
_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "ownerReferences")
"""The metadata that the rank among farms follows from."""
_OVERRIDES_SHARED = 1 << 13
_OF_GARBAGE_COLLECTOR = ("foregroundDeletion", "orphan")


class SeenStatus(NamedTuple):
    """The status of a farm at the API server."""

    observed_generation: int
    resource_version: int
    digest: bytes
    """As ``status_digest`` makes it; empty without a status."""
    transitions: tuple[tuple[str, str, str], ...]
    """Type, status and lastTransitionTime of each condition."""
    ready: int
    total: int
    """The numbers of ready and of all backends."""
    programmed_nodes: int
    total_nodes: int
    problem: str
    """As ``problem_of`` returns it; empty for a farm that was not made of a route."""


class Owner(NamedTuple):
    """The controller of a farm."""

    name: str
    uid: str
    is_service: bool
    is_route: bool = False
    """It is a TCPRoute or UDPRoute."""


class Reference(NamedTuple):
    """The endpoints that a farm refers to."""

    services: tuple[ServiceKey, ...]
    """The Services that they are of, each once."""
    groups: tuple[BackendsFrom, ...]
    family: Family
    protocol: str
    most: int
    """Maximum number of endpoints that the farm's engine can have."""
    priority: int
    """The farm's: an endpoint with a higher number is on standby."""

    @property
    def gated_ips(self) -> tuple[str, ...]:
        """The IPs of gated Pods that it lists."""
        return tuple(ip for each in self.groups for ip in each.gated_ips)


class FarmRecord(NamedTuple):
    """A farm at the API server."""

    key: FarmKey
    uid: str
    resource_version: int
    generation: int
    since: int
    """The resourceVersion at which this generation was first seen."""
    port: PortKey | None
    """The Service port it was made from; None for a farm that the operator did not make."""
    owner: Owner | None
    """The controller in its ownerReferences."""
    digest: bytes
    engine: str
    """The engine that serves it."""
    reference: Reference | None
    """The Services whose endpoints are its backends; None if these are written by hand."""
    ready: int
    total: int
    """The number of backends written by hand that are ready and in the state up, and that of all."""
    invalid: str
    """Reason the spec is invalid; ``""`` if it is valid."""
    terminating: bool
    policies: frozenset[str]
    """The names of the policies that it refers to."""
    rank: Rank
    size: int
    """Number of farms that it counts as in the budget of its namespace."""
    listeners_json: bytes
    """The fields that its listeners follow from, as JSON; empty if it is invalid."""
    status: SeenStatus
    balanced: tuple[str, ...] = ()
    """Its load balancer addresses, which nodes may announce."""
    cluster_ips: tuple[str, ...] = ()
    """Its cluster IPs, if it was made of a route."""
    made_of_route: bool = False
    """The operator made it of a route of Gateway API, by its label and its controller."""
    digest_as_decided: bytes = b""
    """Of a farm of a route: what it was decided to be."""
    labelled_as_of_route: bool = False
    """It has the labels that the operator gives to farms of routes, whoever controls it."""
    held_by: tuple[str, ...] = ()
    """The finalizers that keep it from going, but for those of Kubernetes' own garbage collector."""
    is_tracked: bool = False
    """The API server keeps who wrote which of its fields, which makes each write dearer."""
    state: str = "up"
    is_local: bool = False
    """It has the mode local, which needs no backends."""

    def groups_of(self, service: ServiceKey) -> tuple[BackendsFrom, ...]:
        """Return the groups that list the Pods of a Service: all of its own farm, of others those that refer to it."""
        groups = self.reference.groups if self.reference is not None else ()
        if self.port is not None:
            return groups
        return tuple(each for each in groups if (each.namespace or self.key.namespace, each.service) == service)

    @property
    def is_ours_for_route(self) -> bool:
        """True if the operator keeps or deletes it as a farm of a route, also one that its route has orphaned."""
        return self.made_of_route or self.labelled_as_of_route

    @property
    def made_as(self) -> tuple[object, ...]:
        """Everything that decides if the farm has to be written again."""
        return self.uid, self.port, self.owner, self.digest, self.terminating

    def farm_with_listeners(self) -> Farm:
        """Return the farm for the index of listeners from ``listeners_json``."""
        return Farm.model_validate_json(self.listeners_json)

    @property
    def owner_uid(self) -> str:
        """The uid of its controller; ``""`` without one."""
        return self.owner.uid if self.owner is not None else ""

    @property
    def is_forged(self) -> bool:
        """True if its controller is a Service or route, but it lacks the labels of a farm that the operator made."""
        if self.port is not None or self.made_of_route or self.owner is None:
            return False
        return self.owner.is_service or self.owner.is_route


def status_digest(status: FarmStatus) -> bytes:
    """Return a digest of a status: eight bytes for each field."""
    dumped = status.model_dump(mode="json")
    return b"".join(
        hashlib.blake2b(json.dumps(dumped[name], sort_keys=True).encode(), digest_size=_DIGEST_SIZE).digest()
        for name in FarmStatus.model_fields
    )


def changed_fields(before: bytes, after: bytes) -> tuple[str, ...]:
    """Return the fields in which two statuses differ, by their digests; all if there was none before."""
    return tuple(
        name
        for number, name in enumerate(FarmStatus.model_fields)
        if before[(at := number * _DIGEST_SIZE) : at + _DIGEST_SIZE] != after[at : at + _DIGEST_SIZE]
    )


def problem_of(status: FarmStatus) -> str:
    """Return why a farm is not served as it should be, by its status: a message; empty: it is, or will be."""
    return next(
        (
            each.message
            for each in status.conditions
            if (each.type, each.status) == ("Accepted", "False") or each.reason in ("AddressConflict", "Failed")
        ),
        "",
    )


def parse_farm(raw: Json, known: FarmRecord | None) -> tuple[FarmRecord, Farm | None]:
    """Return a farm's record, and the farm for the index of listeners; None if its spec is invalid.

    ``known`` is the record of an earlier state, which says since when this generation exists.
    """
    metadata = raw["metadata"]
    spec = sanitized_spec(raw.get("spec"))
    key = FarmKey(metadata["namespace"], metadata["name"])
    version, generation = int(metadata["resourceVersion"]), metadata.get("generation", 0)
    labels = metadata.get("labels") or {}
    port, owner = _port_of(key, labels), _owner(metadata.get("ownerReferences") or ())
    made_of_route = port is None and owner is not None and owner.is_route and _is_ours(labels)
    status = _seen_status(raw.get("status"), with_problem=made_of_route)
    farm, invalid = _farm(raw, spec, made_by_us=port is not None)
    if known is not None and known.uid == metadata["uid"] and known.generation == generation:
        since = known.since
    elif status.observed_generation == generation and status.resource_version:
        # Of another cluster, from which it was restored, it may be one that this one reaches in years.
        since = min(status.resource_version, version)
    else:
        since = version
    ready, total = count_backends(spec)
    record = FarmRecord(
        key=key,
        uid=metadata["uid"],
        resource_version=version,
        generation=generation,
        since=since,
        port=port,
        owner=owner,
        digest=digest(spec) if port is not None or made_of_route else b"",
        engine=sys.intern(str(spec.get("engine") or "nftlb")),
        reference=_reference(key, spec) if farm is None or not farm.trespass else None,
        ready=ready,
        total=total,
        invalid=invalid,
        terminating="deletionTimestamp" in metadata,
        policies=frozenset(
            name for part in (spec, *(spec.get("addresses") or ())) for name in part.get("policies") or ()
        ),
        rank=farm_rank(raw),
        size=farm_size(raw),
        listeners_json=_listeners_json(raw, spec) if farm is not None else b"",
        status=status,
        balanced=_ips(spec, "LoadBalancer"),
        cluster_ips=_ips(spec, "ClusterIP") if made_of_route else (),
        made_of_route=made_of_route,
        digest_as_decided=digest_as_decided(spec) if made_of_route else b"",
        labelled_as_of_route=port is None and _is_ours(labels) and names.LABEL_ROUTE in labels,
        is_tracked=any(metadata.get("managedFields") or ()),
        state=sys.intern(str(spec.get("state") or "up")),
        is_local=spec.get("mode") == "local",
        held_by=tuple(each for each in metadata.get("finalizers") or () if each not in _OF_GARBAGE_COLLECTOR),
    )
    return record, farm


def _ips(spec: Json, kind: AddressType) -> tuple[str, ...]:
    return tuple(each.get("ip") or "" for each in spec.get("addresses") or () if each.get("type") == kind)


def _listeners_json(raw: Json, spec: Json) -> bytes:
    metadata = {key: raw["metadata"].get(key) for key in _METADATA if key in raw["metadata"]}
    addresses = [
        {key: address[key] for key in ("type", "ip", "ports") if key in address} for address in spec["addresses"]
    ]
    fields = {key: spec[key] for key in ("family", "protocol", "serviceCreationTimestamp") if key in spec}
    return json.dumps({"metadata": metadata, "spec": {**fields, "addresses": addresses}}).encode()


def _reference(key: FarmKey, spec: Json) -> Reference | None:
    if not (raw := spec.get("backendsFrom")):
        return None
    try:
        groups = tuple(BackendsFrom.model_validate(each) for each in raw)
    except ValidationError:
        # Edited; what the operator wrote is about to be restored, and other farms are invalid.
        return None
    family: Family = "ipv6" if spec.get("family") == "ipv6" else "ipv4"
    groups = tuple(
        each.model_copy(update={"overrides": tuple(map(_shared, each.overrides))}) if each.overrides else each
        for each in groups
    )
    of = services(groups, key.namespace)
    most = ENDPOINTS_MAX["nftables" if spec.get("engine") == "nftables" else "nftlb"]
    return Reference(of, groups, family, str(spec.get("protocol", "TCP")), most, int(spec.get("priority") or 1))


@functools.lru_cache(_OVERRIDES_SHARED)
def _shared(override: Override) -> Override:
    """Return an override once: each of a thousand farms of a Service has the same thousand."""
    return override


def _owner(references: Iterable[Json]) -> Owner | None:
    for each in references:
        reference = OwnerReference.model_validate(each)
        if reference.controller:
            return Owner(reference.name, reference.uid, reference.controls_as_service, reference.controls_as_route)
    return None


def _is_ours(labels: dict[str, str]) -> bool:
    return labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY_OPERATOR


def _port_of(key: FarmKey, labels: dict[str, str]) -> PortKey | None:
    if not _is_ours(labels):
        return None
    service, port = labels.get(names.LABEL_SERVICE), labels.get(names.LABEL_SERVICE_PORT)
    families: dict[str, Family] = {"ipv4": "ipv4", "ipv6": "ipv6"}
    family = families.get(labels.get(names.LABEL_FAMILY, ""))
    if not service or port is None or family is None:
        return None
    return PortKey(key.namespace, service, port, family, external=labels.get(names.LABEL_TRAFFIC) == "external")


def _farm(raw: Json, spec: Json, *, made_by_us: bool) -> tuple[Farm | None, str]:
    try:
        if made_by_us:
            # Its backends were valid when it was built, and edits are undone: only its listeners matter.
            fields = {key: spec[key] for key in ("family", "protocol", "addresses")}
            fields["serviceCreationTimestamp"] = spec.get("serviceCreationTimestamp")
            return Farm.model_validate({"metadata": raw["metadata"], "spec": fields}), ""
        farm = Farm.model_validate({"metadata": raw["metadata"], "spec": raw.get("spec") or {}})
    except ValidationError as error:
        return None, first_error(error)[:_INVALID_SHOWN_MAX]
    except KeyError as error:
        return None, f"{error.args[0]} is missing"
    # Agents serve the rest of one that trespasses: it has its listeners.
    return farm, farm.trespass


def _seen_status(raw: Json | None, *, with_problem: bool) -> SeenStatus:
    try:
        status = FarmStatus.model_validate(raw or {})
    except ValidationError:
        # Of another version: it will be rewritten.
        status = FarmStatus()
    version = status.resource_version
    return SeenStatus(
        status.observed_generation,
        int(version) if version.isdecimal() else 0,
        status_digest(status) if raw else b"",
        tuple((c.type, c.status, c.last_transition_time) for c in status.conditions),
        status.ready_backends,
        status.total_backends,
        status.programmed_nodes,
        status.total_nodes,
        problem_of(status) if with_problem else "",
    )
