"""The contents of the programs' logs, and what must not be in them."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kube_nftlb import names
from lab import credentials
from lab.lab import Lab
from tests.builders.manifests import farm, policy, service
from tests.engine import ENGINE
from tests.functional.cluster import Cluster, eventually

pytestmark = [pytest.mark.timeout(240), pytest.mark.once("lines of the programs")]

VIP = "10.99.97.1"


def lines(cluster: Cluster, component: str, node: str | None = None) -> list[dict[str, Any]]:
    """The lines that are JSON; the lab adds some of its own, which begin with dashes."""
    written = cluster.lab.log_path(component, node).read_text(errors="replace").splitlines()
    return [json.loads(line) for line in written if not line.startswith("--")]


def about(cluster: Cluster, namespace: str, name: str, component: str, node: str | None = None) -> list[str]:
    """The events that a log tells of a farm, in their order."""
    found = lines(cluster, component, node)
    return [line["event"] for line in found if (line.get("namespace"), line.get("farm")) == (namespace, name)]


def test_a_service_is_followed_by_its_farms_name(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.run("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    # Of a Service that is deleted the garbage collector may be faster than the operator.
    cluster.kubectl("label", "service", "web", "-n", namespace, f"{names.LABEL_PROXY_NAME}=other")
    eventually(lambda: "farm deleted" in about(cluster, namespace, "web--http", "operator"), "the farm is gone")
    told = about(cluster, namespace, "web--http", "operator")
    assert set(told) == {"farm applied", "farm deleted"}
    assert told[-1] == "farm deleted"

    def removed(node: str) -> bool:
        return about(cluster, namespace, "web--http", "agent", node)[-1:] == ["farm removed"]

    for node in cluster.nodes:
        eventually(partial(removed, node), f"{node} logs that the farm is gone")
        assert set(about(cluster, namespace, "web--http", "agent", node)) == {"farm programmed", "farm removed"}
    programmed = [
        line
        for line in lines(cluster, "agent", cluster.nodes[0])
        if line["event"] == "farm programmed" and line["namespace"] == namespace
    ]
    assert programmed[-1]["backends"] == 2
    assert (programmed[-1]["service"], programmed[-1]["node"]) == ("web", cluster.nodes[0])
    assert programmed[-1]["level"] == "info"


def test_a_change_that_touches_no_farm_is_no_line(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.run("web", 1, namespace)
    cluster.farm_has("web--http", namespace, 1)
    time.sleep(1)
    before = {node: len(lines(cluster, "agent", node)) for node in cluster.nodes}
    operator = len(lines(cluster, "operator"))
    for number in range(5):
        cluster.kubectl("annotate", "service", "web", "-n", namespace, f"example.com/number={number}", "--overwrite")
        cluster.kubectl("annotate", "farm", "web--http", "-n", namespace, f"example.com/n={number}", "--overwrite")
    time.sleep(2)
    assert {node: len(lines(cluster, "agent", node)) for node in cluster.nodes} == before
    assert len(lines(cluster, "operator")) == operator


def test_a_farm_that_fails_is_told_once_and_that_it_works_again(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[0]
    cluster.apply(farm("guarded", namespace, addresses=[{"ip": VIP, "ports": "80"}], policies=["later"]))
    eventually(lambda: "farm failed" in about(cluster, namespace, "guarded", "agent", node), "the failure is told")
    cluster.apply(service("other", namespace))
    cluster.wait("farm", "other--http", "Programmed", namespace)
    cluster.apply(policy("later", namespace, "allow", ["192.0.2.0/24"]))
    cluster.wait("farm", "guarded", "Programmed", namespace)
    told = about(cluster, namespace, "guarded", "agent", node)
    assert told.count("farm failed") == 1
    assert told[-1] == "farm programmed"
    taken = [line for line in lines(cluster, "agent", node) if line["event"] == "policy taken"]
    assert (namespace, "later") in {(line["namespace"], line["policy"]) for line in taken}


def test_no_key_token_or_client_is_in_a_log(cluster: Cluster, namespace: str, client: str) -> None:
    """With persistence, UDP, drift, and an nftlb and an agent that are started anew: clients' addresses are handled."""
    node = cluster.nodes[0]
    port = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    cluster.apply(service("web", namespace, {"persistence": "srcip"}), service("names", namespace, ports=port))
    cluster.run("web", 2, namespace)
    cluster.run("names", 2, namespace, ports=[{"containerPort": 53, "protocol": "UDP"}])
    cluster.farm_has("web--http", namespace, 2)
    cluster.farm_has("names--dns", namespace, 2)
    (address,) = {cluster.get("pod", "client", namespace)["status"]["podIP"]}
    cluster.count(client, 5, cluster.vip("web", namespace))
    cluster.count(client, 5, cluster.vip("names", namespace), 53, "--udp")
    assert address in cluster.nft(node, "list", "ruleset"), "the client is remembered"
    cluster.scale("web", 1, namespace)
    cluster.scale("names", 1, namespace)
    cluster.farm_has("web--http", namespace, 1)
    cluster.farm_has("names--dns", namespace, 1)
    cluster.nft(node, "delete", "table", *(("ip", "nftlb") if ENGINE == "nftlb" else ("inet", "kube-nftlb-services")))
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("web", namespace))
    keys = [_key(cluster, node)]
    cluster.lab.restart("nftlb", node)
    eventually(lambda: _key(cluster, node) not in keys, "nftlb has another key")
    keys.append(_key(cluster, node))
    cluster.lab.restart("agent", node)
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("web", namespace))
    logs = {
        path: path.read_text(errors="replace")
        for path in [cluster.lab.log_path("operator"), *(cluster.lab.log_path("agent", each) for each in cluster.nodes)]
    }
    for path, text in logs.items():
        for secret in (*keys, *_tokens(cluster), address):
            assert secret not in text, path.name
        assert "Bearer" not in text


