"""Routers have a route to each node that serves an address, as soon as it does, and no longer than it does."""

import time
from functools import partial
from statistics import median
from typing import Any

import pytest

from lab.places import CLIENT
from tests.builders.manifests import endpoint_slice
from tests.functional.cluster import Cluster, eventually
from tests.functional.commands import Kubectl
from tests.functional.faults import suite
from tests.functional.features.announcing_bgp.conftest import ROUTERS, SESSIONS, established, peer
from tests.functional.routed import RouteWatch, hops, routed
from tests.functional.segment import announce, served

FLIPS = 10
ROUTER = ROUTERS[0].name

pytestmark = pytest.mark.timeout(240)


def test_routers_share_the_connections_among_all_nodes_in_both_families(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    cluster.serve("web", 3, namespace)
    announce(cluster, "web", namespace, *pair, ipFamilyPolicy="RequireDualStack")
    for router in ROUTERS:
        for ip in pair:
            at_all_nodes = partial(_has_hops, cluster, router.name, ip, 3)
            eventually(at_all_nodes, f"{router.name} has {ip} at all nodes", 30)
    for ip in pair:
        served(cluster, ip)
        assert len(cluster.answers(CLIENT, ip, 80, number=40)) == 3
    for node in cluster.nodes:
        # Nothing but the daemon reads the table: the node's own packets do not take it.
        assert "4242" not in cluster.lab.exec(node, "ip", "rule").stdout
    said = cluster.lab.exec(cluster.nodes[0], "ip", "route", "show", "table", "4242").stdout
    assert f"unreachable {pair[0]} proto 110 metric 100" in said


def _has_hops(cluster: Cluster, router: str, ip: str, number: int) -> bool:
    return len(hops(cluster, router, ip)) == number


def test_a_route_follows_the_first_and_the_last_ready_endpoint(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    ip = pair[0]
    announce(cluster, "web", namespace, ip, selector=None)
    came: list[float] = []
    went: list[float] = []
    changes = ((True, came, "the first endpoint is ready"), (False, went, "the last endpoint is no longer ready"))
    for number in range(FLIPS):
        for ready, found, change in changes:
            with RouteWatch(cluster, ROUTER, ip, bool if ready else _is_gone) as watch:
                cluster.apply(endpoint_slice("web-1", namespace, "web", (f"10.244.1.{100 + number}", ready)))
            found.append(watch.took_s)
            suite.record("routed", "followed after", "ms", watch.took_s * 1000, change=change)
            time.sleep(0.3)
    print(f"route after {_figures(came)}; gone after {_figures(went)}")
    assert median(came) < 1
    assert median(went) < 1


def _is_gone(number: int) -> bool:
    return number == 0


def _figures(times: list[float]) -> str:
    return f"{median(times):.3f} s, at most {max(times):.3f} s, n = {len(times)}"


def test_with_traffic_policy_local_only_nodes_with_endpoints_have_routes(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    ip, (first, second, _) = pair[0], cluster.nodes
    cluster.serve("web", 1, namespace, node=first)
    announce(cluster, "web", namespace, ip, externalTrafficPolicy="Local")
    routed(cluster, ROUTER, ip, first)
    cluster.serve("web", 2, namespace, node=second)
    routed(cluster, ROUTER, ip, first, second)
    kubectl = Kubectl(cluster)
    eventually(
        lambda: f"announced by {first}, {second}" in kubectl.run("get", "web", "-n", namespace).stdout, "get says it"
    )


@pytest.mark.parametrize("router", [ROUTERS[0].name, ROUTERS[-1].name])
def test_a_node_whose_last_endpoint_terminates_goes_on_but_others_are_preferred(
    cluster: Cluster, namespace: str, pair: tuple[str, str], router: str
) -> None:
    ip, (first, second, _) = pair[0], cluster.nodes
    announce(cluster, "web", namespace, ip, externalTrafficPolicy="Local", selector=None)
    terminating = {"ready": False, "serving": True, "terminating": True}

    def endpoints(*of: tuple[str, str, dict[str, bool]]) -> None:
        made = endpoint_slice("web-1", namespace, "web")
        made["endpoints"] = [
            {"addresses": [address], "nodeName": node, "conditions": conditions} for node, address, conditions in of
        ]
        cluster.apply(made)

    endpoints((first, "10.244.1.99", {"ready": True}))
    routed(cluster, router, ip, first)
    endpoints((first, "10.244.1.99", terminating))
    time.sleep(1)
    routed(cluster, router, ip, first)
    endpoints((first, "10.244.1.99", terminating), (second, "10.244.2.99", {"ready": True}))
    # The community GRACEFUL_SHUTDOWN makes the first the second choice, which it still is.
    routed(cluster, router, ip, second)
    table = cluster.lab.exec(first, "ip", "route", "show", "table", "4242").stdout
    assert f"unreachable {ip} proto 110 metric 200" in table
    endpoints((second, "10.244.2.99", {"ready": True}))
    eventually(lambda: ip not in cluster.lab.exec(first, "ip", "route", "show", "table", "4242").stdout, "it is gone")


def test_a_node_says_how_its_sessions_are(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    try:
        cluster.apply(peer("wrong-key", "172.31.0.250", passwordKey="missing"))
        eventually(lambda: _session(cluster, node, "wrong-key") != {}, "the session is told of", 20)
        said = _session(cluster, node, "wrong-key")
        assert (said["state"], said["prefixes"]) == ("Down", 0)
        assert "no usable password at missing" in said["lastError"]
        assert established(cluster, node) == SESSIONS, "the others go on"
        assert "BGP peer wrong-key" in Kubectl(cluster).run("why").stdout
    finally:
        cluster.delete("nftlbbgppeer", "wrong-key", "")
    eventually(lambda: _session(cluster, node, "wrong-key") == {}, "it is no longer told of", 20)


def _session(cluster: Cluster, node: str, name: str) -> dict[str, Any]:
    sessions = cluster.get("nftlbnode", node)["status"]["bgp"]["sessions"]
    return next((each for each in sessions if each["peer"] == name), {})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"asn": 0}, "spec.asn"),
        ({"communities": ["65536:1"]}, "community of two numbers"),
        ({"address": "127.0.0.1"}, "loopback"),
        ({"passwordKey": 'a"; }'}, "spec.passwordKey"),
    ],
)
def test_a_peer_that_cannot_be_is_refused(cluster: Cluster, spec: dict[str, Any], said: str) -> None:
    wrong = peer("wrong", "192.0.2.1")
    assert isinstance(wrong["spec"], dict)
    wrong["spec"].update(spec)
    assert said in cluster.refused(wrong)
