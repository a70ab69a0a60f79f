from typing import Any

import pytest

from kube_nftlb.api.conflicts import FarmKey, rank
from kube_nftlb.api.farm import Override
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, PODS, POLICIES, SERVICES
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.cache.affected import NOTHING, Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.debounced_nodes import HOLD_S
from kube_nftlb.operator.cache.farm_record import parse_farm
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.versioned_map import VersionedMap
from kube_nftlb.operator.farms.external_addresses import external_addresses
from kube_nftlb.operator.model.pods import slim
from tests.builders import (
    endpoint,
    raw_farm,
    raw_nftlb_node,
    raw_pod,
    raw_policy,
    raw_service,
    raw_service_farm,
    raw_slice,
)
from tests.fakes.clock import FakeClock

WEB, FARM = ServiceKey("default", "web"), FarmKey("default", "web--http")
OTHER = ServiceKey("default", "other")
BY_HAND = FarmKey("default", "by-hand")
A = endpoint("10.244.0.1", "a")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(clock: FakeClock) -> Cache:
    return Cache(limits=NamespaceLimits(service_ports=3, farms=4, policies=2), clock=clock.now)


@pytest.fixture
def ingest(cache: Cache) -> Ingest:
    return Ingest(cache)


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
    table = VersionedMap[str, int](int)
    for step, version in steps:
        if step == "put":
            table.put("x", version)
        else:
            table.remove("x", version)
    assert table.get("x") == expected


def test_a_service_and_a_farm_affect_their_service(ingest: Ingest) -> None:
    assert ingest.put(SERVICES, raw_service()) == Affected(services=frozenset({WEB}))
    assert ingest.put(FARMS, raw_service_farm()) == Affected(frozenset({WEB}), frozenset({FARM}))


def by_hand(service: str | None, version: int = 10) -> dict[str, Any]:
    """A farm written by hand that refers to a Service, or has a backend of its own."""
    fields: dict[str, Any] = {"backends": [], "backendsFrom": [{"service": service}]} if service is not None else {}
    return raw_farm("by-hand", addresses=[{"ip": "10.96.0.99", "ports": "80"}], version=version, **fields)


def test_what_a_node_says_of_a_namespace_affects_its_farms(ingest: Ingest) -> None:
    ingest.put(FARMS, raw_service_farm())
    ingest.put(FARMS, raw_farm("other", namespace="crowd", addresses=[{"ip": "10.96.0.98", "ports": "80"}]))
    ingest.put(NFTLB_NODES, raw_nftlb_node(watermark="10"))
    full = raw_nftlb_node(watermark="10", failed_namespaces=["crowd"], version=2)
    assert ingest.put(NFTLB_NODES, full) == Affected(farms=frozenset({FarmKey("crowd", "other")}))
    said = [{"namespace": "default", "name": "web--http", "generation": 1, "reason": "NoEffect", "message": ""}]
    warned = raw_nftlb_node(watermark="10", failed_namespaces=["crowd"], warnings=said, version=3)
    assert ingest.put(NFTLB_NODES, warned) == Affected(farms=frozenset({FARM}))


def test_a_farm_follows_the_node_that_announces_its_address(ingest: Ingest) -> None:
    addresses = [{"ip": "192.0.2.10", "type": "LoadBalancer", "ports": "80"}]
    ingest.put(FARMS, raw_service_farm(addresses=addresses))
    ingest.put(NFTLB_NODES, raw_nftlb_node(version=11))
    announcing = raw_nftlb_node(version=12)
    announcing["status"]["addresses"] = {"number": 1, "announced": ["192.0.2.10"]}
    assert ingest.put(NFTLB_NODES, announcing) == Affected(farms=frozenset({FARM}))
    ingest.remove(FARMS, raw_service_farm(addresses=addresses, version=14))
    assert ingest.put(NFTLB_NODES, raw_nftlb_node(version=15)) == NOTHING


