"""``kube-nftlb trace``: every way in which a connection can end, as the command tells it.

What the objects alone tell (``--dry-run``) must be the same, where the objects decide.
"""

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kube_nftlb import addresses
from lab.addresses import CLIENT
from tests.builders.manifests import policy, service
from tests.engine import ENGINE
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import Front

pytestmark = pytest.mark.timeout(240)

COMMAND = (sys.executable, "-m", "kube_nftlb", "trace")
OUTSIDE = str(CLIENT[0].ip)
NOTICED_S = 1
"""The agent looks for changes by others each quarter of a second."""
BLOCK = "add table inet foreign; add chain inet foreign everything { type filter hook prerouting priority -200; }"


class Tracer:
    """The command on the first node, about connections of a client."""

    def __init__(self, cluster: Cluster, client: str) -> None:
        self.cluster, self.client, self.node = cluster, client, cluster.nodes[0]

    def ask(self, ip: str, *options: str, port: int = 80, client: str = "") -> dict[str, Any]:
        to = addresses.with_port(ip, port)
        done = self.cluster.lab.exec(self.node, *COMMAND, client or self.client, to, "-o", "json", *options)
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def send(self, ip: str, *options: str, port: int = 80, client: str = "") -> dict[str, Any]:
        """Trace a probe; what the objects tell must be the same."""
        told = self.ask(ip, "--send", *options, port=port, client=client)
        expected = self.ask(ip, "--dry-run", "--node", self.node, *options, port=port, client=client)
        assert ending(told) == ending(expected), (told, expected)
        assert told.get("farm") == expected.get("farm")
        return told

    def ip(self) -> str:
        """The client's address."""
        namespace, _, name = self.client.partition("/")
        return str(self.cluster.get("pod", name, namespace)["status"]["podIP"])

    @contextmanager
    def waiting(self, client: str, ip: str, *options: str) -> Iterator[dict[str, Any]]:
        """Trace what the client sends during the block; the answer is filled in after it."""
        told: dict[str, Any] = {}
        process = self.cluster.lab.popen(self.node, *COMMAND, client, f"{ip}:80", "--local", "-o", "json", *options)
        assert process.stderr
        assert process.stderr.readline().startswith("waiting"), process.stderr.read()
        yield told
        out, err = process.communicate(timeout=60)
        assert out, err
        told.update(json.loads(out))


def ending(told: dict[str, Any]) -> tuple[str, str]:
    return told["outcome"]["verdict"], told["outcome"]["reason"]


def step(told: dict[str, Any], about: str) -> str:
    return " / ".join(each["text"] for each in told["steps"] if each["about"] == about)


def tables(cluster: Cluster) -> list[int]:
    """The process ids of the traces that have a table on the first node."""
    return [int(pid) for pid in re.findall(r"kube-nftlb-trace-(\d+)", cluster.nft(cluster.nodes[0], "list", "tables"))]


@pytest.fixture
def tracer(cluster: Cluster, client: str) -> Iterator[Tracer]:
    yield Tracer(cluster, client)
    assert tables(cluster) == []


@pytest.fixture
def front(cluster: Cluster, namespace: str) -> Front:
    return Front(cluster, namespace, 2)


def drifts(cluster: Cluster) -> list[int]:
    return [cluster.get("nftlbnode", node)["status"].get("driftRepaired", 0) for node in cluster.nodes]


@pytest.mark.parametrize(
    ("scheduler", "word"), [("rr", "rr"), ("weight", "weight"), ("hash", "hash"), ("symhash", "symhash")]
)
def test_a_connection_is_served(tracer: Tracer, front: Front, namespace: str, scheduler: str, word: str) -> None:
    front.apply(scheduler=scheduler)
    told = tracer.send(front.ip)
    assert ending(told) == ("Served", "BackendChosen")
    assert (told["farm"], told["engine"]) == (f"{namespace}/front", ENGINE)
    assert word in step(told, "choice")
    assert told["backendName"] in front.pods
    assert step(told, "probe") == "connected"
    assert step(told, "reply") == "the other side has replied"
    # In the mode snat, backends see the node.
    assert step(told, "source").startswith("masqueraded")
    assert told["seenAs"] != told["client"].partition(":")[0]


@pytest.mark.parametrize(("family", "protocol"), [("ipv6", "TCP"), ("ipv4", "UDP")])
def test_other_families_and_protocols(
    cluster: Cluster, tracer: Tracer, namespace: str, family: str, protocol: str
) -> None:
    front = Front(cluster, namespace, 1, family)
    front.apply(protocol=protocol)
    told = tracer.send(front.ip, "--protocol", protocol)
    assert ending(told) == ("Served", "BackendChosen")
    assert told["backendName"] == front.pods[0]


