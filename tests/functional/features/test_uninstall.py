"""The state left on a node: none if the DaemonSet is deleted, all of it if the agent only stops."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kube_nftlb.agent import keep_nat
from kube_nftlb.agent.engine.nftables.layout import TABLE as SERVICES_TABLE
from kube_nftlb.agent.table.layout import TABLE
from kube_nftlb.netfilter.nftables.blueprint import blueprint_of
from lab.rights import AGENT_ACCOUNT, NAMESPACE
from tests import engine
from tests.builders.manifests import client_pod, deployment, service
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.features.test_modes import loopback

NODE = "node-1"
OURS = {f"table {name}" for name in ("netdev nftlb", "ip nftlb", "ip6 nftlb", "inet kube-nftlb")}
OURS |= {"table inet kube-nftlb-services"}
FOREIGN = "table inet somebody-elses"
BLUEPRINTS = {f"table inet {blueprint_of(table)}" for table in (SERVICES_TABLE, TABLE)}
"""Each is there for a moment, while an agent compares a table with what the kernel has."""
OF_THE_PROCESS = f"table inet {keep_nat.TABLE}"


@pytest.fixture(scope="module")
def alone() -> Iterator[Cluster]:
    """A cluster of one node whose agent knows its DaemonSet, and a table of somebody else's."""
    settings = {"agent": {"KUBE_NFTLB_DAEMON_SET": "kube-nftlb-agent"}, "operator": engine.OPERATOR}
    # A test takes the agent's rights while it runs.
    with running("uninstall", nodes=1, checked=False, settings=settings) as cluster:
        cluster.nft(NODE, "add", *FOREIGN.split())
        yield cluster


@pytest.fixture
def daemon_set(alone: Cluster) -> Iterator[None]:
    """The DaemonSet that the agent takes for its own; its pod does nothing, since the lab runs the agent itself."""
    # One that starts after the DaemonSet is gone would not know that there was one.
    node = str(alone.lab.nodes[0].addresses[0].ip)
    eventually(lambda: (alone.http_get(node, "/readyz", 10256) or (0,))[0] == 200, "the agent is ready", 60)
    made = deployment("kube-nftlb-agent", 0, NAMESPACE)
    del made["spec"]["replicas"]
    made["kind"] = "DaemonSet"
    alone.apply(made)
    try:
        yield
    finally:
        alone.try_kubectl("delete", "daemonset", "kube-nftlb-agent", "-n", NAMESPACE)


@pytest.fixture(scope="module")
def served(alone: Cluster) -> Iterator[str]:
    """A namespace with Services of both engines and families, one of them in the mode dsr, all of which work."""
    dual: dict[str, Any] = {"ipFamilyPolicy": "RequireDualStack"}
    with alone.namespace() as name:
        alone.apply(client_pod("client", name, NODE))
        alone.apply(service("web", name, {"engine": "nftlb"}, **dual))
        alone.apply(service("other", name, {"engine": "nftables"}, selector={"app": "web"}, **dual))
        alone.apply(service("direct", name, {"mode": "dsr", "engine": "nftlb"}, selector={"app": "web"}))
        alone.wait("pod", "client", "Ready", name)
        alone.run("web", 2, name)
        all_serve(alone, name)
        yield name


def all_serve(cluster: Cluster, namespace: str) -> None:
    pods = cluster.pods("web", namespace)
    ways = [(name, family) for name in ("web", "other") for family in ("ipv4", "ipv6")]
    for name, family in (*ways, ("direct", "ipv4")):
        cluster.reaches(f"{namespace}/client", pods, cluster.vip(name, namespace, family))


def tables(cluster: Cluster) -> set[str]:
    """The tables of the node, but for those that are there only while the agent runs."""
    found = set(cluster.nft(NODE, "list", "tables").splitlines())
    is_running = any(each["component"] == "agent" and each["pid"] for each in cluster.lab.status())
    assert (OF_THE_PROCESS in found) == is_running
    return found - {OF_THE_PROCESS} - (BLUEPRINTS if is_running else set())