def test_a_slice_makes_the_statuses_of_farms_dirty_that_refer_to_it(ingest: Ingest) -> None:
    assert ingest.put(ENDPOINT_SLICES, raw_slice()) == NOTHING
    ingest.put(FARMS, raw_service_farm())
    ingest.put(FARMS, by_hand("web"))
    ingest.put(FARMS, raw_service_farm("other--http", service="other"))
    assert ingest.put(ENDPOINT_SLICES, raw_slice(A, version=2)) == Affected(farms=frozenset({FARM, BY_HAND}))
    assert ingest.put(ENDPOINT_SLICES, raw_slice(A, version=3)) == NOTHING, "nothing but its version changed"
    assert ingest.remove(ENDPOINT_SLICES, raw_slice(version=4)) == Affected(farms=frozenset({FARM, BY_HAND}))


def test_a_slice_that_no_farm_needs_any_more_is_like_a_deleted_one(cache: Cache, ingest: Ingest) -> None:
    ingest.put(FARMS, raw_service_farm())
    ingest.put(ENDPOINT_SLICES, raw_slice(A))
    assert ingest.put(ENDPOINT_SLICES, raw_slice(A, address_type="FQDN", version=2)).farms == {FARM}
    assert cache.slices.index.of(WEB) == []


@pytest.mark.parametrize("service", ["other", None])
def test_a_farm_follows_the_service_that_it_refers_to_now(ingest: Ingest, service: str | None) -> None:
    ingest.put(FARMS, by_hand("web"))
    ingest.put(FARMS, by_hand(service, version=11))
    assert ingest.put(ENDPOINT_SLICES, raw_slice(A)) == NOTHING
    other = raw_slice(A, name="other-1", service="other")
    assert ingest.put(ENDPOINT_SLICES, other).farms == ({BY_HAND} if service is not None else set())
    ingest.remove(FARMS, by_hand(service, version=12))
    assert ingest.put(ENDPOINT_SLICES, {**other, "endpoints": []}) == NOTHING


def annotated(name: str, version: int = 5) -> dict[str, Any]:
    kept = slim(raw_pod(name, annotations={"weight": "3"}, version=version))
    assert kept is not None
    return kept


@pytest.mark.parametrize(
    ("before", "after", "services"),
    [
        pytest.param([], ["a"], {WEB}, id="it comes"),
        pytest.param(["a", "plain"], ["plain"], {WEB}, id="it goes"),
        pytest.param(["a"], ["a", "plain"], set(), id="another comes"),
        pytest.param(["a", "plain"], ["a"], set(), id="another goes"),
        pytest.param([], ["plain"], set(), id="there is none"),
    ],
)
def test_a_service_is_dirty_if_an_annotated_pod_comes_or_goes(
    ingest: Ingest, before: list[str], after: list[str], services: set[ServiceKey]
) -> None:
    def slice_of(pods: list[str], version: int) -> dict[str, Any]:
        return raw_slice(
            *(endpoint("10.244.0.1" if pod == "a" else "10.244.0.2", pod) for pod in pods), version=version
        )

    ingest.put(FARMS, raw_service_farm())
    ingest.put(PODS, annotated("a"))
    ingest.put(ENDPOINT_SLICES, slice_of(before, 1))
    assert ingest.put(ENDPOINT_SLICES, slice_of(after, 2)) == Affected(frozenset(services), frozenset({FARM}))


def test_a_slice_that_takes_an_annotated_pod_along_affects_both(ingest: Ingest) -> None:
    ingest.put(PODS, annotated("a"))
    ingest.put(ENDPOINT_SLICES, raw_slice(A))
    assert ingest.put(ENDPOINT_SLICES, raw_slice(A, service="other", version=2)).services == {WEB, OTHER}


def test_annotated_pods_are_those_of_all_slices_of_a_service(cache: Cache, ingest: Ingest) -> None:
    for pod in ("b", "a", "elsewhere"):
        ingest.put(PODS, annotated(pod))
    ingest.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.2", "b"), endpoint("10.244.0.3", "plain")))
    ingest.put(ENDPOINT_SLICES, raw_slice(A, endpoint("10.244.0.4"), name="web-2"))
    ingest.put(ENDPOINT_SLICES, raw_slice(A, name="web-six"))
    assert cache.annotated_pods(WEB) == ["a", "b"]
    assert cache.annotated_pods(OTHER) == []


