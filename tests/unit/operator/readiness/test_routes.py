"""The readiness gate of Pods to whose Services routes of Gateway API send connections, too."""

from typing import Any

import pytest

from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, SERVICES
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.readiness import decide as decisions
from kube_nftlb.operator.readiness.gated_ips import gated_ips, is_listed_as_wanted
from tests.builders import endpoint, raw_farm, raw_route_farm, raw_service, raw_slice
from tests.unit.operator.readiness.test_decide import IP, LABELS, OTHER_IP, WEB, Operator

Json = dict[str, Any]

ROUTED = "web--gate--tcp"
API = ServiceKey("default", "api")


def group(*ips: str, service: str = "web", **fields: Any) -> Json:
    return {"service": service, "port": "http", "gatedIPs": list(ips), **fields}


def raw_routed(*groups: Json, name: str = ROUTED, version: int = 90, **fields: Any) -> Json:
    """The farm of a route, at an address that no other farm has."""
    addresses = [{"ip": "192.0.2.1", "ports": "80"}]
    return raw_route_farm(name, version=version, **{"addresses": addresses, "backendsFrom": list(groups), **fields})


def route(operator: Operator, *groups: Json, **fields: Any) -> None:
    operator.ingest.put(FARMS, raw_routed(*groups, **fields))


@pytest.fixture
def operator() -> Operator:
    """One with a Pod for which nothing is missing but what a route needs."""
    operator = Operator()
    operator.farm(version=90, generation=2, ips=[IP])
    assert operator.decide().programmed
    return operator


def test_the_farm_of_a_route_has_to_list_it_and_each_node_to_reach_that(operator: Operator) -> None:
    route(operator, group(), version=95)
    verdict = operator.decide()
    assert (verdict.programmed, verdict.unlisted) == (False, (WEB,))
    assert verdict.message == f"the farm {ROUTED} does not have it yet"
    route(operator, group(IP), version=101, generation=2)
    operator.node("n1", farms=101, slices=100, version=2)
    assert "1 of 2 nodes have it; waiting for n2" in operator.decide().message
    operator.node("n2", farms=101, slices=100, version=2)
    assert operator.decide().message == "all nodes that count (2) have it"


@pytest.mark.parametrize(
    ("groups", "fields"),
    [
        pytest.param([group(weight=0), group(service="api")], {}, id="sends it nothing"),
        pytest.param([group(service="", port="", refuse=True)], {}, id="refuses its connections"),
        pytest.param([group(service="api")], {}, id="refers to another Service"),
        pytest.param([group(namespace="other")], {}, id="refers to another Service of that name"),
        pytest.param([group()], {"family": "ipv6", "addresses": [{"ip": "2001:db8::1", "ports": "80"}]}, id="is IPv6"),
        pytest.param(
            [group()],
            {"addresses": [{"ip": "10.96.0.10", "ports": "80"}], "created": "2027-01-01T00:00:00Z"},
            id="is not accepted",
        ),
    ],
)
def test_it_waits_for_no_farm_of_a_route_that(operator: Operator, groups: list[Json], fields: Json) -> None:
    route(operator, *groups, **fields)
    assert operator.decide().programmed


def test_it_does_not_wait_for_farms_that_are_written_by_hand(operator: Operator) -> None:
    addresses = [{"ip": "192.0.2.1", "ports": "80"}]
    operator.ingest.put(FARMS, raw_farm("mine", backends=[], addresses=addresses, backendsFrom=[group()]))
    assert operator.decide().programmed


@pytest.mark.parametrize("ends", ["it terminates", "it is gone"])
def test_it_waits_no_longer_for_the_farm_of_a_route_that_is_deleted(operator: Operator, ends: str) -> None:
    route(operator, group())
    waiting = operator.decide()
    assert not waiting.programmed
    raw = raw_routed(group(), version=96)
    if ends == "it terminates":
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        operator.ingest.put(FARMS, raw)
    else:
        operator.ingest.remove(FARMS, raw)
    assert operator.decide(waiting).programmed


def test_each_group_of_its_service_has_to_list_it(operator: Operator) -> None:
    for second, programmed in (([], False), ([IP], True)):
        route(operator, group(IP), group(*second, port="https"), version=96 + len(second))
        assert operator.decide().programmed == programmed


def test_each_farm_of_a_route_has_to_list_it(operator: Operator) -> None:
    route(operator, group(IP))
    route(operator, group(), name="second", addresses=[{"ip": "192.0.2.2", "ports": "80"}])
    assert operator.decide().message == "the farm second does not have it yet"


