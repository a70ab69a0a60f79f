"""Two engines on each node: which one serves a farm, and moves between them while connections come and go."""

import contextlib
import socket
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from kube_nftlb import names
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(240)

VIP = "10.99.90.1"


def engine_of(cluster: Cluster, namespace: str, name: str = "web--http") -> str:
    return str(cluster.farm(name, namespace)["spec"]["engine"])


def is_served_by(cluster: Cluster, vip: str, engine: str) -> bool:
    """Return True if this engine alone has a VIP on every node."""
    return all(served_by(cluster, vip, node) == {engine} for node in cluster.nodes)


def served_by(cluster: Cluster, vip: str, node: str) -> set[str]:
    tables = {
        "nftlb": ("ip", "nftlb", "nat-proto-services"),
        "nftables": ("inet", "kube-nftlb-services", "services-ip"),
    }
    return {
        engine
        for engine, where in tables.items()
        if f" {vip} ." in cluster.lab.exec(node, "nft", "list", "map", *where).stdout
    }


def reason(cluster: Cluster, name: str, namespace: str) -> str:
    return str(cluster.farm(name, namespace).get("status", {}).get("reason", ""))


def move(cluster: Cluster, namespace: str, engine: str) -> None:
    annotation = f"{names.ANNOTATION_PREFIX}engine={engine}"
    cluster.kubectl("annotate", "--overwrite", "service", "web", "-n", namespace, annotation)
    eventually(lambda: engine_of(cluster, namespace) == engine, f"the farm asks for {engine}")
    vip = cluster.vip("web", namespace)
    eventually(lambda: is_served_by(cluster, vip, engine), f"{engine} alone serves it")


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    cluster.apply(service("web", namespace, {"engine": "nftlb"}))
    cluster.run("web", 3, namespace)
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
    cluster.run("web", 2, namespace, ports=[{"containerPort": 53, "protocol": "UDP"}])
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    # One flow: it keeps its port.
    with cluster.lab.inside(client, lambda: socket.socket(type=socket.SOCK_DGRAM)) as asked:
        asked.connect((vip, 53))
        asked.settimeout(2)
        answers = {_ask(asked)}
        for engine in ("nftables", "nftlb"):
            cluster.apply(service("web", namespace, {"engine": engine}, ports=[port]))
            while not is_served_by(cluster, vip, engine):
                answers.add(_ask(asked))
            answers |= {_ask(asked) for _ in range(100)}
    assert len(answers) == 1, "it stays with its endpoint"


def _ask(asked: socket.socket) -> bytes:
    asked.send(b"?")
    return asked.recv(1000)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"mode": "dsr"}, "the engine nftables serves the modes snat and dnat, not dsr; use the engine nftlb"),
        ({"persistence": "srcmac"}, "the engine nftables remembers clients by srcip, not by srcmac"),
    ],
)
def test_what_an_engine_cannot_do_it_refuses_with_a_sentence(
    cluster: Cluster, namespace: str, spec: dict[str, str], sentence: str
) -> None:
    backends = [{"name": "a", "ip": "10.244.1.200", "port": 80}]
    cluster.apply(
        farm("web", namespace, addresses=[{"ip": VIP, "ports": "80"}], engine="nftables", backends=backends, **spec)
    )
    eventually(
        lambda: sentence in cluster.farm("web", namespace).get("status", {}).get("reason", ""), "the farm says so"
    )


def test_kubectl_shows_who_serves_what(cluster: Cluster, namespace: str, web: str) -> None:
    move(cluster, namespace, "nftables")
    shown = cluster.kubectl("get", "farms", "-n", namespace, "-o", "wide").splitlines()
    column = shown[0].split().index("ENGINE")
    assert shown[1].split()[column] == "nftables"
    node = cluster.nodes[0]
    eventually(lambda: cluster.get("nftlbnode", node)["status"]["engines"]["nftables"] > 0, "the node counts it")
    assert cluster.get("nftlbnode", node)["status"]["engines"].keys() == {"nftlb", "nftables"}
    assert web in cluster.nft(node, "list", "map", "inet", "kube-nftlb-services", "services-ip")