def test_a_client_returns_to_its_backend(tracer: Tracer, front: Front) -> None:
    front.apply(persistence="srcip")
    first = tracer.send(front.ip)
    assert "scheduler" in step(first, "choice")
    assert "remembered" in step(first, "session")
    second = tracer.send(front.ip)
    assert step(second, "choice") == "the client's session: the backend that it had"
    assert step(second, "session") == ""
    assert second["backend"] == first["backend"]


def test_a_fixed_session(tracer: Tracer, front: Front) -> None:
    ip = tracer.ip()
    front.apply(persistence="srcip", sessions=[{"client": ip, "backend": front.pods[1]}])
    told = tracer.send(front.ip)
    assert step(told, "choice") == "the client has a fixed session"
    assert told["backendName"] == front.pods[1]


def test_a_client_that_is_not_masqueraded_and_one_that_is_its_own_backend(
    cluster: Cluster, tracer: Tracer, namespace: str
) -> None:
    front = Front(cluster, namespace, 1)
    near = front.backend(front.pods[0], nodeName=node_of(front, front.pods[0]))
    front.apply(mode="dnat", masquerade="AsNeeded", backends=[near])
    pod = cluster.get("pod", front.pods[0], namespace)
    there = Tracer(cluster, f"{namespace}/{front.pods[0]}")
    there.node = pod["spec"]["nodeName"]
    told = there.send(front.ip)
    assert "its own backend" in step(told, "hairpin")
    assert step(told, "source").startswith("masqueraded")
    assert told["seenAs"] != pod["status"]["podIP"]
    told = tracer.send(front.ip)
    assert step(told, "source") == "not masqueraded: the backend sees the client"
    assert told["seenAs"] == told["client"].partition(":")[0]


def test_policies(cluster: Cluster, tracer: Tracer, front: Front, namespace: str) -> None:
    client = tracer.ip()
    front.submit(policies=["absent"])
    eventually(lambda: "PolicyMissing" in str(cluster.get("nftlbnode", tracer.node)["status"]), "it is missing")
    assert ending(tracer.send(front.ip)) == ("Dropped", "PolicyMissing")
    cluster.apply(policy("absent", namespace, "deny", ["192.0.2.0/24"]))
    front.settled()
    told = tracer.send(front.ip)
    assert ending(told) == ("Served", "BackendChosen")
    assert step(told, "policy") == "no deny list has the client's address"
    cluster.apply(policy("office", namespace, "allow", [f"{client}/32"]))
    front.apply(policies=["office"])
    told = tracer.send(front.ip)
    assert step(told, "policy") == f"the allow list {namespace}/office admits the client"
    told = tracer.send(front.ip, client=cluster.lab.nodes[0].addresses[0].ip.compressed)
    assert ending(told) == ("Dropped", "PolicyAdmitsOthers")
    assert f"{namespace}/office" in told["outcome"]["message"]
    cluster.apply(policy("bad", namespace, "deny", [f"{client}/32"]))
    front.apply(policies=["office", "bad"])
    told = tracer.send(front.ip)
    assert ending(told) == ("Dropped", "PolicyDenies")
    assert f"{namespace}/bad" in told["outcome"]["message"]


def test_source_ranges(tracer: Tracer, front: Front) -> None:
    def admitting(cidr: str) -> list[dict[str, Any]]:
        return [{"type": "LoadBalancer", "ip": front.ip, "ports": "80", "sourceRanges": [cidr]}]

    front.apply(addresses=admitting("192.0.2.0/24"))
    assert ending(tracer.send(front.ip)) == ("Dropped", "OutsideSourceRanges")
    front.apply(addresses=admitting("10.0.0.0/8"))
    told = tracer.send(front.ip)
    assert ending(told) == ("Served", "BackendChosen")
    assert step(told, "source range") == "the client is in a source range"


def test_limits(tracer: Tracer, front: Front) -> None:
    front.apply(limits={"new": "1/minute", "newBurst": 1})
    front.one(tracer.client, number=1)
    told = eventually_told(tracer, front.ip, "LimitReached")
    assert "limits.new" in told["outcome"]["message"]
    front.apply(limits={"established": 1})
    with front.cluster.streams(2, tracer.client, front.ip):
        told = eventually_told(tracer, front.ip, "LimitReached")
    assert "limits.established" in told["outcome"]["message"]


def eventually_told(tracer: Tracer, ip: str, reason: str) -> dict[str, Any]:
    told: dict[str, Any] = {}

    def check() -> bool:
        told.clear()
        told.update(tracer.ask(ip, "--send"))
        return bool(told["outcome"]["reason"] == reason)

    eventually(check, reason)
    return told


