"""Each file in examples/ does what its first lines promise. All of them are applied to one cluster, side by side.

Those whose tests lack the marker ``long`` are applied to the lab of the functional tests.
"""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from kube_nftlb import names
from tests import labs
from tests.builders.manifests import client_pod
from tests.chance import is_likely
from tests.docs.reader import ROOT
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.conftest import LAB
from tests.functional.features.disturbing.test_logs import traced
from tests.functional.features.test_helpers import FTP, fetch, programmed
from tests.functional.features.test_modes import loopback

pytestmark = pytest.mark.timeout(240)

EXAMPLES = ROOT / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))
OUTSIDE = "client"
OUTSIDE_IP = "172.31.0.200"
POD = "default/somebody"


def files_of(items: Iterable[pytest.Item]) -> list[Path]:
    """The files of the examples whose tests are among these."""
    names = {item.name.partition("[")[0].removeprefix("test_example_").replace("_", "-") for item in items}
    return [path for path in FILES if path.stem in names]


@pytest.fixture(scope="module")
def files(request: pytest.FixtureRequest) -> list[Path]:
    """The files that are applied: those of the tests that are to run, or all if they run for none in particular."""
    return files_of(request.session.items) or FILES


@pytest.fixture(scope="module")
def cluster(files: list[Path]) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        if {EXAMPLES / f"{name}.yaml" for name in ("readiness-gate", "addresses", "addresses-bgp", "gateway")} & set(
            files
        ):
            switches = ("READINESS_GATE", "ADDRESSES", "GATEWAY")
            settings = {"operator": {f"KUBE_NFTLB_{switch}": "on" for switch in switches}}
            own = running("examples", nodes=2, zones=["a", "b"], settings=settings, gateway_api=True)
            cluster = stack.enter_context(own)
        else:
            cluster = stack.enter_context(contextlib.closing(Cluster(labs.shared("functional", **LAB))))
        given = [f"--filename={path}" for path in files]
        cluster.apply(client_pod("somebody", "default", cluster.nodes[0]))
        stack.callback(cluster.delete, "pod", "somebody")
        cluster.kubectl("apply", *given)
        stack.callback(cluster.kubectl, "delete", "--wait=false", "--ignore-not-found", *given)
        for kind in ("deployment", "statefulset"):
            for each in cluster.get(kind)["items"]:
                cluster.kubectl("rollout", "status", f"{kind}/{each['metadata']['name']}", "--timeout=90s")
        cluster.wait("pod", "somebody", "Ready")
        yield cluster


def farm_ready(cluster: Cluster, name: str, ready: int) -> None:
    cluster.farm_has(name, "default", ready)


def pods(cluster: Cluster, **labels: str) -> list[str]:
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    names = cluster.kubectl("get", "pods", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}")
    return names.split()


def node_of(cluster: Cluster, pod: str) -> str:
    return str(cluster.get("pod", pod)["spec"]["nodeName"])


def reaches(cluster: Cluster, where: str, app: str, host: str, port: int = 80) -> None:
    cluster.reaches(where, pods(cluster, app=app), host, port)


@contextlib.contextmanager
def address(cluster: Cluster, where: str, ip: str) -> Iterator[None]:
    """A further address for the client outside."""
    cluster.lab.exec(where, "ip", "address", "add", f"{ip}/32", "dev", "eth0")
    try:
        yield
    finally:
        cluster.lab.exec(where, "ip", "address", "delete", f"{ip}/32", "dev", "eth0")


def test_every_example_is_tested_and_says_what_it_shows() -> None:
    named = {path.stem.replace("-", "_") for path in FILES}
    tests = {name.removeprefix("test_example_") for name in globals() if name.startswith("test_example_")}
    assert tests == named
    for path in FILES:
        assert path.read_text().startswith("# "), path.name


@pytest.mark.parametrize("_part", ["test", pytest.param("rest", marks=pytest.mark.long)])
def test_every_farm_of_an_example_is_programmed(cluster: Cluster, files: list[Path], _part: str) -> None:
    """Of the examples that a part of the tests applies: `make test` few, `make test-rest` the others."""
    for path in files:
        names = {each["metadata"]["name"] for each in yaml.safe_load_all(path.read_text())}
        farms = [farm for farm in cluster.get("farm")["items"] if farm["metadata"]["name"].partition("--")[0] in names]
        assert farms, path
        for farm in farms:
            programmed(cluster, farm["metadata"]["name"], "default")


