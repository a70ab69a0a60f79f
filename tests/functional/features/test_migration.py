"""A node moves from kube-proxy to kube-nftlb by a label, and back, under load from a pod, a node and outside."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from kube_nftlb.agent.kube_proxy import chains
from kube_nftlb.kube import timestamps
from lab import programs
from lab.rights import NAMESPACE
from tests import engine
from tests.builders.manifests import deployment, service
from tests.bystanders.stage import PORT, Stage
from tests.bystanders.verdict import CONTROL
from tests.docs.reader import ROOT
from tests.functional import commands
from tests.functional.cluster import Cluster, eventually, running

NODE, OTHER = "node-1", "node-2"
LABEL = "kube-nftlb.io/service-proxy"
AGENT = "kube-nftlb-agent"
ALONE_S = 4
"""For new connections by the rules of one of the two alone."""
FOREIGN = "FOREIGN"
"""Somebody else's chain."""
_PATCH = re.compile(r"^kubectl (-n kube-system patch daemonset kube-proxy .*?\}')$", re.MULTILINE | re.DOTALL)
"""The command of docs/install.md that keeps kube-proxy off the nodes with the label."""
_IN_NFTABLES = re.compile(
    r"^\tchain (?:service|endpoint)-\w{8}-([^/ ]+/[^/ ]+/[^/ ]+)/.*?^\t\}", re.MULTILINE | re.DOTALL
)
"""A chain of kube-proxy for a port of a Service, or for one of its endpoints, in nftables mode."""
_IN_IPTABLES = re.compile(r"([^/ \"]+/[^/ \"]+) -> (\S+)")
"""The comment of a rule for an endpoint of a port of a Service, in iptables mode."""
_ENDPOINT = re.compile(rf"([0-9a-f.:]+)(?:\]?:| \. ){PORT}\b")