def test_a_pod_counts_from_the_moment_that_a_service_selects_it(cache: Cache, ingest: Ingest) -> None:
    def labelled(version: int, **labels: str) -> dict[str, Any]:
        kept = annotated("a")
        return {**kept, "labels": labels, "metadata": {**kept["metadata"], "resourceVersion": str(version)}}

    ingest.put(SERVICES, raw_service(selector={"app": "web"}))
    assert ingest.put(PODS, labelled(11, app="web", more="x")).services == {WEB}
    assert cache.annotated_pods(WEB) == ["a"]
    assert ingest.put(PODS, labelled(12, app="web")).services == {WEB}
    assert ingest.put(PODS, labelled(13, app="other")).services == {WEB}
    assert cache.annotated_pods(WEB) == []
    ingest.put(PODS, labelled(14, app="web"))
    assert ingest.remove(PODS, labelled(15, app="web")).services == {WEB}
    assert cache.annotated_pods(WEB) == []


def test_endpoints_changed_when_the_last_of_their_slices_did(cache: Cache, ingest: Ingest) -> None:
    assert cache.slices.changed_at(WEB) == 0
    ingest.put(ENDPOINT_SLICES, raw_slice(A, version=20))
    ingest.put(ENDPOINT_SLICES, raw_slice(A, name="web-2", version=10))
    assert cache.slices.changed_at(WEB) == 20, "a list delivers them in any order"
    ingest.put(ENDPOINT_SLICES, raw_slice(A, name="web-2", version=30))
    assert cache.slices.changed_at(WEB) == 20, "nothing but its version changed"
    ingest.put(ENDPOINT_SLICES, raw_slice(name="web-2", version=31))
    assert (cache.slices.changed_at(WEB), cache.slices.changed_at(OTHER)) == (31, 0)


def test_the_deletion_of_a_slice_is_a_change_of_endpoints(cache: Cache, ingest: Ingest) -> None:
    ingest.put(FARMS, raw_service_farm())
    ingest.put(SERVICES, raw_service())
    ingest.put(ENDPOINT_SLICES, raw_slice(A, version=20))
    ingest.remove(ENDPOINT_SLICES, raw_slice(version=21))
    assert cache.slices.changed_at(WEB) == 21
    ingest.remove(SERVICES, raw_service(version=22))
    assert cache.slices.changed_at(WEB) == 21, "its farm is there still"
    ingest.remove(FARMS, raw_service_farm(version=23))
    assert cache.slices.changed_at(WEB) == 0


@pytest.mark.parametrize("last", ["slice", "farm"])
def test_nothing_is_remembered_of_services_that_are_gone(cache: Cache, ingest: Ingest, last: str) -> None:
    ingest.put(FARMS, raw_service_farm())
    ingest.put(ENDPOINT_SLICES, raw_slice(A, version=20))
    gone = [(FARMS, raw_service_farm(version=21)), (ENDPOINT_SLICES, raw_slice(version=22))]
    for resource, raw in gone if last == "slice" else gone[::-1]:
        ingest.remove(resource, raw)
    assert (cache.slices._changed_at, set(cache.farm_index.referring.keys())) == ({}, set())  # noqa: SLF001


def test_a_service_lacks_endpoints_if_its_namespace_has_too_many() -> None:
    cache = Cache(endpoints_max=1)
    Ingest(cache).put(ENDPOINT_SLICES, raw_slice(A, endpoint("10.244.0.2", "b")))
    assert (cache.slices.index.is_cut(WEB), cache.slices.index.is_cut(OTHER)) == (True, False)
    assert cache.slices.pods_of(WEB) == {"a"}


def test_what_is_not_news_affects_nothing(ingest: Ingest) -> None:
    for resource, raw in (
        (SERVICES, raw_service()),
        (ENDPOINT_SLICES, raw_slice()),
        (FARMS, raw_service_farm()),
        (NFTLB_NODES, raw_nftlb_node()),
    ):
        ingest.put(resource, raw)
        assert ingest.put(resource, raw) == NOTHING


def test_a_slice_that_moves_to_another_service_affects_both(cache: Cache, ingest: Ingest) -> None:
    ingest.put(FARMS, raw_service_farm())
    ingest.put(FARMS, raw_service_farm("other--http", service="other"))
    ingest.put(ENDPOINT_SLICES, raw_slice(A))
    affected = ingest.put(ENDPOINT_SLICES, raw_slice(A, service="other", version=2))
    assert affected == Affected(farms=frozenset({FARM, FarmKey("default", "other--http")}))
    assert [[each.name for each in cache.slices.index.of(service)] for service in (WEB, OTHER)] == [[], ["web-1"]]
    assert (cache.slices.changed_at(WEB), cache.slices.changed_at(OTHER)) == (2, 2)