@pytest.mark.parametrize("where", [OUTSIDE, POD, "node-2"])
@pytest.mark.long
def test_example_clusterip(cluster: Cluster, where: str) -> None:
    reaches(cluster, where, "clusterip", cluster.vip("clusterip", "default"))


@pytest.mark.long
def test_example_addresses(cluster: Cluster) -> None:
    has_addresses(cluster, "addresses", "198.51.100.11", "2001:db8:100::")


@pytest.mark.long
def test_example_addresses_bgp(cluster: Cluster) -> None:
    has_addresses(cluster, "addresses-bgp", "198.51.100.32", "2001:db8:200::")


def has_addresses(cluster: Cluster, name: str, *ips: str) -> None:
    def given() -> list[str]:
        status = cluster.get("service", name)["status"]["loadBalancer"]
        return [each["ip"] for each in status.get("ingress", [])]

    eventually(lambda: given() == list(ips), "the Service has an address of each family")
    for ip in ips:
        reaches(cluster, POD, name, ip)


@pytest.mark.long
def test_example_gateway(cluster: Cluster) -> None:
    cluster.wait("gateway", "edge", "Programmed")
    (address,) = cluster.get("gateway", "edge")["status"]["addresses"]
    assert address["value"] == "203.0.113.16"
    cluster.reaches(POD, pods(cluster, app="gateway"), address["value"], 8080)
    counted = cluster.count(POD, 400, address["value"], 8080)["answers"]
    assert is_likely(sum(counted[pod] for pod in pods(cluster, app="gateway", track="new")), 400, 0.1), counted


@pytest.mark.long
def test_example_engine(cluster: Cluster) -> None:
    vip = cluster.vip("engine", "default")
    reaches(cluster, POD, "engine", vip)
    listed = cluster.nft(cluster.nodes[0], "list", "table", "inet", "kube-nftlb-services")
    assert f'{vip} . 80 comment "engine--http"' in listed
    assert "chain engine" not in listed
    assert vip not in cluster.nft(cluster.nodes[0], "list", "table", "ip", "nftlb")


def test_example_my_service(cluster: Cluster) -> None:
    reaches(cluster, OUTSIDE, "front", cluster.vip("my-service", "default"), 8080)


@pytest.mark.long
def test_example_nodeport(cluster: Cluster) -> None:
    for node in cluster.lab.nodes:
        for interface in node.addresses[:1]:
            reaches(cluster, OUTSIDE, "nodeport", str(interface.ip), 30080)


@pytest.mark.long
def test_example_external_ips(cluster: Cluster) -> None:
    reaches(cluster, OUTSIDE, "external-ips", "192.0.2.10")


@pytest.mark.long
def test_example_source_ranges(cluster: Cluster) -> None:
    status = '{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.11"}]}}}'
    cluster.kubectl("patch", "service", "source-ranges", "--subresource=status", "--type=merge", "-p", status)
    reaches(cluster, OUTSIDE, "source-ranges", "192.0.2.11")
    with address(cluster, OUTSIDE, "172.31.0.201"):
        refused = cluster.count(OUTSIDE, 2, "192.0.2.11", 80, "--source", "172.31.0.201", "--timeout", "0.5")
    assert refused["failures"] == {"timeout": 2}


def one_pod(cluster: Cluster, service: str, where: str, *options: str) -> str:
    """The pod that answers all of many connections."""
    farm_ready(cluster, f"{service}--http", 2)
    counted = cluster.count(where, 20, cluster.vip(service, "default"), 80, *options)
    assert len(counted["answers"]) == 1, counted
    assert not any(counted["failures"].values()), counted
    return str(next(iter(counted["answers"])))


@pytest.mark.long
def test_example_session_affinity(cluster: Cluster) -> None:
    assert one_pod(cluster, "session-affinity", OUTSIDE) == one_pod(cluster, "session-affinity", OUTSIDE)
    assert cluster.farm("session-affinity--http", "default")["spec"]["persistTTL"] == 600