@pytest.fixture(scope="module", params=["nftables", pytest.param("iptables", marks=pytest.mark.long)])
def cluster_with_kube_proxy(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nodes with kube-proxy, an operator, and agents that wait to be started."""
    settings = {
        "operator": {**engine.OPERATOR, "KUBE_NFTLB_DEFAULT_MODE": "dnat"},
        "agent": {"KUBE_NFTLB_DAEMON_SET": AGENT},
    }
    proxy = f"kube-proxy-{request.param}"
    # For rules of others.
    programs.ensure_iptables(print)
    with running(f"migration-{request.param}", nodes=2, proxy=f"{proxy}+kube-nftlb", settings=settings) as cluster:
        yield cluster


def daemon_set(name: str, namespace: str, **pod: Any) -> dict[str, Any]:
    made = deployment(name, 0, namespace)
    del made["spec"]["replicas"]
    made["kind"] = "DaemonSet"
    made["spec"]["template"]["spec"].update(pod)
    return made


def nodes_of(cluster: Cluster, name: str) -> list[str]:
    namespace = NAMESPACE if name == AGENT else "kube-system"
    items = cluster.get("pod", namespace=namespace, labelSelector=f"app={name}")["items"]
    return sorted(item["spec"].get("nodeName", "") for item in items if "deletionTimestamp" not in item["metadata"])


def label(cluster: Cluster, value: str | None, agents: list[str], proxies: list[str]) -> None:
    """Label the node, and wait until the DaemonSets run where they should."""
    cluster.api.patch("node", NODE, "", {"metadata": {"labels": {LABEL: value}}})
    eventually(lambda: nodes_of(cluster, AGENT) == agents, f"agents are on {agents}")
    eventually(lambda: nodes_of(cluster, "kube-proxy") == proxies, f"kube-proxy is on {proxies}")


def iptables(cluster: Cluster, *arguments: str) -> None:
    for program in ("iptables", "ip6tables"):
        done = cluster.lab.exec(NODE, program, *arguments)
        # kube-proxy makes the kubelet's KUBE-FIREWALL too, in iptables mode.
        assert done.returncode == 0 or "Chain already exists" in done.stderr, done.stderr


def lines(cluster: Cluster, node: str) -> list[str]:
    """The rules of iptables without counters and comments, and the tables of nftables."""
    saved = [cluster.lab.exec(node, f"{program}-save") for program in ("iptables", "ip6tables")]
    text = [line.partition(" [")[0] for done in saved for line in done.stdout.splitlines() if line[:1] in "*:-"]
    return text + cluster.nft(node, "list", "tables").splitlines()


def of_kube_proxy(line: str) -> bool:
    names = [word.removeprefix(":") for word in line.split()]
    in_iptables = any(chains.is_proxys(table, name) for table in chains.TABLES for name in names)
    return in_iptables or line in ("table ip kube-proxy", "table ip6 kube-proxy")


def is_ours(line: str) -> bool:
    # Comments of kube-proxy name Services, and some are called after an engine.
    return "nftlb" in line and not of_kube_proxy(line)


def serves(cluster: Cluster, node: str, services: list[dict[str, Any]], ips: list[str]) -> bool:
    """Return True if kube-proxy has rules for all ports of these Services, each with all endpoints.

    It has each Service that it knows of, and rejects the connections to those whose endpoints it does not know yet.
    """
    text = "".join(
        cluster.lab.exec(node, "nft", "list", "table", family, "kube-proxy").stdout for family in ("ip", "ip6")
    )
    text += "".join(cluster.lab.exec(node, f"{program}-save").stdout for program in ("iptables", "ip6tables"))
    wanted = {
        (f"{each['metadata']['namespace']}/{each['metadata']['name']}/{port['name']}", ip)
        for each in services
        for port in each["spec"]["ports"]
        for ip in ips
        if ("IPv6" if ":" in ip else "IPv4") in each["spec"]["ipFamilies"]
    }
    chosen = [(found[1], found[0]) for found in _IN_NFTABLES.finditer(text)]
    chosen += [(found[1].replace(":", "/"), found[2]) for found in _IN_IPTABLES.finditer(text)]
    return wanted <= {(port, found[1]) for port, rules in chosen for found in _ENDPOINT.finditer(rules)}


def condition(cluster: Cluster) -> tuple[str, str]:
    gone = cluster.condition("nftlbnode", NODE, "KubeProxyGone")
    return gone.get("status", ""), gone.get("reason", "")


def failures(results: dict[str, Any]) -> list[str]:
    return [
        f"{place}: {name}: {how} after {(ended - began) / 1e6:.0f} ms, begun at {utc(began)}"
        for place, result in results.items()
        for name, record in result["streams"].items()
        if not name.startswith(CONTROL)
        for began, ended, how in record["failed"]
    ]


def utc(monotonic_ns: int) -> str:
    """The time of day, as the logs of agents have it."""
    seconds = monotonic_ns / 1e9 + time.time() - time.monotonic()
    return timestamps.micros(datetime.fromtimestamp(seconds, UTC))


def stopping(cluster: Cluster) -> subprocess.Popen[bytes]:
    """Send the agent its signal, and do not wait for its end."""
    command = [sys.executable, "-m", "kube_nftlb", "lab", "--name", cluster.lab.name, "stop", "agent", NODE]
    return subprocess.Popen(command)


def test_what_differs_is_known_before(cluster_with_kube_proxy: Cluster) -> None:
    cluster = cluster_with_kube_proxy
    mode = cluster.lab.proxy.removesuffix("+kube-nftlb").removeprefix("kube-proxy-")
    config = f"kind: KubeProxyConfiguration\nmode: {mode}\nconntrack: {{maxPerCore: 65536}}\n"
    where = {"name": "kube-proxy", "namespace": "kube-system"}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": {"config.conf": config}}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    cluster.apply(service("before", "default", type="NodePort", sessionAffinity="ClientIP"))
    done = commands.run(cluster, "preflight", "-o", "json", where=NODE)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    found = {each["reason"]: (each["severity"], each["objects"]) for each in told["findings"]}
    assert told["safe"]
    assert found["SessionsForgotten"] == ("differs", ["default/before"])
    assert found["Conntrack"] == ("differs", [])
    assert ("LocalhostNodePorts" in found) == ("NodePortAddresses" in found) == (mode == "iptables")
    # No webhook keeps an external IP from being a node's.
    taken = [str(cluster.lab.nodes[0].addresses[0].ip)]
    cluster.apply(service("before", "default", type="NodePort", sessionAffinity="ClientIP", externalIPs=taken))
    done = commands.run(cluster, "preflight", where=NODE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "blocks  ExternalIPRefused: " in done.stdout
    assert "(Service default/before)" in done.stdout
    assert done.stdout.endswith("do not move nodes yet: ExternalIPRefused\n")
    cluster.delete("service", "before")


@pytest.mark.timeout(300)
def test_a_node_moves_to_kube_nftlb_and_back_without_a_failed_connection(cluster_with_kube_proxy: Cluster) -> None:
    cluster, lab = cluster_with_kube_proxy, cluster_with_kube_proxy.lab
    namespace = "moving"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    eventually(lambda: cluster.get("serviceaccount", "default", namespace) is not None, "it has a service account")
    cluster.apply(
        daemon_set(AGENT, NAMESPACE, nodeSelector={LABEL: "kube-nftlb"}), daemon_set("kube-proxy", "kube-system")
    )
    patch = _PATCH.search((ROOT / "docs/install.md").read_text())
    assert patch
    cluster.kubectl(*shlex.split(patch[1]))
    eventually(lambda: nodes_of(cluster, "kube-proxy") == [NODE, OTHER], "kube-proxy is everywhere")
    # Others' rules, one of which needs a chain of kube-proxy's; and the kubelet's.
    iptables(cluster, "-t", "nat", "-N", FOREIGN)
    iptables(cluster, "-t", "nat", "-A", FOREIGN, "-p", "tcp", "--dport", "9", "-j", "RETURN")
    iptables(cluster, "-t", "nat", "-A", "PREROUTING", "-j", FOREIGN)
    iptables(cluster, "-t", "filter", "-N", "KUBE-FIREWALL")
    iptables(cluster, "-t", "mangle", "-N", "KUBE-KUBELET-CANARY")
    stage = Stage(cluster, namespace, 10, programmed=False)
    services = cluster.get("service", namespace=namespace)["items"]
    pods = cluster.get("pod", namespace=namespace, labelSelector="app=bystander")["items"]
    ips = [each["ip"] for pod in pods for each in pod["status"]["podIPs"]]
    for node in (NODE, OTHER):
        eventually(partial(serves, cluster, node, services, ips), f"kube-proxy on {node} serves", 60)
    before = [line for line in lines(cluster, NODE) if not of_kube_proxy(line)]
    began = time.monotonic()

    def after() -> str:
        return f"{time.monotonic() - began:.1f} s"

    with stage.hammered() as results:
        label(cluster, "kube-nftlb", [NODE], [OTHER])
        lab.stop("kube-proxy", NODE)
        lab.start("nftlb", NODE)
        lab.start("agent", NODE)
        eventually(lambda: condition(cluster) == ("True", "NoKubeProxy"), "the node is taken over", 90)
        print("taken over after", after())
        taken_over = lines(cluster, NODE)
        # Some connections are made by the new rules alone.
        time.sleep(ALONE_S)
        print("moving back after", after())
        label(cluster, None, [], [NODE, OTHER])
        print("labelled after", after())
        if lab.proxy.startswith("kube-proxy-iptables"):
            # It may also be there before the agent is told to go, and cannot have its ports then.
            lab.start("kube-proxy", NODE)
            eventually(lambda: condition(cluster)[1] == "KubeProxyRulesReturned", "kube-proxy is there first", 30)
        leaving = stopping(cluster)
        lab.stop("nftlb", NODE)
        if not lab.proxy.startswith("kube-proxy-iptables"):
            lab.start("kube-proxy", NODE)
        print("kube-proxy started after", after())
        assert leaving.wait(130) == 0
        print("moved back after", after())
        moved_back = lines(cluster, NODE)
        time.sleep(ALONE_S)
    attempts = sum(record["attempts"] for result in results.values() for record in result["streams"].values())
    print(attempts, "attempts")
    assert [line for line in taken_over if of_kube_proxy(line)] == []
    ours = [line for line in taken_over if is_ours(line)]
    assert "table inet kube-nftlb" in ours
    assert [line for line in taken_over if line not in ours] == before
    assert [line for line in moved_back if is_ours(line)] == []
    assert [line for line in moved_back if not of_kube_proxy(line)] == before
    assert serves(cluster, NODE, services, ips)
    assert cluster.get("nftlbnode", NODE) is None
    assert failures(results) == []
    assert attempts > 100
    told = {event["reason"] for event in cluster.events("Node", NODE, "default")}
    assert "KubeProxyRulesRemoved" in told, json.dumps(sorted(told))
