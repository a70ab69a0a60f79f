"""What annotations of Pods say, and which Pods wait for the readiness gate, in the farms of routes."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.environment import NumberRanges
from kube_nftlb.kube.resources import PODS, SERVICES
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.spec import digest, digest_as_decided
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.wanted import WantedFarm
from kube_nftlb.operator.model import gated_pods
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.model.pods import PodKey, slim
from kube_nftlb.operator.readiness.gated_ips import gated_ips
from kube_nftlb.operator.sync import route_pods
from kube_nftlb.operator.sync.route_pods import Farms, RoutePods
from tests.builders import raw_gated_pod, raw_pod, raw_service

OLD, NEW = ObjectKey("default", "old"), ObjectKey("default", "new")
WEB = ServiceKey("default", "web")


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


def wait(ingest: Ingest, name: str, **fields: Any) -> None:
    """Have a Pod wait for the readiness gate alone, or do what else the fields say."""
    kept = gated_pods.slim(raw_gated_pod(name, **fields))
    assert kept is not None
    ingest.put_gated_pod(kept)


def listed(farms: Farms) -> dict[str, list[list[str] | None]]:
    return {
        key.name: [group.get("gatedIPs") for group in farm.spec["backendsFrom"]]
        for key, farm in farms.items()
        if farm is not None
    }


@pytest.fixture
def overrides() -> RoutePods:
    """Those of a Service with 30 annotated Pods, in a namespace that may have 50."""
    ingest = Ingest(Cache(limits=NamespaceLimits(farms=1)))
    ingest.put(SERVICES, raw_service(selector={"app": "web"}))
    for number in range(30):
        kept = slim(raw_pod(f"web-{number}", annotations={"weight": "3"}))
        assert kept is not None
        ingest.put(PODS, {**kept, "labels": {"app": "web"}})
    return RoutePods(ingest.cache, Permissions())


def test_farms_of_older_routes_come_first_if_not_all_that_annotations_say_fits(overrides: RoutePods) -> None:
    assert counts(overrides.take({NEW: wanted(NEW, 2)})) == {"new": 30}
    assert counts(overrides.take({OLD: wanted(OLD, 1)})) == {"old": 30, "new": 0}
    assert counts(overrides.take({OLD: None})) == {"old": None, "new": 30}


def test_what_is_taken_as_all_leaves_nothing_of_others(overrides: RoutePods) -> None:
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
    (found,) = RoutePods(ingest.cache, permissions).take({OLD: both}).values()
    assert found is not None
    assert [each["overrides"] for each in found.spec["backendsFrom"]] == [
        [{"pod": "web-0", "mark": 5, "weight": 3}],
        [{"pod": "web-0", "weight": 3}],
    ]


@pytest.fixture
def ingest() -> Ingest:
    """That of a Service ``web``, of which no Pod waits yet."""
    ingest = Ingest(Cache())
    ingest.put(SERVICES, raw_service(selector={"app": "web"}))
    return ingest


def test_farms_list_the_pods_that_wait_for_their_gate_and_no_longer_those_that_do_not(ingest: Ingest) -> None:
    pods, farm = RoutePods(ingest.cache, Permissions()), wanted(OLD, 1)
    assert pods.take({OLD: farm}) == {OLD: farm}
    wait(ingest, "a", ip="10.244.0.2", version=5)
    wait(ingest, "b", ip="10.244.0.1", version=6)
    (listing,) = pods.again([WEB]).values()
    assert listing is not None
    assert listing.spec["backendsFrom"][0]["gatedIPs"] == ["10.244.0.1", "10.244.0.2"]
    assert listing.digest == digest(listing.spec) != farm.digest
    assert pods.replace({OLD: farm}) == {OLD: listing}, "all that is decided anew lists them, too"
    for name in ("a", "b"):
        ingest.cache.gates.remove(PodKey("default", name), 9)
    assert pods.again([WEB]) == {OLD: farm}


def test_a_farm_lists_the_pods_of_its_family_of_each_service(ingest: Ingest) -> None:
    ingest.put(SERVICES, raw_service("web", namespace="backends", selector={"app": "web"}))
    wait(ingest, "a", ip="10.244.0.1")
    wait(ingest, "b", ip="2001:db8::1")
    wait(ingest, "c", ip="10.244.0.3", namespace="backends")
    pods, farm = RoutePods(ingest.cache, Permissions()), wanted(OLD, 1)
    (group,) = farm.spec["backendsFrom"]
    refused = {**group, "service": "", "refuse": True}
    groups = [{**group, "namespace": "backends"}, group, refused, {**group, "service": "other"}, {**group, "port": "x"}]
    plain, ours = replace(farm, spec={**farm.spec, "backendsFrom": groups}), ["10.244.0.1"]
    assert listed(pods.take({OLD: plain})) == {"old": [["10.244.0.3"], ours, None, None, ours]}
    assert pods.again([ServiceKey("backends", "web")]).keys() == {OLD}
    (six,) = pods.take({OLD: replace(farm, spec={**farm.spec, "family": "ipv6"})}).values()
    assert six is not None
    assert six.spec["backendsFrom"][0]["gatedIPs"] == ["2001:db8::1"]


def test_a_farm_whose_overrides_do_not_fit_lists_pods_all_the_same(overrides: RoutePods) -> None:
    ingest = Ingest(vars(overrides)["_cache"])
    overrides.take({OLD: wanted(OLD, 1)})
    wait(ingest, "a", ip="10.244.0.1")
    farms = overrides.take({NEW: wanted(NEW, 2)})
    assert (counts(farms), listed(farms)) == ({"new": 0}, {"new": [["10.244.0.1"]]})


def test_the_pods_of_a_service_are_looked_for_once_for_all_farms(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Mock(wraps=gated_ips)
    monkeypatch.setattr(route_pods, "gated_ips", looked)
    wait(ingest, "a")
    pods = RoutePods(ingest.cache, Permissions())
    pods.take({key: wanted(key, 1) for key in (OLD, NEW)})
    looked.assert_called_once_with(ingest.cache, WEB)


def test_what_was_decided_has_one_digest_whatever_pods_add() -> None:
    spec = wanted(OLD, 1).spec
    (group,) = spec["backendsFrom"]
    added = {**group, "overrides": [{"pod": "web-0", "weight": 3}], "gatedIPs": ["10.244.0.1"]}
    assert digest_as_decided({**spec, "backendsFrom": [added]}) == digest(spec) == digest_as_decided(spec)