def state(cluster: Cluster) -> set[str]:
    """The files of nftlb and the agent on the node."""
    folder = cluster.lab.kubeconfig.parent / "run" / NODE
    return {path.name for path in folder.iterdir()}


def with_the_address(cluster: Cluster, namespace: str) -> list[str]:
    """The pods that have the VIP of the Service in the mode dsr."""
    vip = cluster.vip("direct", namespace)
    return [pod for pod in cluster.pods("web", namespace) if vip in loopback(cluster, f"{namespace}/{pod}")]


def look(cluster: Cluster, namespace: str) -> dict[str, Any]:
    return {"tables": tables(cluster), "pods": with_the_address(cluster, namespace), "state": state(cluster)}


@pytest.mark.usefixtures("daemon_set")
def test_an_agent_that_stops_while_its_daemonset_exists_leaves_its_state(alone: Cluster, served: str) -> None:
    # nftlb's start-up file is written a while after the change.
    eventually(lambda: {"nftlb.json", "dsr.json"} <= state(alone), "the state is saved")
    before = look(alone, served)
    assert before["tables"] == OURS | {FOREIGN}
    assert len(before["pods"]) == 2
    alone.lab.stop("agent")
    try:
        assert look(alone, served) == before
        all_serve(alone, served)
    finally:
        alone.lab.start("agent")


@pytest.mark.usefixtures("daemon_set")
@pytest.mark.parametrize("also", ["nothing", "rights"])
def test_an_agent_whose_daemon_set_is_deleted_takes_everything_away(alone: Cluster, served: str, also: str) -> None:
    alone.kubectl("delete", "daemonset", "kube-nftlb-agent", "-n", NAMESPACE)
    binding = alone.get("clusterrolebinding", AGENT_ACCOUNT)
    role = alone.get("rolebinding", AGENT_ACCOUNT, NAMESPACE)
    if also == "rights":
        # As Helm does, milliseconds later: what the agent was told before has to do.
        alone.kubectl("delete", "clusterrolebinding", AGENT_ACCOUNT)
        alone.kubectl("delete", "rolebinding", AGENT_ACCOUNT, "-n", NAMESPACE)
    # The pod gets its signal from a controller later on; until then nothing changes.
    all_serve(alone, served)
    try:
        # Both containers of the pod are told to end, in any order: nftlb may be gone before the agent, or outlive it.
        if also == "rights":
            alone.lab.stop("nftlb")
        alone.lab.stop("agent")
        assert look(alone, served) == {"tables": {FOREIGN}, "pods": [], "state": {"nftlb.key", "dsr.json"}}
        assert json.loads((alone.lab.kubeconfig.parent / "run" / NODE / "dsr.json").read_text()) == {}
        for name in ("web", "other"):
            assert alone.answers(f"{served}/client", alone.vip(name, served), number=2) == set()
        again = alone.lab.exec(NODE, "kube-nftlb", "clean")
        assert again.returncode == 0, again.stderr
        assert tables(alone) == {FOREIGN}
    finally:
        if also == "rights":
            for body in (binding, role):
                slim = {key: body["metadata"].get(key) for key in ("name", "namespace") if body["metadata"].get(key)}
                alone.apply({**body, "metadata": slim})
        if also == "rights":
            alone.lab.start("nftlb")
        alone.lab.start("agent")
    all_serve(alone, served)
    assert tables(alone) == OURS | {FOREIGN}


@pytest.mark.usefixtures("daemon_set")
def test_the_same_can_be_had_by_a_command(alone: Cluster, served: str) -> None:
    alone.lab.stop("agent")
    alone.lab.stop("nftlb")
    try:
        assert tables(alone) == OURS | {FOREIGN}, "what is programmed outlives both programs"
        all_serve(alone, served)
        done = alone.lab.exec(NODE, "kube-nftlb", "clean")
        assert done.returncode == 0, done.stderr
        assert tables(alone) == {FOREIGN}
        assert with_the_address(alone, served) == []
    finally:
        alone.lab.start("nftlb")
        alone.lab.start("agent")
    all_serve(alone, served)