@pytest.mark.long
def test_example_persistence(cluster: Cluster) -> None:
    assert one_pod(cluster, "persistence", OUTSIDE) == "persistence-1", "the session that is written down"
    assert one_pod(cluster, "persistence", POD) == one_pod(cluster, "persistence", POD)


def test_example_canary(cluster: Cluster) -> None:
    farm_ready(cluster, "canary--http", 2)
    counted = cluster.count(POD, 100, cluster.vip("canary", "default"))["answers"]
    (new,) = pods(cluster, app="canary", track="new")
    assert set(counted) == {new, *pods(cluster, app="canary", track="stable")}
    # Any 100 in turn hold 10 of the canary's, or one more or less where others connect meanwhile.
    assert abs(counted[new] - 10) <= 1, counted


def test_example_weighted(cluster: Cluster) -> None:
    farm_ready(cluster, "weighted", 3)
    new, vip = pods(cluster, app="weighted", track="new"), "10.99.0.62"
    cluster.reaches(POD, pods(cluster, app="weighted"), vip)
    counted = cluster.count(POD, 400, vip)["answers"]
    assert is_likely(sum(counted[pod] for pod in new), 400, 0.1), counted
    for first, second, expected in ((0, 1, new), (1, 0, pods(cluster, app="weighted", track="stable"))):
        operations = [
            {"op": "replace", "path": f"/spec/backendsFrom/{number}/weight", "value": weight}
            for number, weight in enumerate((first, second))
        ]
        cluster.kubectl("patch", "farm", "weighted", "--type=json", "-p", json.dumps(operations))
        cluster.reaches(POD, expected, vip)


@pytest.mark.long
def test_example_readiness_gate(cluster: Cluster) -> None:
    gated = pods(cluster, app="readiness-gate")
    for pod in gated:
        conditions = cluster.get("pod", pod)["status"]["conditions"]
        found = {each["type"]: (each["status"], each.get("reason")) for each in conditions}
        assert found[names.READINESS_GATE] == ("True", "AllNodes")
        assert found["Ready"][0] == "True"
    reaches(cluster, POD, "readiness-gate", cluster.vip("readiness-gate", "default"))


@pytest.mark.long
def test_example_hot_standby(cluster: Cluster) -> None:
    vip, first = cluster.vip("hot-standby", "default"), pods(cluster, rank="first")
    cluster.reaches(POD, first, vip)
    cluster.lab.pod(False, f"default/{first[0]}")
    try:
        cluster.reaches(POD, pods(cluster, rank="second"), vip)
    finally:
        cluster.lab.pod(True, f"default/{first[0]}")
    cluster.reaches(POD, first, vip)


@pytest.mark.long
def test_example_dsr(cluster: Cluster) -> None:
    # The client outside comes in by the first node.
    here = [pod for pod in pods(cluster, app="dsr") if node_of(cluster, pod) == cluster.nodes[0]]
    vip = cluster.vip("dsr", "default")
    cluster.reaches(OUTSIDE, here, vip)
    assert set(cluster.count(OUTSIDE, 10, vip)["peers"]) == {OUTSIDE_IP}
    assert loopback(cluster, f"default/{here[0]}") == {vip}


def test_example_backends_from(cluster: Cluster) -> None:
    farm_ready(cluster, "backends-from-weighted", 4)
    first, *others = sorted(pods(cluster, app="backends-from"))
    wanted = {first: 30, **dict.fromkeys(others, 10)}
    eventually(lambda: cluster.count(POD, 60, "10.99.0.60", 8080)["answers"] == wanted, "the first gets half")
    here = [pod for pod in (first, *others) if node_of(cluster, pod) == cluster.nodes[0]]
    cluster.reaches(OUTSIDE, here, "10.99.0.61")
    before = cluster.farm("backends-from-weighted", "default")["metadata"]["generation"]
    cluster.kubectl("scale", "statefulset", "backends-from", "--replicas=5")
    cluster.kubectl("rollout", "status", "statefulset/backends-from", "--timeout=60s")
    cluster.reaches(POD, sorted(pods(cluster, app="backends-from")), "10.99.0.60", 8080)
    assert cluster.farm("backends-from-weighted", "default")["metadata"]["generation"] == before