def test_format_and_level_are_settings() -> None:
    """Without them it is JSON from INFO on, which the tests above have read."""
    agent = {"KUBE_NFTLB_LOG_FORMAT": "console", "KUBE_NFTLB_LOG_LEVEL": "DEBUG"}
    settings = {"agent": agent, "operator": {"KUBE_NFTLB_LOG_LEVEL": "WARNING"}}
    with _lab(f"log-lines-{os.getpid()}", settings) as cluster:
        with cluster.namespace() as namespace:
            cluster.apply(service("web", namespace))
            cluster.wait("farm", "web--http", "Programmed", namespace)
            told = cluster.lab.log_path("agent", cluster.nodes[0]).read_text()
            operator = cluster.lab.log_path("operator").read_text()
        assert "nftlb request" in told
        assert "farm programmed" in told
        assert "info" not in operator
        first = told.splitlines()[0]
        assert first.startswith("20")
        assert f"node={cluster.nodes[0]}" in first
        assert _key(cluster, cluster.nodes[0]) not in told


@contextlib.contextmanager
def _lab(name: str, settings: dict[str, dict[str, str]]) -> Iterator[Cluster]:
    lab = Lab.up(name, nodes=1, settings=settings)
    try:
        with contextlib.closing(Cluster(lab)) as cluster:
            yield cluster
    finally:
        lab.down()


def _key(cluster: Cluster, node: str) -> str:
    path = f"{cluster.lab.environment(node)['KUBE_NFTLB_RUN_DIR']}/nftlb.key"
    return cluster.lab.exec(node, "cat", path).stdout.strip()


def _tokens(cluster: Cluster) -> list[str]:
    """The tokens of all users of the lab's API server."""
    table = cluster.lab.kubeconfig.parent / "secrets" / credentials.TOKENS
    tokens = [line.partition(",")[0] for line in table.read_text().splitlines()]
    assert tokens
    return tokens