def test_a_slice_that_is_deleted_is_gone(cache: Cache, ingest: Ingest) -> None:
    ingest.put(ENDPOINT_SLICES, raw_slice(A))
    ingest.remove(ENDPOINT_SLICES, raw_slice(version=2))
    assert cache.slices.index.of(WEB) == []
    ingest.put(ENDPOINT_SLICES, raw_slice(A))
    assert cache.slices.index.of(WEB) == [], "a late list does not bring it back"


def test_a_farm_that_loses_its_labels_affects_its_service(cache: Cache, ingest: Ingest) -> None:
    ingest.put(FARMS, raw_service_farm())
    assert ingest.put(FARMS, raw_farm(owner="web", version=11)).services == {WEB}
    assert cache.farms_of(WEB) == []


def test_a_farms_status_is_no_reason_to_look_at_its_service(ingest: Ingest) -> None:
    ingest.put(FARMS, raw_service_farm())
    told = ingest.put(FARMS, raw_service_farm(version=11, status={"observedGeneration": 1}))
    assert told == Affected(farms=frozenset({FARM}))
    edited = raw_service_farm(version=12, generation=2, scheduler="weight")
    assert ingest.put(FARMS, edited).services == {WEB}
    gone = raw_service_farm(version=13, generation=3, scheduler="weight")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert ingest.put(FARMS, gone).services == {WEB}


def test_the_loser_of_an_address_is_dirty_when_the_winner_comes_or_goes(cache: Cache, ingest: Ingest) -> None:
    ingest.put(FARMS, raw_farm("hand"))
    hand = FarmKey("default", "hand")
    assert hand in ingest.put(FARMS, raw_service_farm()).farms
    loss = cache.conflicts.get(hand)
    assert loss is not None
    assert [(each.winner, each.lost) for each in loss.conflicts] == [(FARM, ("10.96.0.10", "TCP", 80))]
    assert hand in ingest.remove(FARMS, raw_service_farm(version=11)).farms
    assert cache.conflicts.get(hand) is None


def test_an_invalid_farm_claims_nothing(cache: Cache, ingest: Ingest) -> None:
    ingest.put(FARMS, raw_farm("a", schedParam="srcip"))
    ingest.put(FARMS, raw_farm("b"))
    assert cache.conflicts.get(FarmKey("default", "b")) is None


@pytest.mark.parametrize(
    ("before", "after", "affected"),
    [
        pytest.param(
            {"watermark": "5"}, {"watermark": "20"}, {"web--http"}, id="a watermark that passes an unfinished farm"
        ),
        pytest.param({"watermark": "5"}, {"watermark": "9"}, set(), id="a watermark that passes none"),
        pytest.param(
            {"watermark": "20"},
            {"watermark": "5"},
            {"web--http", "done", "behind"},
            id="a watermark that goes back: all",
        ),
        pytest.param(
            {"ready": "True"},
            {"ready": "False"},
            {"web--http", "done", "behind"},
            id="a node that is not ready any more: all",
        ),
        pytest.param(
            {"watermark": "20"},
            {"watermark": "21", "failed": [{"namespace": "default", "name": "done", "generation": 1, "reason": "X"}]},
            {"done"},
            id="a farm that failed",
        ),
        pytest.param(
            {"slice_watermark": "5"},
            {"slice_watermark": "30"},
            {"behind"},
            id="a watermark of slices that passes endpoints that are not everywhere",
        ),
        pytest.param(
            {"slice_watermark": "5"}, {"slice_watermark": "29"}, set(), id="a watermark of slices that passes none"
        ),
        pytest.param({"slice_watermark": "40"}, {"slice_watermark": "50"}, set(), id="one that had passed them before"),
        pytest.param(
            {"slice_watermark": "40"},
            {"slice_watermark": "39"},
            {"web--http", "done", "behind"},
            id="a watermark of slices that goes back: all",
        ),
        pytest.param(
            {"watermark": "5", "slice_watermark": "5"},
            {"watermark": "10", "slice_watermark": "30"},
            {"web--http", "behind"},
            id="both watermarks at once",
        ),
    ],
)
def test_a_node_makes_dirty_only_the_farms_it_can_matter_to(
    ingest: Ingest, clock: FakeClock, before: dict[str, Any], after: dict[str, Any], affected: set[str]
) -> None:
    ingest.put(FARMS, raw_service_farm(version=10))
    ingest.put(
        FARMS,
        raw_service_farm("done", version=10, port="done", addresses=[{"ip": "10.96.0.11", "ports": "80"}]),
    )
    ingest.put(
        FARMS,
        raw_service_farm("behind", version=10, port="behind", addresses=[{"ip": "10.96.0.12", "ports": "80"}]),
    )
    ingest.cache.progress.set_farm(FARM, accepted=True, unfinished_since=10, endpoints_since=None)
    ingest.cache.progress.set_farm(
        FarmKey("default", "behind"), accepted=True, unfinished_since=None, endpoints_since=30
    )
    ingest.put(NFTLB_NODES, raw_nftlb_node(**before))
    found = ingest.put(NFTLB_NODES, raw_nftlb_node(version=2, **after))
    clock.time += HOLD_S
    assert {key.name for key in (found | ingest.nodes.flush()).farms} == affected


