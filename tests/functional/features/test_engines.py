"""Two engines on each node: which one serves a farm, and moves between them while connections come and go."""

import socket

import pytest

from kube_nftlb import names
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique


def engine_of(cluster: Cluster, namespace: str, name: str = "web--http") -> str:
    return str(cluster.farm(name, namespace)["spec"]["engine"])


def are_served_by(cluster: Cluster, vips: list[str], engine: str) -> bool:
    """Return True if this engine alone has these VIPs on every node."""
    return all(set(served_by(cluster, vips, node)) == {frozenset({engine})} for node in cluster.nodes)


def served_by(cluster: Cluster, vips: list[str], node: str) -> list[frozenset[str]]:
    """The engines that have each of these VIPs on a node."""
    tables = {
        "nftlb": ("ip", "nftlb", "nat-proto-services"),
        "nftables": ("inet", "kube-nftlb-services", "services-ip"),
    }
    maps = {engine: cluster.lab.exec(node, "nft", "list", "map", *where).stdout for engine, where in tables.items()}
    return [frozenset(engine for engine, text in maps.items() if f" {vip} ." in text) for vip in vips]


def move(cluster: Cluster, namespace: str, engine: str) -> None:
    annotations = {f"{names.ANNOTATION_PREFIX}engine": engine}
    cluster.api.patch("service", "web", namespace, {"metadata": {"annotations": annotations}})
    eventually(lambda: engine_of(cluster, namespace) == engine, f"the farm asks for {engine}")
    vip = cluster.vip("web", namespace)
    eventually(lambda: are_served_by(cluster, [vip], engine), f"{engine} alone serves it")


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    cluster.apply(service("web", namespace, {"engine": "nftlb"}))
    cluster.serve("web", 3, namespace)
    cluster.farm_has("web--http", namespace, 3)
    return cluster.vip("web", namespace)


def test_a_live_service_moves_between_the_engines_and_no_connection_fails(
    cluster: Cluster, namespace: str, client: str, web: str
) -> None:
    with (
        cluster.hammer(client, web) as hammered,
        cluster.hammer(cluster.nodes[0], web) as from_node,
        cluster.streams(2, client, web) as streams,
    ):
        for engine in ("nftables", "nftlb", "nftables", "nftlb"):
            move(cluster, namespace, engine)
            cluster.reaches(client, cluster.pods("web", namespace), web)
    assert hammered["failures"] == from_node["failures"] == []
    assert all(stream["complete"] for stream in streams), streams


def test_udp_flows_go_on_when_their_farm_moves(cluster: Cluster, namespace: str, client: str) -> None:
    port = {"name": "http", "port": 53, "protocol": "UDP"}
    cluster.apply(service("web", namespace, {"engine": "nftlb"}, ports=[port]))
    cluster.serve("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    # One flow: it keeps its port.
    with cluster.lab.inside(client, lambda: socket.socket(type=socket.SOCK_DGRAM)) as asked:
        asked.connect((vip, 53))
        asked.settimeout(2)
        answers = {_ask(asked)}
        for engine in ("nftables", "nftlb"):
            cluster.apply(service("web", namespace, {"engine": engine}, ports=[port]))
            while not are_served_by(cluster, [vip], engine):
                answers.add(_ask(asked))
            answers |= {_ask(asked) for _ in range(100)}
    assert len(answers) == 1, "it stays with its endpoint"


def _ask(asked: socket.socket) -> bytes:
    asked.send(b"?")
    return asked.recv(1000)


def test_what_an_engine_cannot_do_it_refuses_with_a_sentence(cluster: Cluster, namespace: str) -> None:
    """tests/unit/agent/engine has all that it cannot do."""
    backends = [{"name": "a", "ip": "10.244.1.200", "port": 80}]
    addresses = [{"ip": unique(), "ports": "80"}]
    cluster.apply(farm("web", namespace, addresses=addresses, engine="nftables", backends=backends, mode="dsr"))
    sentence = "the engine nftables serves the modes snat and dnat, not dsr; use the engine nftlb"
    eventually(lambda: sentence in cluster.reason("web", namespace), "the farm says so")


def test_kubectl_shows_who_serves_what(cluster: Cluster, namespace: str, web: str) -> None:
    move(cluster, namespace, "nftables")
    shown = cluster.kubectl("get", "farms", "-n", namespace, "-o", "wide").splitlines()
    column = shown[0].split().index("ENGINE")
    assert shown[1].split()[column] == "nftables"
    node = cluster.nodes[0]
    eventually(lambda: cluster.get("nftlbnode", node)["status"]["engines"]["nftables"] > 0, "the node counts it")
    assert cluster.get("nftlbnode", node)["status"]["engines"].keys() == {"nftlb", "nftables"}
    assert web in cluster.nft(node, "list", "map", "inet", "kube-nftlb-services", "services-ip")