def test_a_limit_of_a_backend(tracer: Tracer, front: Front) -> None:
    front.apply(backends=[front.backend(front.pods[0], established=1)])
    with front.cluster.streams(2, tracer.client, front.ip):
        told = eventually_told(tracer, front.ip, "LimitReached")
    assert "the backend's established" in told["outcome"]["message"]


@pytest.mark.parametrize("state", ["off", "down", "drain"])
def test_a_farm_without_backends_refuses(tracer: Tracer, front: Front, namespace: str, state: str) -> None:
    front.apply(backends=[front.backend(front.pods[0], state=state)])
    told = tracer.send(front.ip)
    assert ending(told) == ("Refused", "NoReadyBackends")
    assert told["farm"] == f"{namespace}/front"
    assert step(told, "probe") == "refused"
    # Another backend gets the connections then.
    front.apply(backends=[front.backend(front.pods[0], state=state), front.backend(front.pods[1])])
    assert tracer.send(front.ip)["backendName"] == front.pods[1]


def test_traffic_policies(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    far = next(pod for pod in front.pods if node_of(front, pod) != tracer.node)
    near = next(pod for pod in front.pods if pod != far)
    front.apply(trafficPolicy="Local", backends=[front.backend(far, nodeName=node_of(front, far))])
    assert ending(tracer.send(front.ip)) == ("Dropped", "NoLocalBackend")
    outside = [{"type": "LoadBalancer", "ip": front.ip, "ports": "80"}]
    front.apply(trafficPolicy="Local", addresses=outside, backends=[front.backend(far, nodeName=node_of(front, far))])
    with tracer.waiting(OUTSIDE, front.ip) as told:
        cluster.count("client", 1, front.ip, 80, "--timeout", "1")
    assert ending(told) == ("Dropped", "NoLocalBackend")
    told = tracer.ask(front.ip, "--dry-run", "--node", tracer.node, client=OUTSIDE)
    assert ending(told) == ("Dropped", "NoLocalBackend")
    # A client of this node may use it.
    assert tracer.send(front.ip)["backendName"] == far
    both = [front.backend(pod, nodeName=node_of(front, pod)) for pod in (near, far)]
    front.apply(trafficPolicy="Local", addresses=outside, backends=both)
    assert {tracer.send(front.ip)["backendName"] for _ in range(6)} == {near, far}


def node_of(front: Front, pod: str) -> str:
    return str(front.cluster.get("pod", pod, front.namespace)["spec"]["nodeName"])


def test_addresses_that_are_no_farms(cluster: Cluster, tracer: Tracer, front: Front, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    told = tracer.send(vip, port=81)
    assert ending(told) == ("Refused", "NoSuchService")
    pod = cluster.get("pod", front.pods[0], namespace)["status"]["podIP"]
    told = tracer.send(pod)
    assert ending(told) == ("NotServed", "NoListener")
    assert step(told, "reply") == "the other side has replied"
    told = tracer.send(pod, port=81)
    assert "has refused" in step(told, "reply")


def test_an_open_connection(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply(backends=[front.backend(front.pods[0])])
    with cluster.streams(1, tracer.client, front.ip), tracer.waiting(tracer.ip(), front.ip, "--seconds", "2") as told:
        pass
    assert ending(told) == ("Served", "EstablishedConnection")
    assert told["backendName"] == front.pods[0]


def test_a_backend_without_a_route(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply(backends=[{"name": "lost", "ip": "203.0.113.9", "port": 80}])
    route = ("ip", "route", "{}", "unreachable", "203.0.113.9")
    assert cluster.lab.exec(tracer.node, *(part.format("add") for part in route)).returncode == 0
    try:
        told = tracer.ask(front.ip, "--send")
    finally:
        cluster.lab.exec(tracer.node, *(part.format("delete") for part in route))
    assert ending(told) == ("Lost", "NotRouted")
    assert told["backend"] == "203.0.113.9:80"


def test_a_rule_of_another_program(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply()
    cluster.nft(tracer.node, f"{BLOCK}; add rule inet foreign everything ip daddr {front.ip} drop")
    try:
        told = tracer.ask(front.ip, "--send")
    finally:
        cluster.nft(tracer.node, "delete table inet foreign")
    assert ending(told) == ("Dropped", "OtherProgram")
    assert "the chain everything of the table inet foreign" in told["outcome"]["message"]


@pytest.mark.engine("nftlb", "the other engine's rules are there without a daemon")
def test_rules_that_nftlb_has_not_made_yet(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply()
    cluster.lab.stop("agent", tracer.node)
    cluster.lab.stop("nftlb", tracer.node)
    try:
        cluster.nft(tracer.node, "delete table ip nftlb")
        told = tracer.ask(front.ip, "--send")
    finally:
        cluster.lab.start("nftlb", tracer.node)
        cluster.lab.start("agent", tracer.node)
    assert ending(told) == ("Dropped", "RulesIncomplete")
    eventually(lambda: ending(tracer.ask(front.ip, "--send"))[0] == "Served", "it is served again")


def test_no_packet(tracer: Tracer, front: Front) -> None:
    front.apply()
    with tracer.waiting(tracer.ip(), front.ip, "--seconds", "1") as told:
        pass
    assert ending(told) == ("Unseen", "NoPacket")


def test_nothing_stays_of_a_trace_that_is_killed_and_the_agent_takes_no_notice(
    cluster: Cluster, tracer: Tracer, front: Front
) -> None:
    front.apply()
    before = drifts(cluster)

    def is_unnoticed() -> bool:
        count = compared(cluster)
        kill_a_trace(tracer, front.ip)
        time.sleep(NOTICED_S)
        return compared(cluster) == count

    # It compares for reasons of its own, too, such as the changes of other tests.
    eventually(is_unnoticed, "the agent compares nothing", 60)
    assert drifts(cluster) == before


def kill_a_trace(tracer: Tracer, ip: str) -> None:
    process = tracer.cluster.lab.popen(tracer.node, *COMMAND, tracer.client, f"{ip}:80")
    assert process.stderr
    process.stderr.readline()
    (pid,) = tables(tracer.cluster)
    assert tracer.cluster.lab.exec(tracer.node, "kill", "-9", str(pid)).returncode == 0
    process.communicate(timeout=10)
    eventually(lambda: tables(tracer.cluster) == [], "the table is gone")


def compared(cluster: Cluster) -> float:
    """Return the number of times that the first node's agent has compared something with the kernel."""
    page = cluster.lab.exec(cluster.nodes[0], "curl", "-s", "http://127.0.0.1:9195/metrics").stdout
    found = re.findall(r"^kube_nftlb_kernel_comparisons_total\{.*\} (.+)$", page, re.MULTILINE)
    assert found, page
    return sum(map(float, found))


def test_a_trace_ends_when_nobody_listens_any_more(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply()
    process = cluster.lab.popen(tracer.node, *COMMAND, tracer.ip(), f"{front.ip}:80", "--local", "--until-closed")
    assert process.stderr
    assert process.stderr.readline().startswith("waiting")
    assert tables(cluster)
    process.communicate(timeout=10)
    assert process.returncode == 1


def test_words_for_people(cluster: Cluster, tracer: Tracer, front: Front, namespace: str) -> None:
    front.apply(backends=[front.backend(front.pods[0])])
    done = cluster.lab.exec(tracer.node, *COMMAND, tracer.client, f"{front.ip}:80", "--send")
    lines = done.stdout.splitlines()
    assert lines[0].endswith(f"→ {front.ip}:80 TCP on {tracer.node}")
    assert [line.split()[0] for line in lines[1:-1]] == [
        "connection", "farm", "choice", "backend", "source", "reply", "probe",
    ]  # fmt: skip
    assert f"{namespace}/front, engine {ENGINE}" in done.stdout
    assert f"({front.pods[0]})" in done.stdout
    assert lines[-1].startswith("Served (BackendChosen): sent to ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("10.0.0.1", "10.96.0.1"), "is not an address with a port, such as 10.96.0.10:80"),
        (("nobody", "10.96.0.1:80"), "there is no pod nobody in the namespace default"),
        (("default/nobody", "10.96.0.1:80"), "there is no pod nobody in the namespace default"),
        (("192.0.2.1", "10.96.0.1:80"), "say with --node where it connects"),
        (("192.0.2.1", "10.96.0.1:80", "--node", "absent"), "there is no node absent; there are node-1, node-2"),
        (("192.0.2.1", "10.96.0.1:80", "--send", "--local"), "cannot send from 192.0.2.1"),
        (("192.0.2.1", "[fd00::1]:80", "--local"), "are of different families"),
        (("192.0.2.1", "10.96.0.1:80", "--node", "node-2"), "the node node-2 has no pod of an agent to trace in"),
    ],
)
def test_what_cannot_be_asked(cluster: Cluster, arguments: tuple[str, ...], sentence: str) -> None:
    done = cluster.lab.exec(cluster.nodes[0], *COMMAND, *arguments)
    assert done.returncode == (3 if "no pod of an agent" in sentence else 2)
    assert sentence in done.stderr
