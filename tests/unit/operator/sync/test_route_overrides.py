"""What annotations of Pods say, in the farms of routes."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.environment import NumberRanges
from kube_nftlb.kube.resources import PODS, SERVICES
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.wanted import WantedFarm
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.model.pods import slim
from kube_nftlb.operator.sync.route_overrides import Farms, RouteOverrides
from tests.builders import raw_pod, raw_service

OLD, NEW = ObjectKey("default", "old"), ObjectKey("default", "new")


def wanted(key: ObjectKey, day: int) -> WantedFarm:
    group = {"service": "web", "port": "http", "weight": 1, "refuse": False, "keepPort": False, "overrides": []}
    spec = {"family": "ipv4", "protocol": "TCP", "mode": "snat", "engine": "nftlb", "backendsFrom": [group]}
    metadata = {"namespace": key.namespace, "name": key.name}
    return WantedFarm(metadata, spec, b"", ObjectKey("default", "edge"), datetime(2026, 1, day, tzinfo=UTC))


def counts(farms: Farms) -> dict[str, int | None]:
    return {
        key.name: len(farm.spec["backendsFrom"][0]["overrides"]) if farm is not None else None
        for key, farm in farms.items()
    }


@pytest.fixture
def overrides() -> RouteOverrides:
    """Those of a Service with 30 annotated Pods, in a namespace that may have 50."""
    ingest = Ingest(Cache(limits=NamespaceLimits(farms=1)))
    ingest.put(SERVICES, raw_service(selector={"app": "web"}))
    for number in range(30):
        kept = slim(raw_pod(f"web-{number}", annotations={"weight": "3"}))
        assert kept is not None
        ingest.put(PODS, {**kept, "labels": {"app": "web"}})
    return RouteOverrides(ingest.cache, Permissions())


def test_farms_of_older_routes_come_first_if_not_all_that_annotations_say_fits(overrides: RouteOverrides) -> None:
    assert counts(overrides.take({NEW: wanted(NEW, 2)})) == {"new": 30}
    assert counts(overrides.take({OLD: wanted(OLD, 1)})) == {"old": 30, "new": 0}
    assert counts(overrides.take({OLD: None})) == {"old": None, "new": 30}


def test_what_is_taken_as_all_leaves_nothing_of_others(overrides: RouteOverrides) -> None:
    overrides.take({OLD: wanted(OLD, 1)})
    assert counts(overrides.replace({NEW: wanted(NEW, 2)})) == {"old": None, "new": 30}
    assert counts(overrides.again([ServiceKey("default", "web")])) == {"new": 30}


def test_a_pod_in_two_groups_gets_its_mark_in_the_first() -> None:
    ingest = Ingest(Cache())
    for name in ("web", "canary"):
        ingest.put(SERVICES, raw_service(name, selector={"app": "web"}))
    kept = slim(raw_pod("web-0", annotations={"mark": "5", "weight": "3"}))
    assert kept is not None
    ingest.put(PODS, {**kept, "labels": {"app": "web"}})
    farm = wanted(OLD, 1)
    (group,) = farm.spec["backendsFrom"]
    both = replace(farm, spec={**farm.spec, "backendsFrom": [group, {**group, "service": "canary"}]})
    permissions = Permissions(marks=NumberRanges(((2, 4095),), "2-4095"))
    (found,) = RouteOverrides(ingest.cache, permissions).take({OLD: both}).values()
    assert found is not None
    assert [each["overrides"] for each in found.spec["backendsFrom"]] == [
        [{"pod": "web-0", "mark": 5, "weight": 3}],
        [{"pod": "web-0", "weight": 3}],
    ]