def test_farms_with_their_endpoints_everywhere_or_gone_are_forgotten(cache: Cache, ingest: Ingest) -> None:
    ingest.put(FARMS, raw_service_farm())
    ingest.put(NFTLB_NODES, raw_nftlb_node(slice_watermark="5"))
    ingest.cache.progress.set_farm(FARM, accepted=True, unfinished_since=10, endpoints_since=30)
    ingest.cache.progress.set_farm(FARM, accepted=True, unfinished_since=10, endpoints_since=None)
    assert ingest.put(NFTLB_NODES, raw_nftlb_node(slice_watermark="40", version=2)) == NOTHING
    ingest.cache.progress.set_farm(FARM, accepted=True, unfinished_since=10, endpoints_since=50)
    assert (len(cache.progress.farms), len(cache.progress.endpoints)) == (1, 1)
    ingest.remove(FARMS, raw_service_farm(version=11))
    assert (len(cache.progress.farms), len(cache.progress.endpoints)) == (0, 0)


def test_a_new_node_and_a_gone_one_matter_to_all_farms(ingest: Ingest, clock: FakeClock) -> None:
    ingest.put(FARMS, raw_service_farm())
    ingest.put(POLICIES, raw_policy())
    everything = Affected(farms=frozenset({FARM}), policies=frozenset({PolicyKey("default", "list")}))
    assert ingest.put(NFTLB_NODES, raw_nftlb_node()) == everything
    assert ingest.remove(NFTLB_NODES, raw_nftlb_node(version=2)) == NOTHING, "it may be back in a moment"
    clock.time += HOLD_S
    assert ingest.nodes.flush() == everything


def test_the_farms_of_services_are_counted_before_they_are_made(cache: Cache, ingest: Ingest) -> None:
    def ports(count: int) -> list[Any]:
        return [{"name": f"p{number}", "port": number} for number in range(1, count + 1)]

    def put(name: str, created: int, count: int, version: int = 1) -> frozenset[ServiceKey]:
        stamp = f"2026-01-0{created}T00:00:00Z"
        raw = raw_service(name, created=stamp, ports=ports(count), version=version)
        return ingest.put(SERVICES, raw).services

    young, middle, old = (ServiceKey("default", name) for name in ("young", "middle", "old"))
    put("young", 3, 1)
    put("middle", 2, 3)
    assert not cache.budgets.refusal_of_service(young)
    assert put("old", 1, 1) == {old, young}, "the oldest come first"
    assert "need more farms than the 4" in (cache.budgets.refusal_of_service(young) or "")
    assert not cache.budgets.refusal_of_service(middle)
    assert put("middle", 2, 2, version=2) == {middle, young}
    assert not cache.budgets.refusal_of_service(young)
    put("old", 1, 9, version=2)
    assert not cache.budgets.refusal_of_service(old), "no more than three of its ports are served"


