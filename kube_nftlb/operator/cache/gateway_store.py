"""The objects of Gateway API that the operator has seen, and what of them changed. No I/O."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

import structlog
from pydantic import ValidationError

from kube_nftlb.api.base import ForeignModel, Metadata, first_error
from kube_nftlb.api.gateway.gateway import Gateway, GatewayClass, ListenerSet
from kube_nftlb.api.gateway.route import ReferenceGrant, Route, RouteKindName
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.fair_queue import FairQueue
from kube_nftlb.kube.resources import (
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    TCP_ROUTES,
    UDP_ROUTES,
    JsonObject,
    Resource,
)
from kube_nftlb.operator.cache.versioned_map import VersionedMap
from kube_nftlb.operator.gateway.changes import Changes
from kube_nftlb.operator.gateway.objects import AddressState, FarmState, GatewayObjects, ObjectKey, Options, RouteKey

KINDS: Final = (GATEWAY_CLASSES, GATEWAYS, LISTENER_SETS, TCP_ROUTES, UDP_ROUTES, REFERENCE_GRANTS)
"""The kinds that are watched."""

_MODELS: Final[Mapping[Resource, type[Any]]] = {
    GATEWAY_CLASSES: GatewayClass,
    GATEWAYS: Gateway,
    LISTENER_SETS: ListenerSet,
    TCP_ROUTES: Route,
    UDP_ROUTES: Route,
    REFERENCE_GRANTS: ReferenceGrant,
}
_ROUTE_KINDS: Final[Mapping[Resource, RouteKindName]] = {TCP_ROUTES: "TCPRoute", UDP_ROUTES: "UDPRoute"}
_FIELDS: Final = tuple(each.name for each in fields(Changes))

_log = structlog.get_logger()


class Ref(NamedTuple):
    """The identity of an object of any of these kinds; the namespace of a GatewayClass is empty."""

    resource: Resource
    namespace: str
    name: str


class Written(NamedTuple):
    """What a write of a status depends on."""

    uid: str
    version: int
    status: JsonObject


class _Services(Mapping[tuple[str, str], Service]):
    """The Services of the cache."""

    def __init__(self, services: VersionedMap[ServiceKey, Service]) -> None:
        self._services = services

    def __getitem__(self, key: tuple[str, str]) -> Service:
        if (service := self._services.get(ServiceKey(*key))) is None:
            raise KeyError(key)
        return service

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._services.keys())

    def __len__(self) -> int:
        return len(self._services.keys())


class GatewayStore:
    """All of these objects; ``objects`` is what decisions are made from."""

    def __init__(
        self,
        services: VersionedMap[ServiceKey, Service],
        namespaces: Mapping[str, Mapping[str, str]],
        options: Options,
    ) -> None:
        self._classes: dict[str, GatewayClass] = {}
        self._gateways: dict[ObjectKey, Gateway] = {}
        self._listener_sets: dict[ObjectKey, ListenerSet] = {}
        self._routes: dict[RouteKey, Route] = {}
        self._grants: dict[ObjectKey, ReferenceGrant] = {}
        self.farms: dict[ObjectKey, FarmState] = {}
        self.addresses: dict[ObjectKey, AddressState] = {}
        self._services = _Services(services)
        self._namespaces = namespaces
        self._options = options
        self.versions: frozenset[str] = frozenset()
        """gateway.networking.k8s.io/bundle-version of the CustomResourceDefinitions."""
        self.routability = False
        """The CustomResourceDefinition of Gateways has the routability of addresses."""
        self.written: dict[Ref, Written] = {}
        self._pending: dict[str, FairQueue[Any]] = {}
        """What has changed since somebody follows it: a replica that only stands by decides about all once it leads."""
        self._tables: Mapping[Resource, dict[Any, Any]] = {
            GATEWAY_CLASSES: self._classes,
            GATEWAYS: self._gateways,
            LISTENER_SETS: self._listener_sets,
            TCP_ROUTES: self._routes,
            UDP_ROUTES: self._routes,
            REFERENCE_GRANTS: self._grants,
        }

    @property
    def objects(self) -> GatewayObjects:
        """What decisions are made from; its mappings follow what is put in."""
        return GatewayObjects(
            self._classes,
            self._gateways,
            self._listener_sets,
            self._routes,
            self._grants,
            self._namespaces,
            self._services,
            self.addresses,
            self.farms,
            self.versions,
            self.routability,
            self._options,
        )

    def put(self, resource: Resource, raw: JsonObject) -> None:
        """Put in an object from a watch or a list, unless a newer state of it is known, or it cannot be parsed."""
        metadata, ref = raw["metadata"], ref_of(resource, raw)
        version = int(metadata["resourceVersion"])
        known = self.written.get(ref)
        if known is not None and known.uid == metadata["uid"] and known.version >= version:
            return
        status = raw.get("status")
        self.written[ref] = Written(metadata["uid"], version, status if isinstance(status, dict) else {})
        try:
            new = _MODELS[resource].model_validate(raw)
        except Exception as error:
            # The API server validates it, too, unless its definition is another one. It must not stop all others.
            why = first_error(error) if isinstance(error, ValidationError) else repr(error)
            _log.warning("cannot parse object, ignored", kind=resource.kind, name=ref.name, error=why)
            if known is None or known.uid != metadata["uid"] or resource == REFERENCE_GRANTS:
                self._forget(ref)
            # Else what was known stays: clients lose nothing. A grant may be about to take a permission back.
            return
        key, table = _key(ref), self._tables[resource]
        before = table.get(key)
        table[key] = new
        if before is None or _relevant(before) != _relevant(new):
            self.note(_field(resource), key)

    def put_answer(self, resource: Resource, raw: JsonObject) -> None:
        """Put in the answer to a write, unless the object is gone: an answer may come after the news of that."""
        if self.uid(ref_of(resource, raw)) == raw["metadata"]["uid"]:
            self.put(resource, raw)

    def remove(self, resource: Resource, raw: JsonObject) -> None:
        """Remove an object."""
        self._remove(ref_of(resource, raw))

    def replace(self, resource: Resource, items: Iterable[JsonObject]) -> None:
        """Put in all objects of a kind; others of the kind are gone."""
        listed: set[Ref] = set()
        for raw in items:
            listed.add(ref_of(resource, raw))
            self.put(resource, raw)
        self.remove_unlisted(resource, listed)

    def remove_unlisted(self, resource: Resource, listed: Container[Ref], version: float = math.inf) -> None:
        """Remove the objects of a kind that a list of this resourceVersion would have, and has not."""
        known = [ref for ref, each in self.written.items() if ref.resource == resource and each.version <= version]
        for ref in known:
            if ref not in listed:
                self._remove(ref)

    def note(self, field: str, key: Any) -> None:
        """Note a change of something that decisions depend on."""
        if field in self._pending:
            self._pending[field].add(key)

    def follow(self) -> None:
        """Forget what has changed: from now on ``take`` returns it."""
        self._pending = {name: FairQueue(group=_namespace) for name in _FIELDS}

    def take(self, most: int) -> Changes | None:
        """Return what has changed, up to ``most`` of each kind, and forget it; None if nothing has.

        Namespaces take turns.
        """
        taken = {name: frozenset(pending.take(most)) for name, pending in self._pending.items()}
        return Changes(**taken) if any(taken.values()) else None

    def uid(self, ref: Ref) -> str | None:
        """Return the uid of an object, None if it does not exist."""
        found = self.written.get(ref)
        return found.uid if found is not None else None

    def _remove(self, ref: Ref) -> None:
        self.written.pop(ref, None)
        self._forget(ref)

    def _forget(self, ref: Ref) -> None:
        key = _key(ref)
        if self._tables[ref.resource].pop(key, None) is not None:
            self.note(_field(ref.resource), key)


def ref_of(resource: Resource, raw: JsonObject) -> Ref:
    """Return the identity of an object of a kind."""
    metadata = raw["metadata"]
    return Ref(resource, metadata.get("namespace", ""), metadata["name"])


def ref_of_route(key: RouteKey) -> Ref:
    """Return the identity of a route as an object."""
    return Ref(TCP_ROUTES if key.kind == "TCPRoute" else UDP_ROUTES, key.namespace, key.name)


def _namespace(key: Any) -> str:
    """Return the namespace of a key of ``Changes``; of what is in none, its name."""
    return str(getattr(key, "namespace", key))


def _key(ref: Ref) -> Any:
    if ref.resource == GATEWAY_CLASSES:
        return ref.name
    if (kind := _ROUTE_KINDS.get(ref.resource)) is not None:
        return RouteKey(kind, ref.namespace, ref.name)
    return ObjectKey(ref.namespace, ref.name)


def _field(resource: Resource) -> str:
    named = {
        GATEWAY_CLASSES: "classes",
        GATEWAYS: "gateways",
        LISTENER_SETS: "listener_sets",
        REFERENCE_GRANTS: "grants",
    }
    return named.get(resource, "routes")


def _relevant(found: ForeignModel) -> tuple[Any, ...]:
    """Return what decisions may depend on: not what changes with each status."""
    metadata: Metadata = found.metadata  # type: ignore[attr-defined]
    spec = found.spec  # type: ignore[attr-defined]
    return metadata.uid, metadata.generation, metadata.labels, metadata.annotations, spec
