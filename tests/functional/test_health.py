"""The health checks of load balancers and of the kubelet."""

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from lab import addresses
from tests.builders.manifests import farm
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(240)

CLIENT = "client"
PORT = 10256
CHECK_PORT = 31999
SHORT_S = 1

ASK = """
import json, sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=5)
except urllib.error.HTTPError as error:
    answer = error
except OSError as error:
    print(json.dumps([0, str(error), {}]))
    sys.exit()
print(json.dumps([answer.status, json.load(answer), dict(answer.headers)]))
"""


class Told(NamedTuple):
    """The answer to a request; status 0 and an error where there was none."""

    status: int
    body: Any
    headers: dict[str, str]


def ask(cluster: Cluster, host: str, path: str, port: int = PORT) -> Told:
    """A request from outside of the nodes."""
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    done = cluster.lab.exec(CLIENT, sys.executable, "-c", ASK, url)
    assert done.returncode == 0, done.stderr
    return Told(*json.loads(done.stdout))


def ips(cluster: Cluster, node: str) -> list[str]:
    return [str(address.ip) for plan in cluster.lab.nodes if plan.name == node for address in plan.addresses]


def until_status(cluster: Cluster, node: str, path: str, status: int, port: int = PORT) -> Told:
    ip = ips(cluster, node)[0]
    eventually(lambda: ask(cluster, ip, path, port).status == status, f"{node} answers {status} to {path} on {port}")
    return ask(cluster, ip, path, port)


def test_the_agents_tell_their_health_on_all_addresses_of_their_node(cluster: Cluster) -> None:
    for node in cluster.nodes:
        until_status(cluster, node, "/readyz", 200)
        for ip in ips(cluster, node):
            told = ask(cluster, ip, "/healthz")
            assert (told.status, told.headers["Content-Type"]) == (200, "application/json")
            assert set(told.body) == {"lastUpdated", "currentTime", "nodeEligible", "healthy"}
            assert told.body["nodeEligible"] is told.body["healthy"] is True
            live = ask(cluster, ip, "/livez")
            assert (live.status, set(live.body)) == (200, {"lastUpdated", "currentTime", "healthy"})


def test_the_operator_tells_its_health(cluster: Cluster) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert ask(cluster, addresses.API_HOST, path, 9196).status == 200


def test_a_node_about_to_be_removed_gets_no_traffic_and_its_agent_lives(cluster: Cluster) -> None:
    node, other = cluster.nodes[1], cluster.nodes[0]
    taint = "ToBeDeletedByClusterAutoscaler"
    cluster.kubectl("taint", "node", node, f"{taint}=:NoSchedule")
    try:
        told = until_status(cluster, node, "/healthz", 503)
        assert (told.body["nodeEligible"], told.body["healthy"]) == (False, True)
        assert until_status(cluster, node, "/livez", 200).body["healthy"] is True
        assert until_status(cluster, other, "/healthz", 200).status == 200
    finally:
        cluster.kubectl("taint", "node", node, f"{taint}-")
    until_status(cluster, node, "/healthz", 200)


