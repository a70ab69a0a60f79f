"""``kube-nftlb trace``, called in this process: every way in which a connection can end, as the kernel reports it.

What the objects alone tell (``--dry-run``) must be the same, where the objects decide. ``tests/unit`` has the words for
each of these ways, with each engine, and what cannot be asked.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from kube_nftlb import addresses
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.trace import command, probe
from kube_nftlb.commands.trace.command import Question
from kube_nftlb.netfilter.tracing import table
from kube_nftlb.netfilter.tracing.table import Flow
from lab.addresses import CLIENT
from tests import engine
from tests.builders.manifests import policy, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import Front

OUTSIDE = str(CLIENT[0].ip)


class Tracer:
    """The command on the first node, about connections of a client."""

    def __init__(self, cluster: Cluster, client: str) -> None:
        self.cluster, self.client, self.node = cluster, client, cluster.nodes[0]
        self._own: set[str] = set()

    def ask(self, ip: str, *, port: int = 80, client: str = "", **options: Any) -> dict[str, Any]:
        self._own = set(self.ips())
        question = Question(client or self.client, addresses.with_port(ip, port), format=Format.JSON, **options)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            self.cluster.lab.inside(self.node, lambda: command.run(question))
        return dict(json.loads(out.getvalue()))

    def send(self, ip: str, *, port: int = 80, client: str = "", **options: Any) -> dict[str, Any]:
        """Trace a probe; what the objects tell must be the same."""
        traced = self.ask(ip, port=port, client=client, send=True, **options)
        expected = self.ask(ip, port=port, client=client, dry_run=True, node=self.node, **options)
        assert ending(traced) == ending(expected), (traced, expected)
        assert traced.get("farm") == expected.get("farm")
        return traced

    def prober(self, client: str) -> Callable[[Flow], str]:
        """As that of the command, which would find pods of other labs with this address, too."""
        where = self.client if client in self._own else self.node
        return lambda flow: self.cluster.lab.inside(where, lambda: probe.send(flow))

    def ips(self) -> list[str]:
        """The client's addresses, the one of IPv4 first."""
        namespace, _, name = self.client.partition("/")
        return [each["ip"] for each in self.cluster.get("pod", name, namespace)["status"]["podIPs"]]

    def ip(self) -> str:
        return self.ips()[0]

    @contextmanager
    def waiting(self, client: str, ip: str, seconds: float = 30) -> Iterator[dict[str, Any]]:
        """Trace what the client sends during the block; the answer is filled in after it."""
        traced: dict[str, Any] = {}
        with ThreadPoolExecutor() as threads:
            asked = threads.submit(self.ask, ip, client=client, local=True, seconds=seconds)
            eventually(lambda: is_tracing(self.cluster), "packets are traced")
            yield traced
            traced.update(asked.result(60))


def is_tracing(cluster: Cluster) -> bool:
    """Return True if this process has a table of a trace on the first node."""
    return table.name(os.getpid()) in cluster.nft(cluster.nodes[0], "list", "tables")


def ending(traced: dict[str, Any]) -> tuple[str, str]:
    return traced["outcome"]["verdict"], traced["outcome"]["reason"]


def step(traced: dict[str, Any], about: str) -> str:
    return " / ".join(each["text"] for each in traced["steps"] if each["about"] == about)


