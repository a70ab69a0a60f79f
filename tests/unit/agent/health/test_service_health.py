"""The answers on healthCheckNodePorts."""

from typing import Any

import pytest

from kube_nftlb.agent.health.service_health import Check, PortConflict, PortRequest, answer, decide, port_request
from kube_nftlb.api.farm import Farm
from kube_nftlb.kube.events import Subject
from kube_nftlb.kube.resources import FARMS, SERVICES
from tests.builders import Grouped, endpoint, farm, grouped_farm, raw_backend

HERE = "node-1"
WEB = Subject(SERVICES, "default", "web", "uid-web")
API = Subject(SERVICES, "default", "api", "uid-api")


def balanced(name: str = "web--http", **changes: Any) -> Farm:
    return farm(name, **{"owner": "web", "healthCheckNodePort": 32000, **changes})


def local(name: str, ip: str, **changes: Any) -> dict[str, Any]:
    return raw_backend(name, ip, nodeName=HERE, **changes)


def decided(*farms: Farm) -> tuple[dict[int, Check], list[PortConflict]]:
    checks, conflicts = decide(wanted for farm in farms if (wanted := port_request(farm, HERE)))
    return {port: check._replace(farms=frozenset()) for port, check in checks.items()}, conflicts


def test_a_farm_without_the_port_is_not_answered_for() -> None:
    assert port_request(farm(), HERE) is None


@pytest.mark.parametrize(
    ("backends", "count"),
    [
        ([], 0),
        ([local("a", "10.244.1.2")], 1),
        ([local("a", "10.244.1.2"), local("b", "10.244.1.3")], 2),
        ([local("a", "10.244.1.2", port=1), local("a-2", "10.244.1.2", port=2)], 1),
        ([raw_backend("a", "10.244.1.2", nodeName="node-2")], 0),
        ([raw_backend("a", "10.244.1.2")], 0),
        ([local("a", "10.244.1.2", ready=False)], 0),
        ([local("a", "10.244.1.2", ready=False, serving=True, terminating=True)], 0),
        ([local("a", "10.244.1.2", state="drain")], 0),
        ([local("a", "10.244.1.2", priority=2), raw_backend("b", "10.244.2.2", nodeName="node-2")], 0),
        ([local("a", "10.244.1.2", priority=2), raw_backend("b", "10.244.2.2", nodeName="node-2", ready=False)], 1),
    ],
)
def test_the_ready_endpoints_of_this_node_count(backends: list[dict[str, Any]], count: int) -> None:
    assert decided(balanced(backends=backends)) == ({32000: Check(WEB, count)}, [])


def test_a_group_without_weight_has_no_endpoints() -> None:
    groups = {
        "web": Grouped(1, [endpoint("10.244.2.2", node="node-2")]),
        "next": Grouped(0, [endpoint("10.244.1.2", node=HERE)]),
    }
    checks, _ = decided(grouped_farm(groups=groups, owner="web", healthCheckNodePort=32000))
    assert checks[32000].local_endpoints == 0


def test_a_farm_that_takes_no_new_connections_has_no_endpoints() -> None:
    checks, _ = decided(balanced(backends=[local("a", "10.244.1.2")], state="drain"))
    assert checks[32000].local_endpoints == 0


def test_a_pod_counts_once_over_the_ports_and_families_of_its_service() -> None:
    four = [local("a", "10.244.1.2"), local("b", "10.244.1.3")]
    six = {"family": "ipv6", "addresses": [{"ip": "fd00::1", "ports": "80"}], "backends": [local("a", "fd00::a")]}
    checks, conflicts = decided(
        balanced("web--http", backends=four),
        balanced("web--https", backends=four[:1]),
        balanced("web--http--ipv6", **six),
    )
    assert (checks, conflicts) == ({32000: Check(WEB, 2)}, [])


def test_a_farm_written_by_hand_is_answered_for_by_itself() -> None:
    checks, _ = decided(balanced("mine", owner=None, backends=[local("a", "10.244.1.2")]))
    assert checks == {32000: Check(Subject(FARMS, "default", "mine", "uid-default-mine"), 1)}


def test_a_port_that_two_ask_for_is_the_older_ones_and_the_other_is_told() -> None:
    older = balanced("api--http", owner="api", created="2025-01-01T00:00:00Z")
    younger = balanced(backends=[local("a", "10.244.1.2")])
    for farms in ((older, younger), (younger, older)):
        assert decided(*farms) == ({32000: Check(API, 0)}, [PortConflict(WEB, 32000, API)])


def test_a_service_keeps_its_port_when_its_farm_is_made_anew() -> None:
    old = {"serviceCreationTimestamp": "2025-01-01T00:00:00Z", "created": "2026-02-01T00:00:00Z"}
    young = {"serviceCreationTimestamp": "2026-01-01T00:00:00Z", "created": "2026-01-01T00:00:00Z"}
    assert decided(balanced("api--http", owner="api", **old), balanced(**young))[1] == [PortConflict(WEB, 32000, API)]


def test_a_service_takes_its_port_from_an_older_hand_written_farm() -> None:
    squatter = balanced("mine", owner=None, created="2025-01-01T00:00:00Z")
    mine = Subject(FARMS, "default", "mine", "uid-default-mine")
    assert decided(squatter, balanced()) == ({32000: Check(WEB, 0)}, [PortConflict(mine, 32000, WEB)])


@pytest.mark.parametrize(
    ("count", "healthy", "status"), [(2, True, 200), (0, True, 503), (2, False, 503), (0, False, 503)]
)
def test_the_answer_is_as_that_of_kube_proxy(count: int, healthy: bool, status: int) -> None:
    given = answer(Check(WEB, count), proxy_healthy=healthy)
    assert given.status == status
    assert given.body == {
        "service": {"namespace": "default", "name": "web"},
        "localEndpoints": count,
        "serviceProxyHealthy": healthy,
    }
    assert given.headers == (("X-Load-Balancing-Endpoint-Weight", str(count)),)


def test_a_claim_changes_only_with_what_is_answered() -> None:
    assert port_request(balanced(generation=1, version=1), HERE) == port_request(
        balanced(generation=2, version=2), HERE
    )
    assert isinstance(port_request(balanced(), HERE), PortRequest)