@pytest.mark.long
def test_example_ftp(cluster: Cluster) -> None:
    if (found := programmed(cluster, "ftp--ftp", "default"))["status"] != "True":
        pytest.skip(found["message"])
    # The lab's pods run no FTP server; without a port in the template this one is free for ours.
    patch = '[{"op":"remove","path":"/spec/template/spec/containers/0/ports"}]'
    cluster.kubectl("patch", "deployment", "ftp", "--type=json", "-p", patch)
    cluster.kubectl("rollout", "status", "deployment/ftp", "--timeout=60s")
    (pod,) = cluster.pods("ftp", "default")
    farm_ready(cluster, "ftp--ftp", 1)
    vip, own = cluster.vip("ftp", "default"), cluster.get("pod", pod)["status"]["podIP"]
    server = cluster.lab.popen(f"default/{pod}", sys.executable, FTP, "serve")
    try:
        ask_it = (sys.executable, FTP, "fetch", own, "21", "passive")
        eventually(lambda: cluster.lab.exec(POD, *ask_it).returncode == 0, "the server answers")
        assert fetch(cluster, POD, vip, "passive") == {"complete": True, "data": vip}
        assert fetch(cluster, POD, vip, "active")["complete"]
    finally:
        server.terminate()
        server.communicate(timeout=10)


@pytest.mark.long
def test_example_limits(cluster: Cluster) -> None:
    farm_ready(cluster, "limits--http", 1)
    vip = cluster.vip("limits", "default")

    def dropped() -> bool:
        return bool(cluster.count(POD, 1, vip, 80, "--timeout", "0.5")["failures"].get("timeout"))

    with cluster.streams(5, POD, vip) as streams:
        eventually(dropped, "a sixth connection is dropped while five are open", 8)
    assert all(stream["complete"] for stream in streams), streams
    counted = cluster.count(POD, 40, vip, 80, "--timeout", "0.2")
    assert counted["failures"].get("timeout", 0) > 5, "the burst is used up"
    assert not any(cluster.count(OUTSIDE, 5, vip)["failures"].values()), "another client has its own"


@pytest.mark.long
def test_example_on_gone(cluster: Cluster) -> None:
    farm_ready(cluster, "on-gone--http", 2)
    vip, served_by = cluster.vip("on-gone", "default"), cluster.pods("on-gone", "default")
    with cluster.lab.inside(POD, lambda: socket.create_connection((vip, 80), 30)) as waiting:
        for name in served_by:
            cluster.lab.pod(False, f"default/{name}")
        try:
            with pytest.raises(ConnectionResetError):
                waiting.recv(1)
        finally:
            for name in served_by:
                cluster.lab.pod(True, f"default/{name}")


@pytest.mark.long
def test_example_logging(cluster: Cluster) -> None:
    farm_ready(cluster, "logging--http", 1)
    with traced(cluster, cluster.nodes[0]) as lines:
        cluster.count(POD, 1, cluster.vip("logging", "default"))
    assert sorted(lines) == ["FWD-shop ", "IN-shop "]


def test_example_policies(cluster: Cluster) -> None:
    for name in ("policies-shop--http", "policies-wiki--http"):
        farm_ready(cluster, name, 1)
    for name in ("office", "printers"):
        cluster.wait("nftlbpolicy", name, "Programmed")
    shop, wiki = (cluster.vip(f"policies-{name}", "default") for name in ("shop", "wiki"))
    reaches(cluster, OUTSIDE, "policies", shop)
    reaches(cluster, OUTSIDE, "policies", wiki)
    kept_out = {"timeout": 2}
    assert cluster.count(POD, 2, shop, 80, "--timeout", "0.5")["failures"] == kept_out, "a pod is not in the office"
    with address(cluster, OUTSIDE, "172.31.0.130"):
        printer = ("--source", "172.31.0.130", "--timeout", "0.5")
        assert not any(cluster.count(OUTSIDE, 2, shop, 80, *printer)["failures"].values())
        assert cluster.count(OUTSIDE, 2, wiki, 80, *printer)["failures"] == kept_out


