"""The backends that the status of a farm shows."""

from typing import Any

import pytest

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import BACKENDS_MAX
from kube_nftlb.api.farm.status import BACKENDS_SHOWN_MAX, BackendStatus
from kube_nftlb.kube.events import Lasting
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import parse_farm
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.operator.status.farm_endpoints import FarmEndpoints, farm_endpoints
from tests.builders import endpoint, raw_backend, raw_farm, raw_service_farm, raw_slice


def endpoints_of(raw: dict[str, Any], *slices: dict[str, Any], cache: Cache | None = None) -> FarmEndpoints:
    cache = cache or Cache()
    ingest = Ingest(cache)
    ingest.put(FARMS, raw)
    for each in slices:
        ingest.put(ENDPOINT_SLICES, each)
    return farm_endpoints(parse_farm(raw, None)[0], cache)


def many(count: int, *, ready: int, first: int = 0, name: str = "web-1") -> dict[str, Any]:
    """A slice of so many endpoints, of which the last ones are not ready."""
    numbers = range(first, first + count)
    return raw_slice(
        *(endpoint(f"10.244.{i // 250}.{i % 250 + 1}", f"p{i:05}", ready=i < first + ready) for i in numbers), name=name
    )


def test_backends_are_counted_and_shown() -> None:
    draining = endpoint("10.244.0.2", "b", node="n2", ready=False, serving=True, terminating=True)
    override = {"pod": "b", "weight": 3}
    farm = raw_service_farm(backendsFrom=[{"service": "web", "port": "http", "overrides": [override]}])
    outside = {"addresses": ["192.0.2.1"]}
    found = endpoints_of(farm, raw_slice(draining, endpoint("10.244.0.1", "a"), outside, version=7))
    assert (found.ready, found.total, found.changed_at, found.problems) == (2, 3, 7, ())
    assert found.shown == (
        BackendStatus(
            name="192-0-2-1-8080", address="192.0.2.1", port=8080, ready=True, serving=True, terminating=False, weight=1
        ),
        BackendStatus(
            name="a",
            address="10.244.0.1",
            port=8080,
            pod="a",
            node="n1",
            ready=True,
            serving=True,
            terminating=False,
            weight=1,
        ),
        BackendStatus(
            name="b",
            address="10.244.0.2",
            port=8080,
            pod="b",
            node="n2",
            ready=False,
            serving=True,
            terminating=True,
            weight=3,
        ),
    )


def test_a_backend_that_keeps_the_port_shows_none() -> None:
    farm = raw_service_farm(protocol="All", backendsFrom=[{"service": "web", "port": "http", "keepPort": True}])
    (shown,) = endpoints_of(farm, raw_slice(endpoint("10.244.0.1", "a"))).shown
    assert (shown.port, "port" in shown.model_dump(exclude_none=True)) == (None, False)


def test_of_many_backends_the_first_are_shown_and_all_are_counted() -> None:
    found = endpoints_of(raw_service_farm(), many(250, ready=240))
    assert (found.ready, found.total) == (240, 250)
    assert [each.name for each in found.shown] == [f"p{i:05}" for i in range(BACKENDS_SHOWN_MAX)]


def test_a_farm_without_slices_has_no_backends() -> None:
    assert endpoints_of(raw_service_farm()) == FarmEndpoints(0, 0)
    assert endpoints_of(raw_service_farm(), raw_slice(endpoint("10.244.0.1"), service="other")) == FarmEndpoints(0, 0)


def test_backends_written_by_hand_are_counted_and_not_shown() -> None:
    backends = [raw_backend("a", "10.244.0.1"), raw_backend("b", "10.244.0.2", ready=False)]
    slices = raw_slice(endpoint("10.244.0.9", "c"), endpoint("bogus"))
    assert endpoints_of(raw_farm(backends=backends), slices) == FarmEndpoints(1, 2)


def test_a_farm_written_by_hand_may_refer_to_a_service_by_port_number() -> None:
    farm = raw_farm(backends=[], backendsFrom=[{"service": "web", "port": 8080}])
    found = endpoints_of(farm, raw_slice(endpoint("10.244.0.1", "a"), version=7))
    assert ([each.name for each in found.shown], found.changed_at) == (["a"], 7)


@pytest.mark.parametrize(
    ("family", "invalid"),
    [("ipv4", ["web-1: '10.244.0.300'", "web-2: 'x; flush ruleset'"]), ("ipv6", ["six: '10.244.0.1'"])],
)
def test_an_address_that_is_none_is_a_problem_of_farms_of_its_family(family: Family, invalid: list[str]) -> None:
    found = endpoints_of(
        raw_service_farm(family=family),
        raw_slice(endpoint("x; flush ruleset"), endpoint("10.244.0.2"), name="web-2"),
        raw_slice(endpoint("10.244.0.300"), endpoint("10.244.0.1")),
        raw_slice(endpoint("10.244.0.1"), endpoint("fd00::1"), name="six", address_type="IPv6"),
    )
    assert found.problems == tuple(
        Rejection("InvalidEndpoint", f"EndpointSlice {each} is not a usable {family} address") for each in invalid
    )
    assert found.total == (2 if family == "ipv4" else 1)