def test_a_farm_of_another_namespace_is_named_with_it(operator: Operator) -> None:
    route(operator, group(namespace="default"), namespace="edge")
    assert operator.decide().message == f"the farm edge/{ROUTED} does not have it yet"
    route(operator, group(IP, namespace="default"), namespace="edge", version=96)
    assert operator.decide().programmed
    operator.node("n2", farms=100, slices=100, version=2, failed_namespaces=["edge"])
    assert operator.decide().message == "more farms of the namespace edge failed than n2 reports"


@pytest.fixture
def crowded() -> Operator:
    """One in whose namespace there is no room for farms of another Service that selects the Pod, ``api``."""
    operator = Operator(NamespaceLimits(farms=2))
    operator.farm(version=90, generation=2, ips=[IP])
    ports = [{"name": "http", "port": 80}, {"name": "https", "port": 443}]
    raw = raw_service("api", selector=LABELS, ports=ports, created="2027-01-01T00:00:00Z", version=2)
    operator.ingest.put(SERVICES, raw)
    assert operator.decide().programmed
    return operator


def test_a_service_without_a_farm_of_its_own_counts_by_its_routes(crowded: Operator) -> None:
    route(crowded, group(service="api"))
    verdict = crowded.decide()
    assert (verdict.programmed, verdict.unlisted) == (False, (API,))
    assert gated_ips(crowded.cache, API)["ipv4"] == [IP]


def test_nodes_have_to_reach_the_endpoints_of_each_service_of_a_route(crowded: Operator) -> None:
    """Also if those of one have the Pod's address later than those of the other."""
    route(crowded, group(IP), group(IP, service="api"), version=95)
    before = crowded.decide()
    assert before.message == f"the EndpointSlices of the Service api do not have {IP} yet"
    late = raw_slice(endpoint(IP, "a", ready=False), name="api-1", service="api", version=120)
    crowded.ingest.put(ENDPOINT_SLICES, late)
    assert "0 of 2 nodes have it" in crowded.decide(before).message
    for name in ("n1", "n2"):
        crowded.node(name, farms=100, slices=120, version=2)
    assert crowded.decide(before).programmed


def test_farms_of_services_come_first_if_there_are_too_many(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "_FARMS_MAX", 1)
    route(operator, group(), name="a-first")
    assert operator.decide().programmed
    operator.farm(version=96, generation=3, ips=[])
    assert operator.decide().message == "the farm web--http does not have it yet"


def test_one_whose_gate_is_open_is_listed_on_by_what_a_route_lists(operator: Operator) -> None:
    """As where a new leader comes, or the Service has no farm of its own."""
    operator.farm(version=96, generation=3, ips=[])
    operator.pod(gate=True, version=6)
    assert gated_ips(operator.cache, WEB)["ipv4"] == []
    route(operator, group(IP))
    assert gated_ips(operator.cache, WEB)["ipv4"] == [IP]
    operator.slices(ready=True, version=140)
    assert gated_ips(operator.cache, WEB)["ipv4"] == [IP]
    for name in ("n1", "n2"):
        operator.node(name, farms=100, slices=140, version=2)
    assert gated_ips(operator.cache, WEB)["ipv4"] == []


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        pytest.param([group(IP)], True, id="what it is to list"),
        pytest.param([group()], False, id="too few"),
        pytest.param([group(IP, OTHER_IP)], False, id="too many"),
        pytest.param([group(IP), group()], False, id="too few in one group"),
        pytest.param([group(IP), group(service="api")], True, id="nothing for another Service"),
    ],
)
def test_farms_are_as_wanted_if_those_of_routes_list(operator: Operator, groups: list[Json], *, wanted: bool) -> None:
    assert is_listed_as_wanted(operator.cache, WEB)
    route(operator, *groups)
    assert is_listed_as_wanted(operator.cache, WEB) == wanted


def test_services_are_known_whose_pods_a_route_lists(operator: Operator) -> None:
    operator.farm(version=96, generation=3, ips=[])
    listing = operator.cache.farm_index.listing
    route(operator, group(), group(IP, namespace="other"), group(IP, service="api", namespace="other"))
    assert listing.keys() == {ServiceKey("other", "web"), ServiceKey("other", "api")}
    route(operator, group(IP), group(namespace="other"), version=96)
    assert listing.keys() == {WEB}
    operator.ingest.remove(FARMS, raw_routed(version=97))
    assert not listing.keys()
    assert not operator.cache.farm_index.routed.keys()