@pytest.fixture
def tracer(cluster: Cluster, client: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    tracer = Tracer(cluster, client)
    monkeypatch.setenv("KUBECONFIG", str(cluster.lab.inside_kubeconfig))
    monkeypatch.setattr(probe, "prober", tracer.prober)
    yield tracer
    assert not is_tracing(cluster)


@pytest.fixture
def front(cluster: Cluster, namespace: str) -> Front:
    return Front(cluster, namespace, 2)


def node_of(front: Front, pod: str) -> str:
    return str(front.cluster.get("pod", pod, front.namespace)["spec"]["nodeName"])


@pytest.mark.engines
def test_a_connection_is_served(tracer: Tracer, front: Front, namespace: str) -> None:
    for scheduler in ("rr", "weight", "hash", "symhash"):
        front.apply(scheduler=scheduler)
        traced = tracer.send(front.ip)
        assert ending(traced) == ("Served", "BackendChosen")
        assert (traced["farm"], traced["engine"]) == (f"{namespace}/front", engine.current())
        assert scheduler in step(traced, "choice")
        assert traced["backendName"] in front.pods
        assert step(traced, "probe") == "connected"
        assert step(traced, "reply") == "the other side has replied"
        # In the mode snat, backends see the node.
        assert step(traced, "source").startswith("masqueraded")
        assert traced["seenAs"] != traced["client"].partition(":")[0]


@pytest.mark.parametrize(("family", "protocol"), [("ipv6", "TCP"), ("ipv4", "UDP")])
def test_other_families_and_protocols(
    cluster: Cluster, tracer: Tracer, namespace: str, family: str, protocol: str
) -> None:
    front = Front(cluster, namespace, 1, family)
    front.apply(protocol=protocol)
    traced = tracer.send(front.ip, protocol=protocol)
    assert ending(traced) == ("Served", "BackendChosen")
    assert traced["backendName"] == front.pods[0]


@pytest.mark.engines
def test_a_client_returns_to_its_backend_or_has_a_fixed_session(tracer: Tracer, front: Front) -> None:
    front.apply(persistence="srcip")
    first = tracer.send(front.ip)
    assert "scheduler" in step(first, "choice")
    assert "remembered" in step(first, "session")
    second = tracer.send(front.ip)
    assert step(second, "choice") == "the client's session: the backend that it had"
    assert step(second, "session") == ""
    assert second["backend"] == first["backend"]
    front.apply(persistence="srcip", sessions=[{"client": tracer.ip(), "backend": front.pods[1]}])
    traced = tracer.send(front.ip)
    assert step(traced, "choice") == "the client has a fixed session"
    assert traced["backendName"] == front.pods[1]


@pytest.mark.engines
def test_a_client_that_is_not_masqueraded_and_one_that_is_its_own_backend(
    cluster: Cluster, tracer: Tracer, namespace: str
) -> None:
    front = Front(cluster, namespace, 1)
    near = front.backend(front.pods[0], nodeName=node_of(front, front.pods[0]))
    front.apply(mode="dnat", masquerade="AsNeeded", backends=[near])
    traced = tracer.send(front.ip)
    assert step(traced, "source") == "not masqueraded: the backend sees the client"
    assert traced["seenAs"] == traced["client"].partition(":")[0]
    tracer.client, tracer.node = f"{namespace}/{front.pods[0]}", node_of(front, front.pods[0])
    traced = tracer.send(front.ip)
    assert "its own backend" in step(traced, "hairpin")
    assert step(traced, "source").startswith("masqueraded")
    assert traced["seenAs"] != tracer.ip()


def test_policies(cluster: Cluster, tracer: Tracer, front: Front, namespace: str) -> None:
    client = tracer.ip()
    front.submit(policies=["absent"])
    eventually(lambda: "PolicyMissing" in front.reason, "it is missing")
    assert ending(tracer.send(front.ip)) == ("Dropped", "PolicyMissing")
    cluster.apply(policy("absent", namespace, "deny", ["192.0.2.0/24"]))
    front.settled()
    traced = tracer.send(front.ip)
    assert ending(traced) == ("Served", "BackendChosen")
    assert step(traced, "policy") == "no deny list has the client's address"
    cluster.apply(policy("office", namespace, "allow", [f"{client}/32"]))
    front.apply(policies=["office"])
    traced = tracer.send(front.ip)
    assert step(traced, "policy") == f"the allow list {namespace}/office admits the client"
    traced = tracer.send(front.ip, client=cluster.lab.nodes[0].addresses[0].ip.compressed)
    assert ending(traced) == ("Dropped", "PolicyAdmitsOthers")
    assert f"{namespace}/office" in traced["outcome"]["message"]
    cluster.apply(policy("bad", namespace, "deny", [f"{client}/32"]))
    front.apply(policies=["office", "bad"])
    traced = tracer.send(front.ip)
    assert ending(traced) == ("Dropped", "PolicyDenies")
    assert f"{namespace}/bad" in traced["outcome"]["message"]


def test_source_ranges(tracer: Tracer, front: Front) -> None:
    def admitting(cidr: str) -> list[dict[str, Any]]:
        return [{"type": "LoadBalancer", "ip": front.ip, "ports": "80", "sourceRanges": [cidr]}]

    front.apply(addresses=admitting("192.0.2.0/24"))
    assert ending(tracer.send(front.ip)) == ("Dropped", "OutsideSourceRanges")
    front.apply(addresses=admitting("10.0.0.0/8"))
    traced = tracer.send(front.ip)
    assert ending(traced) == ("Served", "BackendChosen")
    assert step(traced, "source range") == "the client is in a source range"


def test_limits(tracer: Tracer, front: Front) -> None:
    front.apply(limits={"new": "1/minute", "newBurst": 1})
    front.one(tracer.client, number=1)
    assert "limits.new" in limited(tracer, front)
    front.apply(limits={"established": 1})
    with front.cluster.streams(2, tracer.client, front.ip):
        assert "limits.established" in limited(tracer, front)
    front.apply(backends=[front.backend(front.pods[0], established=1)])
    with front.cluster.streams(2, tracer.client, front.ip):
        assert "the backend's established" in limited(tracer, front)


def limited(tracer: Tracer, front: Front) -> str:
    """Trace until a limit is reached; the message."""
    traced: dict[str, Any] = {}

    def check() -> bool:
        traced.update(tracer.ask(front.ip, send=True))
        return bool(traced["outcome"]["reason"] == "LimitReached")

    eventually(check, "the limit is reached")
    return str(traced["outcome"]["message"])


@pytest.mark.engines
def test_a_farm_without_backends_refuses(tracer: Tracer, front: Front, namespace: str) -> None:
    front.apply(backends=[front.backend(front.pods[0], state="drain")])
    traced = tracer.send(front.ip)
    assert ending(traced) == ("Refused", "NoReadyBackends")
    assert traced["farm"] == f"{namespace}/front"
    assert step(traced, "probe") == "refused"
    # Another backend gets the connections then.
    front.apply(backends=[front.backend(front.pods[0], state="drain"), front.backend(front.pods[1])])
    assert tracer.send(front.ip)["backendName"] == front.pods[1]


@pytest.mark.engines
def test_traffic_policies(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    far = next(pod for pod in front.pods if node_of(front, pod) != tracer.node)
    near = next(pod for pod in front.pods if pod != far)
    front.apply(trafficPolicy="Local", backends=[front.backend(far, nodeName=node_of(front, far))])
    assert ending(tracer.send(front.ip)) == ("Dropped", "NoLocalBackend")
    outside = [{"type": "LoadBalancer", "ip": front.ip, "ports": "80"}]
    front.apply(trafficPolicy="Local", addresses=outside, backends=[front.backend(far, nodeName=node_of(front, far))])
    with tracer.waiting(OUTSIDE, front.ip) as traced:
        cluster.count("client", 1, front.ip, 80, "--timeout", "1")
    assert ending(traced) == ("Dropped", "NoLocalBackend")
    traced = tracer.ask(front.ip, client=OUTSIDE, dry_run=True, node=tracer.node)
    assert ending(traced) == ("Dropped", "NoLocalBackend")
    # A client of this node may use it.
    assert tracer.send(front.ip)["backendName"] == far
    both = [front.backend(pod, nodeName=node_of(front, pod)) for pod in (near, far)]
    front.apply(trafficPolicy="Local", addresses=outside, backends=both)
    assert {tracer.send(front.ip)["backendName"] for _ in range(6)} == {near, far}


def test_addresses_that_are_no_farms(cluster: Cluster, tracer: Tracer, front: Front, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.farm_has("web--http", namespace, 2)
    assert ending(tracer.send(cluster.vip("web", namespace), port=82)) == ("Refused", "NoSuchService")
    pod = cluster.get("pod", front.pods[0], namespace)["status"]["podIP"]
    traced = tracer.send(pod)
    assert ending(traced) == ("NotServed", "NoListener")
    assert step(traced, "reply") == "the other side has replied"
    assert "has refused" in step(tracer.send(pod, port=82), "reply")


@pytest.mark.engines
def test_an_open_connection_and_no_packet(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply(backends=[front.backend(front.pods[0])])
    with tracer.waiting(tracer.ip(), front.ip, seconds=1) as traced:
        pass
    assert ending(traced) == ("Unseen", "NoPacket")
    with cluster.streams(1, tracer.client, front.ip), tracer.waiting(tracer.ip(), front.ip, seconds=2) as traced:
        pass
    assert ending(traced) == ("Served", "EstablishedConnection")
    assert traced["backendName"] == front.pods[0]


def test_a_backend_without_a_route(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply(backends=[{"name": "lost", "ip": "203.0.113.9", "port": 80}])
    route = ("ip", "route", "{}", "unreachable", "203.0.113.9")
    assert cluster.lab.exec(tracer.node, *(part.format("add") for part in route)).returncode == 0
    try:
        traced = tracer.ask(front.ip, send=True)
    finally:
        cluster.lab.exec(tracer.node, *(part.format("delete") for part in route))
    assert ending(traced) == ("Lost", "NotRouted")
    assert traced["backend"] == "203.0.113.9:80"


def test_a_rule_of_another_program(cluster: Cluster, tracer: Tracer, front: Front) -> None:
    front.apply()
    hook = "type filter hook prerouting priority -200;"
    chain = f"add table inet foreign; add chain inet foreign everything {{ {hook} }}"
    cluster.nft(tracer.node, f"{chain}; add rule inet foreign everything ip daddr {front.ip} drop")
    try:
        traced = tracer.ask(front.ip, send=True)
    finally:
        cluster.nft(tracer.node, "delete table inet foreign")
    assert ending(traced) == ("Dropped", "OtherProgram")
    assert "the chain everything of the table inet foreign" in traced["outcome"]["message"]


def test_the_program_says_it_in_words(cluster: Cluster, client: str, front: Front, namespace: str) -> None:
    front.apply(backends=[front.backend(front.pods[0])])
    node, arguments = cluster.nodes[0], (client, f"{front.ip}:80", "--send")
    done = cluster.lab.exec(node, sys.executable, "-m", "kube_nftlb", "trace", *arguments)
    lines = done.stdout.splitlines()
    assert lines[0].endswith(f"→ {front.ip}:80 TCP on {node}")
    assert [line.split()[0] for line in lines[1:-1]] == [
        "connection", "farm", "choice", "backend", "source", "reply", "probe",
    ]  # fmt: skip
    assert f"{namespace}/front, engine {engine.current()}" in done.stdout
    assert f"({front.pods[0]})" in done.stdout
    assert lines[-1].startswith("Served (BackendChosen): sent to ")


def test_the_program_ends_when_nobody_listens_any_more(cluster: Cluster, front: Front) -> None:
    front.apply()
    command = (sys.executable, "-m", "kube_nftlb", "trace", OUTSIDE, f"{front.ip}:80", "--local", "--until-closed")
    process = cluster.lab.popen(cluster.nodes[0], *command)
    assert process.stderr
    assert process.stderr.readline().startswith("waiting")
    process.communicate(timeout=10)
    assert process.returncode == 1