@contextlib.contextmanager
def operator_with(cluster: Cluster, engine: str) -> Iterator[None]:
    """In place of the lab's operator one with another default engine, as after an upgrade of the chart."""
    settings = (
        f"KUBE_NFTLB_DEFAULT_ENGINE={engine}",
        "KUBE_NFTLB_LOG_LEVEL=ERROR",
        "KUBE_NFTLB_METRICS_ADDRESS=127.0.0.1:9395",
        "KUBE_NFTLB_HEALTH_ADDRESS=127.0.0.1:9396",
    )
    process = cluster.lab.popen(cluster.nodes[0], "env", *settings, sys.executable, "-m", "kube_nftlb", "operator")
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_all_farms_move_at_once_by_an_upgrade_of_the_chart(cluster: Cluster, namespace: str, client: str) -> None:
    services = [f"web-{number}" for number in range(20)]
    cluster.lab.stop("operator")
    try:
        with operator_with(cluster, "nftlb"):
            cluster.apply(*(service(name, namespace, selector={"app": "web"}) for name in services))
            cluster.run("web", 3, namespace)
            for name in services:
                cluster.farm_has(f"{name}--http", namespace, 3)
        vips = [cluster.vip(name, namespace) for name in services]
        for engine in ("nftables", "nftlb"):
            with (
                cluster.hammer(client, vips[0]) as first,
                cluster.hammer(client, vips[-1]) as last,
                operator_with(cluster, engine),
            ):
                for vip in vips:
                    eventually(partial(is_served_by, cluster, vip, engine), f"{engine} serves {vip}", 60)
            assert first["failures"] == last["failures"] == []
    finally:
        cluster.lab.start("operator")


def test_the_other_engine_s_farms_go_on_while_nftlb_is_away(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace, {"engine": "nftables"}))
    cluster.run("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    node = cluster.nodes[0]
    cluster.lab.stop("nftlb", node)
    try:
        cluster.scale("web", 4, namespace)
        cluster.rolled_out("web", 4, namespace)
        cluster.reaches(client, cluster.pods("web", namespace), vip)
        backends = [{"name": "a", "ip": "10.244.1.200", "port": 80}]
        cluster.apply(
            farm("waits", namespace, addresses=[{"ip": VIP, "ports": "80"}], engine="nftlb", backends=backends)
        )
        eventually(
            lambda: "nftlb does not answer" in reason(cluster, "waits", namespace),
            "only nftlb's farm waits",
        )
    finally:
        cluster.lab.start("nftlb", node)
    cluster.wait("farm", "waits", "Programmed", namespace)


def test_the_field_of_a_farm_is_validated(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(AssertionError, match=r"spec\.engine: Unsupported value"):
        cluster.apply(farm("wrong", namespace, addresses=[{"ip": VIP, "ports": "80"}], engine="ipvs"))


def test_a_new_node_on_which_nftlb_never_starts_serves_the_farms_of_the_other_engine(
    cluster: Cluster, namespace: str
) -> None:
    node = cluster.nodes[0]
    cluster.apply(service("web", namespace, {"engine": "nftables"}))
    cluster.run("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    cluster.lab.stop("agent", node)
    cluster.lab.stop("nftlb", node)
    try:
        cleaned = cluster.lab.exec(node, "kube-nftlb", "clean")
        assert cleaned.returncode == 0, cleaned.stderr
        cluster.lab.start("agent", node)
        eventually(lambda: served_by(cluster, vip, node) == {"nftables"}, "served without nftlb", 30)
        cluster.reaches(node, cluster.pods("web", namespace), vip)
    finally:
        cluster.lab.start("nftlb", node)
    eventually(lambda: cluster.get("nftlbnode", node)["status"]["failed"] == 0, "nothing is left of it", 60)