def test_a_farm_by_hand_that_does_not_fit_owns_nothing(cache: Cache, ingest: Ingest) -> None:
    def farm(number: int, ip: str) -> dict[str, Any]:
        addresses = [{"ip": ip, "ports": "80", "sourceRanges": ["10.0.0.0/8"]}]
        return raw_farm(f"f{number}", addresses=addresses, created=f"2026-01-0{number}T00:00:00Z", version=number)

    for number in range(1, 6):
        ingest.put(FARMS, farm(number, f"10.0.0.{number}"))
    young, rival = FarmKey("default", "f5"), FarmKey("other", "rival")
    assert "more farms than the 4" in (cache.budgets.refusal_of_farm(young) or "")
    raw = raw_farm("rival", namespace="other", addresses=[{"ip": "10.0.0.5", "ports": "80"}])
    ingest.put(FARMS, {**raw, "metadata": {**raw["metadata"], "creationTimestamp": "2026-02-01T00:00:00Z"}})
    assert cache.conflicts.get(rival) is None
    affected = ingest.remove(
        FARMS, {**farm(1, "10.0.0.1"), "metadata": {**farm(1, "")["metadata"], "resourceVersion": "9"}}
    )
    assert {young, rival} <= affected.farms
    assert not cache.budgets.refusal_of_farm(young)
    loss = cache.conflicts.get(rival)
    assert loss is not None
    assert [conflict.winner for conflict in loss.conflicts] == [young]


def test_a_policy_that_does_not_fit_is_refused(cache: Cache, ingest: Ingest) -> None:
    for name in ("a", "b", "c"):
        ingest.put(POLICIES, raw_policy(name))
    last = PolicyKey("default", "c")
    assert "2 policies" in (cache.budgets.refusal_of_policy(last) or "")
    assert ingest.remove(POLICIES, raw_policy("a", version=11)).policies == {PolicyKey("default", "a"), last}
    assert not cache.budgets.refusal_of_policy(last)


def test_what_is_too_long_in_a_service_is_cut_before_it_is_parsed(cache: Cache, ingest: Ingest) -> None:
    many = [f"203.0.{number // 256}.{number % 256}" for number in range(5000)]
    status = {"loadBalancer": {"ingress": [{"ip": ip} for ip in many]}}
    ports = [{"name": f"p{number}", "port": number} for number in range(1, 5000)]
    raw = raw_service(externalIPs=many, loadBalancerSourceRanges=many, ports=ports, status=status)
    ingest.put(SERVICES, raw)
    service = cache.services.get(WEB)
    assert service is not None
    found = external_addresses(service)
    assert len(service.spec.ports) == 4
    assert {len(service.spec.external_ips), len(service.status.load_balancer.ingress)} == {65}
    assert {problem.reason for problem in found.problems} >= {"TooManyAddresses", "TooManySourceRanges"}


def test_a_list_shows_what_is_gone_but_not_what_is_younger_than_itself(ingest: Ingest) -> None:
    ingest.put(SERVICES, raw_service("old", version=3))
    ingest.put(SERVICES, raw_service("young", version=9))
    assert ingest.unlisted(SERVICES, set(), 5) == [ServiceKey("default", "old")]


def test_a_farm_that_fits_again_has_the_rank_that_it_had() -> None:
    raw = raw_service_farm(serviceCreationTimestamp="2020-01-01T00:00:00Z", created="2026-01-01T00:00:00Z")
    record, parsed = parse_farm(raw, None)
    assert parsed is not None
    assert rank(record.farm_with_listeners()) == rank(parsed)


def test_a_service_that_needs_no_farm_fits_into_a_full_namespace() -> None:
    cache = Cache(limits=NamespaceLimits(farms=1))
    ingest = Ingest(cache)
    ingest.put(SERVICES, raw_service("web", ports=[{"name": "a", "port": 1}, {"name": "b", "port": 2}]))
    ingest.put(SERVICES, raw_service("headless", clusterIP="None", clusterIPs=["None"]))
    assert cache.budgets.refusal_of_service(ServiceKey("default", "web"))
    assert not cache.budgets.refusal_of_service(ServiceKey("default", "headless"))


def test_the_farms_of_a_service_share_what_the_annotations_of_its_pods_say() -> None:
    def override(port: str) -> Override:
        group = {"service": "web", "port": port, "overrides": [{"pod": "a", "weight": 3}]}
        record, _ = parse_farm(raw_service_farm(f"web--{port}", port=port, backendsFrom=[group]), None)
        assert record.reference is not None
        return record.reference.groups[0].overrides[0]

    assert override("http") is override("https")
