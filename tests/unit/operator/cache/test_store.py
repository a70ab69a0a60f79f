import pytest

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, SERVICES
from kube_nftlb.operator.cache.newest import Table
from kube_nftlb.operator.cache.slices import ServiceKey
from kube_nftlb.operator.cache.store import NOTHING, Dirty, Store
from kube_nftlb.operator.informers.ingest import Intake
from tests.unit.operator.objects import endpoint, raw_farm, raw_node, raw_service, raw_slice

WEB, FARM = ServiceKey("default", "web"), FarmKey("default", "web--http")


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def intake(store):
    return Intake(store)


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
def test_the_newest_state_stays(steps, expected):
    table = Table(int)
    for step, version in steps:
        if step == "put":
            table.put("x", version)
        else:
            table.remove("x", version)
    assert table.get("x") == expected


def test_a_service_a_slice_and_a_farm_make_their_service_dirty(intake):
    dirty = Dirty(services=frozenset({WEB}))
    assert intake.take(SERVICES, "ADDED", raw_service()) == dirty
    assert intake.take(ENDPOINT_SLICES, "ADDED", raw_slice()) == dirty
    assert intake.take(FARMS, "ADDED", raw_farm()) == Dirty(frozenset({WEB}), frozenset({FARM}))


def test_what_is_not_news_makes_nothing_dirty(intake):
    for resource, raw in (
        (SERVICES, raw_service()),
        (ENDPOINT_SLICES, raw_slice()),
        (FARMS, raw_farm()),
        (NFTLB_NODES, raw_node()),
    ):
        intake.take(resource, None, raw)
        assert intake.take(resource, "MODIFIED", raw) == NOTHING


def test_a_slice_that_moves_to_another_service_makes_both_dirty(store, intake):
    intake.take(ENDPOINT_SLICES, None, raw_slice(endpoint("10.244.0.1")))
    dirty = intake.take(ENDPOINT_SLICES, "MODIFIED", raw_slice(endpoint("10.244.0.1"), service="other", version=2))
    assert dirty.services == {WEB, ServiceKey("default", "other")}
    assert (store.slices_of(WEB), len(store.slices_of(ServiceKey("default", "other")))) == ([], 1)


def test_a_slice_that_is_deleted_is_gone(store, intake):
    intake.take(ENDPOINT_SLICES, None, raw_slice())
    assert intake.take(ENDPOINT_SLICES, "DELETED", raw_slice(version=2)).services == {WEB}
    assert store.slices_of(WEB) == []


def test_a_farm_that_loses_its_labels_makes_its_service_dirty(store, intake):
    intake.take(FARMS, None, raw_farm())
    assert intake.take(FARMS, "MODIFIED", raw_farm(port=None, version=11)).services == {WEB}
    assert store.farms_of(WEB) == []


def test_a_farms_status_is_no_reason_to_look_at_its_service(intake):
    intake.take(FARMS, None, raw_farm())
    told = intake.take(FARMS, "MODIFIED", raw_farm(version=11, status={"observedGeneration": 1}))
    assert told == Dirty(farms=frozenset({FARM}))
    edited = raw_farm(version=12, generation=2, scheduler="weight")
    assert intake.take(FARMS, "MODIFIED", edited).services == {WEB}
    gone = raw_farm(version=13, generation=3, scheduler="weight")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert intake.take(FARMS, "MODIFIED", gone).services == {WEB}


def test_the_loser_of_an_address_is_told_of_when_the_winner_comes_and_goes(store, intake):
    intake.take(FARMS, None, raw_farm("hand", port=None, owner=""))
    hand = FarmKey("default", "hand")
    assert hand in intake.take(FARMS, "ADDED", raw_farm()).farms
    assert store.conflicts.get(hand) == (FARM, ("10.96.0.10", "TCP", 80))
    assert hand in intake.take(FARMS, "DELETED", raw_farm(version=11)).farms
    assert store.conflicts.get(hand) is None


def test_an_invalid_farm_claims_nothing(store, intake):
    intake.take(FARMS, None, raw_farm("a", port=None, owner="", schedParam="srcip"))
    intake.take(FARMS, None, raw_farm("b", port=None, owner=""))
    assert store.conflicts.get(FarmKey("default", "b")) is None


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
def test_a_node_makes_dirty_only_the_farms_it_can_matter_to(store, intake, before, after, dirty):
    intake.take(FARMS, None, raw_farm(version=10))
    intake.take(
        FARMS,
        None,
        raw_farm("done", version=10, port=("web", "done", "ipv4"), addresses=[{"ip": "10.96.0.11", "ports": "80"}]),
    )
    store.unfinished.add(FARM, 10)
    intake.take(NFTLB_NODES, None, raw_node(**before))
    assert {key.name for key in intake.take(NFTLB_NODES, "MODIFIED", raw_node(version=2, **after)).farms} == dirty


def test_a_new_node_and_a_gone_one_matter_to_all_farms(intake):
    intake.take(FARMS, None, raw_farm())
    assert intake.take(NFTLB_NODES, "ADDED", raw_node()).farms == {FARM}
    assert intake.take(NFTLB_NODES, "DELETED", raw_node(version=2)).farms == {FARM}


def test_a_list_shows_what_is_gone_but_not_what_is_younger_than_itself(intake):
    intake.take(SERVICES, None, raw_service("old", version=3))
    intake.take(SERVICES, None, raw_service("young", version=9))
    assert intake.unlisted(SERVICES, set(), 5) == [ServiceKey("default", "old")]