def test_more_endpoints_than_a_farm_can_have_are_one_lasting_problem() -> None:
    slices = [many(1000, ready=500, first=1000 * i, name=f"web-{i}") for i in range(5)]
    found = endpoints_of(raw_service_farm(), *slices)
    assert (found.ready, found.total) == (2500, BACKENDS_MAX)
    (problem,) = found.problems
    assert isinstance(problem, Lasting), "the number may change while it lasts"
    assert (problem.reason, problem.message) == (
        "TooManyEndpoints",
        f"5000 endpoints; only {BACKENDS_MAX} are used, the limit of the farm's engine",
    )


def test_the_engine_nftables_has_no_marks_to_run_out_of() -> None:
    slices = [many(1000, ready=500, first=1000 * i, name=f"web-{i}") for i in range(5)]
    found = endpoints_of(raw_service_farm(engine="nftables"), *slices)
    assert (found.ready, found.total, found.problems) == (2500, 5000, ())


def test_endpoints_that_their_namespace_has_no_room_for_are_a_problem() -> None:
    found = endpoints_of(raw_service_farm(), many(5, ready=5), cache=Cache(endpoints_max=3))
    assert (found.ready, found.total) == (3, 3)
    (problem,) = found.problems
    assert problem.reason == "TooManyEndpoints"
    assert "its namespace have too many endpoints" in problem.message
    other = raw_farm("by-hand", backends=[], backendsFrom=[{"service": "other"}])
    assert endpoints_of(other, many(5, ready=5), cache=Cache(endpoints_max=3)).problems == ()


def test_the_backends_of_all_groups_are_counted_and_name_their_service() -> None:
    groups = [
        {"service": "web", "port": "http", "weight": 6},
        {"service": "gone", "port": "http", "weight": 3},
        {"service": "off", "port": "http", "weight": 0},
        {"refuse": True, "weight": 1},
    ]
    other = raw_slice(endpoint("10.244.0.9", "z"), name="off-1", service="off", version=9)
    farm = raw_farm("front", backends=[], backendsFrom=groups)
    found = endpoints_of(farm, raw_slice(endpoint("10.244.0.1", "a"), version=7), other)
    assert (found.ready, found.total, found.changed_at) == (2, 2, 9)
    assert [(each.name, each.service) for each in found.shown] == [("a", "web"), ("z", "off")]
    refused = "the Service gone has 3 of 10 new connections, and no backend that is ready and up: they are refused"
    assert found.unserved == (refused,)


LEAVING: dict[str, Any] = {"ready": False, "terminating": True}


@pytest.mark.parametrize(
    ("overrides", "conditions", "terminating"),
    [
        pytest.param({}, {**LEAVING, "serving": True}, 1, id="it serves until it is gone"),
        pytest.param({}, {**LEAVING, "serving": False}, 0, id="it has ended"),
        pytest.param({}, {"ready": False, "serving": True}, 0, id="it is not ready, and stays"),
        pytest.param({"state": "drain"}, {**LEAVING, "serving": True}, 0, id="it was drained before"),
        pytest.param({"priority": 2}, {**LEAVING, "serving": True}, 0, id="it was on standby"),
    ],
)
def test_backends_that_serve_while_they_terminate_are_the_last_resort(
    overrides: dict[str, Any], conditions: dict[str, Any], terminating: int
) -> None:
    groups = [{"service": "web", "port": "http", "overrides": [{"pod": "a", **overrides}]}]
    found = endpoints_of(raw_service_farm(backendsFrom=groups), raw_slice(endpoint("10.244.0.1", "a", **conditions)))
    assert (found.ready, found.total, found.terminating) == (0, 1, terminating)


def test_the_priority_of_a_farm_and_the_weight_of_a_group_decide_what_is_the_last_resort() -> None:
    leaving = raw_slice(endpoint("10.244.0.1", "a", serving=True, **LEAVING))
    standby = {"service": "web", "port": "http", "overrides": [{"pod": "a", "priority": 2}]}
    assert endpoints_of(raw_service_farm(backendsFrom=[standby], priority=2), leaving).terminating == 1
    without = {"service": "web", "port": "http", "weight": 0}
    assert endpoints_of(raw_service_farm(backendsFrom=[without]), leaving).terminating == 0


def test_a_group_whose_last_backends_terminate_is_served() -> None:
    groups = [{"service": "web", "port": "http"}, {"service": "old", "port": "http"}]
    leaving = endpoint("10.244.0.9", "z", serving=True, **LEAVING)
    farm = raw_farm("front", backends=[], backendsFrom=groups)
    slices = raw_slice(endpoint("10.244.0.1", "a")), raw_slice(leaving, name="old-1", service="old")
    assert endpoints_of(farm, *slices).unserved == ()


@pytest.mark.parametrize("state", ["drain", "off", "down"])
def test_a_backend_in_another_state_than_up_is_counted_as_not_ready(state: str) -> None:
    groups = [
        {"service": "web", "port": "http", "overrides": [{"pod": "a", "state": state}]},
        {"service": "old", "port": "http", "weight": 3},
    ]
    other = raw_slice(endpoint("10.244.0.9", "z"), name="old-1", service="old")
    farm = raw_farm("front", backends=[], backendsFrom=groups)
    found = endpoints_of(farm, raw_slice(endpoint("10.244.0.1", "a")), other)
    assert (found.ready, found.total) == (1, 2)
    assert found.unserved == (
        "the Service web has 1 of 4 new connections, and no backend that is ready and up: they are refused",
    )
    by_hand = raw_farm(backends=[raw_backend("a", "10.244.0.1", state=state), raw_backend("b", "10.244.0.2")])
    assert endpoints_of(by_hand)[:2] == (1, 2)