@pytest.mark.long
def test_example_port_range(cluster: Cluster) -> None:
    for port in (8000, 8001, 8002, 8003):
        reaches(cluster, POD, "port-range", cluster.vip("port-range", "default"), port)


@pytest.mark.long
def test_example_all_ports(cluster: Cluster) -> None:
    farm_ready(cluster, "all-ports--any", 1)
    vip, expected = cluster.vip("all-ports", "default"), set(pods(cluster, app="all-ports"))
    assert cluster.answers(POD, vip, 80) == expected
    assert cluster.answers(POD, vip, 5000, "--udp") == expected


def test_example_dual_stack(cluster: Cluster) -> None:
    for family in ("ipv4", "ipv6"):
        reaches(cluster, POD, "dual-stack", cluster.vip("dual-stack", "default", family))


@pytest.mark.long
def test_example_client_address(cluster: Cluster) -> None:
    for node in cluster.lab.nodes:
        ip = str(node.addresses[0].ip)
        here = [pod for pod in pods(cluster, app="client-address") if node_of(cluster, pod) == node.name]
        assert here, "the lab spreads pods over its nodes"
        cluster.reaches(OUTSIDE, here, ip, 30081)
        assert set(cluster.count(OUTSIDE, 3, ip, 30081)["peers"]) == {OUTSIDE_IP}


def in_the_same(place: Callable[[Cluster, str], str], cluster: Cluster, app: str) -> list[str]:
    mine = place(cluster, "somebody")
    return [pod for pod in pods(cluster, app=app) if place(cluster, pod) == mine]


@pytest.mark.long
def test_example_local_traffic(cluster: Cluster) -> None:
    here = in_the_same(node_of, cluster, "local-traffic")
    assert len(here) == 1
    cluster.reaches(POD, here, cluster.vip("local-traffic", "default"))


@pytest.mark.long
def test_example_prefer_same_zone(cluster: Cluster) -> None:
    # Each zone has one node.
    here = in_the_same(node_of, cluster, "prefer-same-zone")
    assert len(here) == 1
    cluster.reaches(POD, here, cluster.vip("prefer-same-zone", "default"))


@pytest.mark.long
def test_example_external_backend(cluster: Cluster) -> None:
    servers = ("192.0.2.21", "192.0.2.22")
    with contextlib.ExitStack() as stack:
        for ip in servers:
            stack.enter_context(address(cluster, OUTSIDE, ip))
            for node in cluster.nodes:
                cluster.lab.exec(node, "ip", "route", "add", ip, "via", OUTSIDE_IP)
        first = stack.enter_context(serving(cluster, servers[0]))
        stack.enter_context(serving(cluster, servers[1]))
        farm_ready(cluster, "external-backend", 2)

        def first_answers(where: str) -> bool:
            return ask(cluster, where) == servers[0]

        for where in (POD, cluster.nodes[1]):
            eventually(partial(first_answers, where), f"the first answers {where}")
        patch = '[{"op":"add","path":"/spec/backends/0/state","value":"drain"}]'
        cluster.kubectl("patch", "farm", "external-backend", "--type=json", "-p", patch)
        eventually(lambda: ask(cluster, POD) == servers[1], "the second takes over")
        assert first.poll() is None


def ask(cluster: Cluster, where: str) -> str:
    """The server that answers at the farm's address."""
    return cluster.lab.exec(where, "curl", "-s", "-m", "2", "http://10.99.0.50:5432").stdout.strip()


@contextlib.contextmanager
def serving(cluster: Cluster, ip: str) -> Iterator[subprocess.Popen[str]]:
    """A server outside the cluster, which answers with its address."""
    script = (
        "import http.server as h, sys\n"
        "class Answer(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200), self.end_headers(), self.wfile.write(sys.argv[1].encode())\n"
        "h.HTTPServer((sys.argv[1], 5432), Answer).serve_forever()\n"
    )
    process = cluster.lab.popen(OUTSIDE, sys.executable, "-c", script, ip)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=10)
