"""The objects of Gateway API that the operator has seen."""

from collections.abc import Sized
from typing import Any

import pytest

from kube_nftlb.kube.resources import (
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    TCP_ROUTES,
    Resource,
)
from kube_nftlb.operator.cache.gateway_store import GatewayStore, Ref
from kube_nftlb.operator.cache.versioned_map import VersionedMap
from kube_nftlb.operator.gateway.objects import ObjectKey, Options


def test_changes_of_namespaces_take_turns() -> None:
    store = GatewayStore(VersionedMap(lambda _: 0), {}, Options())
    store.follow()
    crowd = [ObjectKey("crowd", f"gateway-{number}") for number in range(200)]
    for key in (*crowd[:100], ObjectKey("tenant", "edge"), *crowd[100:]):
        store.note("gateways", key)
    store.note("namespaces", "tenant")
    taken = store.take(3)
    assert taken is not None
    assert ObjectKey("tenant", "edge") in taken.gateways
    assert (len(taken.gateways), taken.namespaces) == (3, {"tenant"})
    rest = [each.gateways for _ in range(66) if (each := store.take(3)) is not None]
    assert frozenset().union(taken.gateways, *rest) == {*crowd, ObjectKey("tenant", "edge")}
    assert store.take(3) is None


def test_changes_are_not_remembered_before_somebody_follows_them() -> None:
    store = GatewayStore(VersionedMap(lambda _: 0), {}, Options())
    for number in range(100):
        store.note("namespaces", f"gone-{number}")
    assert store.take(3) is None
    store.follow()
    assert store.take(3) is None
    store.note("namespaces", "here")
    taken = store.take(3)
    assert taken is not None
    assert taken.namespaces == {"here"}


SPECS: dict[Resource, dict[str, Any]] = {
    GATEWAY_CLASSES: {"controllerName": "kube-nftlb.io/gateway"},
    GATEWAYS: {"gatewayClassName": "nftlb"},
    LISTENER_SETS: {"parentRef": {"name": "edge"}},
    TCP_ROUTES: {"parentRefs": [{"name": "edge"}]},
    REFERENCE_GRANTS: {"from": [], "to": []},
}


def raw(spec: Any, version: int, uid: str = "uid") -> dict[str, Any]:
    return {"metadata": {"namespace": "", "name": "x", "uid": uid, "resourceVersion": str(version)}, "spec": spec}


@pytest.mark.parametrize("resource", SPECS, ids=lambda each: each.kind)
def test_of_an_object_that_cannot_be_parsed_any_more_what_was_known_stays_but_no_grant(resource: Resource) -> None:
    store = GatewayStore(VersionedMap(lambda _: 0), {}, Options())
    store.follow()
    objects = store.objects
    known: list[Sized] = [objects.classes, objects.gateways, objects.listener_sets, objects.routes, objects.grants]
    store.put(resource, raw(SPECS[resource], 1))
    assert sum(map(len, known)) == 1
    assert store.take(9) is not None
    store.put(resource, raw("strange", 2))
    assert store.written[Ref(resource, "", "x")].version == 2
    assert sum(map(len, known)) == (resource != REFERENCE_GRANTS)
    assert (store.take(9) is None) == (resource != REFERENCE_GRANTS)
    store.put(resource, raw("strange", 3, "another"))
    assert sum(map(len, known)) == 0
