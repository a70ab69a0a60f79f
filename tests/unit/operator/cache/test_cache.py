from typing import Any

import pytest

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, SERVICES
from kube_nftlb.operator.cache.cache import NOTHING, Cache, Dirty
from kube_nftlb.operator.cache.ingest import CacheWriter
from kube_nftlb.operator.cache.newest import Newest
from kube_nftlb.operator.cache.slices import ServiceKey
from tests.builders import endpoint, raw_farm, raw_nftlb_node, raw_service, raw_service_farm, raw_slice

WEB, FARM = ServiceKey("default", "web"), FarmKey("default", "web--http")


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def writer(cache: Cache) -> CacheWriter:
    return CacheWriter(cache)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([("put", 5), ("put", 6)], 6, id="a newer state replaces an older"),
        pytest.param([("put", 6), ("put", 5)], 6, id="an older state does not replace a newer"),
        pytest.param([("put", 10), ("put", 9)], 10, id="versions are numbers, not text"),
        pytest.param([("put", 5), ("remove", 6)], None, id="a deletion removes"),
        pytest.param([("put", 5), ("remove", 5)], None, id="a deletion may carry the last state's version"),
        pytest.param([("put", 7), ("remove", 6)], 7, id="the deletion of an earlier object of that name is no news"),
        pytest.param([("put", 5), ("remove", 6), ("put", 5)], None, id="a late answer does not bring an object back"),
        pytest.param([("put", 5), ("remove", 6), ("put", 7)], 7, id="an object made anew is there"),
        pytest.param([("remove", 6), ("put", 5)], None, id="a deletion that comes first counts"),
    ],
)
def test_the_newest_state_stays(steps: list[tuple[str, int]], expected: int | None) -> None:
    table = Newest[str, int](int)
    for step, version in steps:
        if step == "put":
            table.put("x", version)
        else:
            table.remove("x", version)
    assert table.get("x") == expected


def test_a_service_a_slice_and_a_farm_make_their_service_dirty(writer: CacheWriter) -> None:
    dirty = Dirty(services=frozenset({WEB}))
    assert writer.put(SERVICES, raw_service()) == dirty
    assert writer.put(ENDPOINT_SLICES, raw_slice()) == dirty
    assert writer.put(FARMS, raw_service_farm()) == Dirty(frozenset({WEB}), frozenset({FARM}))


def test_what_is_not_news_makes_nothing_dirty(writer: CacheWriter) -> None:
    for resource, raw in (
        (SERVICES, raw_service()),
        (ENDPOINT_SLICES, raw_slice()),
        (FARMS, raw_service_farm()),
        (NFTLB_NODES, raw_nftlb_node()),
    ):
        writer.put(resource, raw)
        assert writer.put(resource, raw) == NOTHING


def test_a_slice_that_moves_to_another_service_makes_both_dirty(cache: Cache, writer: CacheWriter) -> None:
    writer.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1")))
    dirty = writer.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1"), service="other", version=2))
    assert dirty.services == {WEB, ServiceKey("default", "other")}
    assert (cache.slices_of(WEB), len(cache.slices_of(ServiceKey("default", "other")))) == ([], 1)


def test_a_slice_that_is_deleted_is_gone(cache: Cache, writer: CacheWriter) -> None:
    writer.put(ENDPOINT_SLICES, raw_slice())
    assert writer.remove(ENDPOINT_SLICES, raw_slice(version=2)).services == {WEB}
    assert cache.slices_of(WEB) == []


def test_a_farm_that_loses_its_labels_makes_its_service_dirty(cache: Cache, writer: CacheWriter) -> None:
    writer.put(FARMS, raw_service_farm())
    assert writer.put(FARMS, raw_farm(owner="web", version=11)).services == {WEB}
    assert cache.farms_of(WEB) == []


def test_a_farms_status_is_no_reason_to_look_at_its_service(writer: CacheWriter) -> None:
    writer.put(FARMS, raw_service_farm())
    told = writer.put(FARMS, raw_service_farm(version=11, status={"observedGeneration": 1}))
    assert told == Dirty(farms=frozenset({FARM}))
    edited = raw_service_farm(version=12, generation=2, scheduler="weight")
    assert writer.put(FARMS, edited).services == {WEB}
    gone = raw_service_farm(version=13, generation=3, scheduler="weight")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert writer.put(FARMS, gone).services == {WEB}


def test_the_loser_of_an_address_is_dirty_when_the_winner_comes_or_goes(cache: Cache, writer: CacheWriter) -> None:
    writer.put(FARMS, raw_farm("hand"))
    hand = FarmKey("default", "hand")
    assert hand in writer.put(FARMS, raw_service_farm()).farms
    assert cache.conflicts.get(hand) == (FARM, ("10.96.0.10", "TCP", 80))
    assert hand in writer.remove(FARMS, raw_service_farm(version=11)).farms
    assert cache.conflicts.get(hand) is None


def test_an_invalid_farm_claims_nothing(cache: Cache, writer: CacheWriter) -> None:
    writer.put(FARMS, raw_farm("a", schedParam="srcip"))
    writer.put(FARMS, raw_farm("b"))
    assert cache.conflicts.get(FarmKey("default", "b")) is None


@pytest.mark.parametrize(
    ("before", "after", "dirty"),
    [
        pytest.param(
            {"watermark": "5"}, {"watermark": "20"}, {"web--http"}, id="a watermark that passes an unfinished farm"
        ),
        pytest.param({"watermark": "5"}, {"watermark": "9"}, set(), id="a watermark that passes none"),
        pytest.param(
            {"watermark": "20"}, {"watermark": "5"}, {"web--http", "done"}, id="a watermark that goes back: all"
        ),
        pytest.param(
            {"ready": "True"}, {"ready": "False"}, {"web--http", "done"}, id="a node that is not ready any more: all"
        ),
        pytest.param(
            {"watermark": "20"},
            {"watermark": "21", "failed": [{"namespace": "default", "name": "done", "generation": 1, "reason": "X"}]},
            {"done"},
            id="a farm that failed",
        ),
    ],
)
def test_a_node_makes_dirty_only_the_farms_it_can_matter_to(
    writer: CacheWriter, before: dict[str, Any], after: dict[str, Any], dirty: set[str]
) -> None:
    writer.put(FARMS, raw_service_farm(version=10))
    writer.put(
        FARMS,
        raw_service_farm("done", version=10, port="done", addresses=[{"ip": "10.96.0.11", "ports": "80"}]),
    )
    writer.set_progress(FARM, accepted=True, unfinished_since=10)
    writer.put(NFTLB_NODES, raw_nftlb_node(**before))
    assert {key.name for key in writer.put(NFTLB_NODES, raw_nftlb_node(version=2, **after)).farms} == dirty


def test_a_new_node_and_a_gone_one_matter_to_all_farms(writer: CacheWriter) -> None:
    writer.put(FARMS, raw_service_farm())
    assert writer.put(NFTLB_NODES, raw_nftlb_node()).farms == {FARM}
    assert writer.remove(NFTLB_NODES, raw_nftlb_node(version=2)).farms == {FARM}


def test_a_list_shows_what_is_gone_but_not_what_is_younger_than_itself(writer: CacheWriter) -> None:
    writer.put(SERVICES, raw_service("old", version=3))
    writer.put(SERVICES, raw_service("young", version=9))
    assert writer.unlisted(SERVICES, set(), 5) == [ServiceKey("default", "old")]
