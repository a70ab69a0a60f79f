"""The lab itself: what it promises to those who try kube-nftlb in it."""

import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from kube_nftlb import errors
from lab.lab import Lab
from tests.functional.cluster import Cluster, eventually


def host() -> dict[str, str]:
    """The state of the host that a lab must not touch."""
    questions = {
        "addresses": ["ip", "-o", "addr"],
        "routes": ["ip", "route", "show", "table", "all"],
        "ruleset": ["nft", "list", "ruleset"],
        "namespaces": ["ip", "netns", "list"],
        "forwarding": ["sysctl", "-n", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"],
    }
    answers = {
        key: subprocess.run(words, capture_output=True, text=True, check=False).stdout
        for key, words in questions.items()
    }
    # Lifetimes of addresses go down by themselves.
    answers["addresses"] = "\n".join(line for line in answers["addresses"].splitlines() if "valid_lft" not in line)
    return answers


def processes_of(lab: str) -> list[str]:
    """Processes of a lab, known by its folder in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if f"/labs/{lab}/" in command:
                found.append(command)
    return found


@pytest.mark.long
def test_a_second_lab_comes_and_goes_and_the_host_stays_as_it_is(cluster: Cluster) -> None:
    before = host()
    name = f"second-{os.getpid()}"
    lab = Lab.up(name, nodes=1, proxy="none")
    try:
        assert host() == before
        with contextlib.closing(Cluster(lab)) as second:
            assert [node["metadata"]["name"] for node in second.get("node")["items"]] == ["node-1"]
        assert len(cluster.get("node")["items"]) == 2
        with pytest.raises(errors.LabError, match="is running already"):
            Lab.up(name)
    finally:
        lab.down()
    assert host() == before
    assert processes_of(name) == []
    with pytest.raises(errors.LabError, match="is not running"):
        Lab(name)


@pytest.mark.long
def test_a_lab_that_is_killed_leaves_nothing_behind(cluster: Cluster) -> None:
    before = host()
    name = f"killed-{os.getpid()}"
    lab = Lab.up(name, nodes=1, proxy="kube-nftlb")
    folder = lab.kubeconfig.parent
    try:
        parent = int(Path(f"/proc/{lab.pid('etcd')}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        eventually(lambda: processes_of(name) == [], "all its processes are gone", 10)
        assert host() == before
    finally:
        Lab.remove(name)
    assert not folder.exists()
    assert len(cluster.get("node")["items"]) == 2, "the other lab goes on"


def test_nodes_are_in_their_zones(cluster: Cluster) -> None:
    zones = {
        node["metadata"]["name"]: node["metadata"]["labels"]["topology.kubernetes.io/zone"]
        for node in cluster.get("node")["items"]
    }
    assert zones == {"node-1": "a", "node-2": "b"}


def test_pods_that_come_do_not_change_the_address_of_their_gateway(cluster: Cluster, own_namespace: str) -> None:
    def mac() -> str:
        return cluster.lab.exec(cluster.nodes[0], "ip", "-br", "link", "show", "cni0").stdout.split()[2]

    before = mac()
    cluster.run("web", 8, own_namespace)
    # A host that knows the gateway already sends to its former address.
    assert mac() == before


def test_a_function_runs_in_the_network_where_it_is_told(cluster: Cluster, client: str) -> None:
    node_ip = str(cluster.lab.nodes[1].addresses[0].ip)
    with cluster.lab.inside("node-2", lambda: socket.create_server((node_ip, 0))) as server:
        port = server.getsockname()[1]
        with cluster.lab.inside(client, lambda: socket.create_connection((node_ip, port), 5)) as connection:
            pod_ip = cluster.get("pod", "client", client.partition("/")[0])["status"]["podIP"]
            assert connection.getsockname()[0] == pod_ip
    with pytest.raises(errors.LabError, match="no running pod"):
        cluster.lab.inside("nobody", int)


def test_a_command_runs_where_it_is_told_and_its_exit_code_comes_back(cluster: Cluster, client: str) -> None:
    ip = cluster.lab.exec(client, "ip", "-o", "-4", "addr", "show", "eth0").stdout
    assert cluster.get("pod", "client", client.partition("/")[0])["status"]["podIP"] in ip
    assert cluster.lab.exec("node-1", "sh", "-c", "cat; exit 7", input="said").returncode == 7
    assert cluster.lab.exec("client", "cat", input="said").stdout == "said"
    with pytest.raises(errors.LabError, match="no running pod"):
        cluster.lab.exec("nobody", "true")