def test_an_agent_without_nftlb_is_unready_but_alive_while_nothing_waits(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    until_status(cluster, node, "/readyz", 200)
    cluster.lab.stop("nftlb", node)
    try:
        told = until_status(cluster, node, "/readyz", 503)
        assert told.body["nftlbReachable"] is False
        assert until_status(cluster, node, "/livez", 200).status == 200
    finally:
        cluster.lab.start("nftlb", node)
    until_status(cluster, node, "/readyz", 200)


@pytest.mark.engine("nftlb", "another engine goes on without nftlb (test_engines)")
def test_an_agent_that_cannot_program_a_pending_change_is_unhealthy(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[1]
    with impatient_agent(cluster, node):
        until_status(cluster, node, "/readyz", 200)
        cluster.lab.stop("nftlb", node)
        try:
            addresses = [{"ip": "198.51.100.1", "ports": "80"}]
            cluster.apply(farm("waits", namespace, addresses=addresses, engine="nftlb"))
            told = until_status(cluster, node, "/healthz", 503)
            assert (told.body["nodeEligible"], told.body["healthy"]) == (True, False)
            assert told.body["lastUpdated"] < told.body["currentTime"]
            until_status(cluster, node, "/livez", 503)
        finally:
            cluster.lab.start("nftlb", node)
        until_status(cluster, node, "/healthz", 200)
        until_status(cluster, node, "/livez", 200)


def test_a_health_check_port_tells_which_nodes_have_ready_endpoints(cluster: Cluster, namespace: str) -> None:
    here, there = cluster.nodes
    backends = [
        {"name": "a", "ip": "10.244.1.200", "port": 80, "nodeName": here},
        {"name": "b", "ip": "10.244.1.201", "port": 80, "nodeName": here},
        {"name": "c", "ip": "10.244.2.200", "port": 80, "nodeName": there, "ready": False, "terminating": True},
    ]
    checked = {"addresses": [{"ip": "198.51.100.2", "ports": "80"}], "healthCheckNodePort": CHECK_PORT}
    cluster.apply(farm("checked", namespace, **checked, backends=backends))
    told = until_status(cluster, here, "/any/path", 200, CHECK_PORT)
    assert told.body == {
        "service": {"namespace": namespace, "name": "checked"},
        "localEndpoints": 2,
        "serviceProxyHealthy": True,
    }
    assert told.headers["X-Load-Balancing-Endpoint-Weight"] == "2"
    assert told.headers["Content-Type"] == "application/json"
    assert ask(cluster, ips(cluster, here)[1], "/", CHECK_PORT).status == 200
    told = until_status(cluster, there, "/", 503, CHECK_PORT)
    assert (told.body["localEndpoints"], told.headers["X-Load-Balancing-Endpoint-Weight"]) == (0, "0")
    backends[2] |= {"ready": True, "terminating": False}
    cluster.apply(farm("checked", namespace, **checked, backends=backends))
    until_status(cluster, there, "/", 200, CHECK_PORT)
    cluster.delete("farm", "checked", namespace)
    for node in cluster.nodes:
        assert "refused" in until_status(cluster, node, "/", 0, CHECK_PORT).body


def test_an_occupied_health_check_port_is_reported_and_taken_once_free(cluster: Cluster, namespace: str) -> None:
    here = cluster.nodes[0]
    with listening(cluster, here, CHECK_PORT):
        cluster.apply(
            farm(
                "checked",
                namespace,
                addresses=[{"ip": "198.51.100.3", "ports": "80"}],
                healthCheckNodePort=CHECK_PORT,
                backends=[{"name": "a", "ip": "10.244.1.200", "port": 80, "nodeName": here}],
            )
        )
        eventually(lambda: bool(warnings(cluster, namespace)), "an Event tells of it")
        (warning,) = warnings(cluster, namespace)
        assert (warning["involvedObject"]["kind"], warning["involvedObject"]["name"]) == ("NftlbFarm", "checked")
        assert (warning["source"]["host"], warning["type"]) == (here, "Warning")
        assert f"{CHECK_PORT}: Address already in use" in warning["message"]
        cluster.wait("farm", "checked", "Programmed", namespace)
    until_status(cluster, here, "/", 200, CHECK_PORT)


def warnings(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = cluster.get("event", namespace=namespace)["items"]
    return [event for event in events if event["reason"] == "FailedToStartServiceHealthcheck"]


@contextlib.contextmanager
def listening(cluster: Cluster, node: str, port: int) -> Iterator[None]:
    """A process that listens on all addresses of a node."""
    program = f"import socket; s = socket.create_server(('', {port})); print('listens', flush=True); input()"
    process = cluster.lab.popen(node, sys.executable, "-c", program)
    assert process.stdout is not None
    assert process.stdout.readline() == "listens\n"
    try:
        yield
    finally:
        process.communicate("\n", timeout=10)


@contextlib.contextmanager
def impatient_agent(cluster: Cluster, node: str) -> Iterator[None]:
    """In place of a node's agent one that calls itself unhealthy after ``SHORT_S``."""
    settings = (
        f"KUBE_NFTLB_NODE_NAME={node}",
        f"KUBE_NFTLB_SYNC_OVERDUE_SECONDS={SHORT_S}",
        "KUBE_NFTLB_NFTLB_PORT=5555",
        "KUBE_NFTLB_LOG_LEVEL=ERROR",
    )
    cluster.lab.stop("agent", node)
    process = cluster.lab.popen(node, "env", *settings, sys.executable, "-m", "kube_nftlb", "agent")
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)
        cluster.lab.start("agent", node)
