"""``kubectl nftlb``: what it says of healthy and broken farms, its exit statuses, and what it does to connections."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import names
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.commands import Kubectl, node_command
from tests.functional.farms import unique

ROOT = Path(__file__).parents[3]
STATE = f"{names.ANNOTATION_PREFIX}state"


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(cluster)


@pytest.fixture
def plugin(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """The environment in which kubectl finds the plugin, as it is installed beside ``kube-nftlb``."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, target in scripts.items():
        module, function = target.split(":")
        program = tmp_path / name
        call = f"from {module} import {function}\nsys.exit({function}())\n"
        program.write_text(f"#!{sys.executable}\nimport sys\n{call}")
        program.chmod(0o755)
    lab = cluster.lab
    path = f"{tmp_path}:{lab.bin}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(lab.kubeconfig)}


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> str:
    """A Service with two ready pods."""
    cluster.expose("web", 2, namespace)
    return namespace


def test_a_farm_that_a_node_cannot_serve_has_the_advice_for_its_reason(
    cluster: Cluster, kubectl: Kubectl, namespace: str
) -> None:
    spec: dict[str, Any] = {"addresses": [{"ip": unique(), "ports": "80"}], "policies": ["nowhere"], "backends": []}
    cluster.apply(farm("guarded", namespace, **spec))
    eventually(lambda: cluster.reason("guarded", namespace).startswith("Failed"), "the policy is missing")

    def says_both_nodes() -> bool:
        return "PolicyMissing: on node-1, node-2: " in kubectl.run("why", "guarded", "-n", namespace).stdout

    eventually(says_both_nodes, "both nodes have reported it")
    done = kubectl.run("why", "guarded", "-n", namespace)
    assert done.returncode == 1
    assert "→ create the NftlbPolicy in the farm's namespace" in done.stdout


def test_a_cluster_that_cannot_be_asked_is_another_exit_status(
    cluster: Cluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    nowhere = kubectl.run("status", "--kubeconfig", str(tmp_path / "none"))
    assert (nowhere.returncode, nowhere.stdout) == (3, "")
    assert "there is no kubeconfig" in nowhere.stderr
    assert kubectl.run("--context", "unknown", "status").returncode == 3
    config = json.loads(cluster.lab.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    (tmp_path / "config").write_text(json.dumps(config))
    dead = kubectl.run("status", "--kubeconfig", str(tmp_path / "config"))
    assert dead.returncode == 3
    assert len(dead.stderr.splitlines()) == 1


def test_get_shows_what_each_node_does(cluster: Cluster, kubectl: Kubectl, web: str) -> None:
    cluster.apply(service("web", web, {"mode": "dnat"}, internalTrafficPolicy="Local"))
    pods = cluster.pods("web", web)
    here = {pod: cluster.get("pod", pod, web)["spec"]["nodeName"] for pod in pods}

    def farms() -> Any:
        return kubectl.json("get", "web", "-n", web)["farms"]

    eventually(lambda: farms()[0]["addresses"][0]["masqueraded"].startswith("all clients but"), "the mode is dnat")
    answers = {node: each["backends"] for each in farms()[0]["nodes"] for node in each["nodes"]}
    for node in cluster.nodes:
        own = {each["name"] for each in answers[node] if each["gets"] == "connections"}
        assert own == {pod for pod in pods if here[pod] == node}
    text = kubectl.run("get", f"{web}/web").stdout
    assert all(pod in text for pod in pods)
    assert kubectl.run("get", "nothing", "-n", web).returncode == 2


def test_a_drained_pod_gets_no_new_connections_until_undrain(
    cluster: Cluster, kubectl: Kubectl, web: str, client: str
) -> None:
    vip, (pod, other) = cluster.vip("web", web), sorted(cluster.pods("web", web))
    cluster.reaches(client, [pod, other], vip)
    done = kubectl.run("drain", pod, "-n", web, "--timeout", "60")
    assert done.returncode == 0, done.stderr
    assert "0 connections are open" in done.stderr
    assert cluster.answers(client, vip) == {other}
    assert cluster.get("pod", pod, web)["metadata"]["annotations"][STATE] == "drain"
    assert kubectl.run("undrain", pod, "-n", web).returncode == 0
    assert STATE not in cluster.get("pod", pod, web)["metadata"].get("annotations", {})
    cluster.reaches(client, [pod, other], vip)


def test_open_connections_are_counted_down(cluster: Cluster, kubectl: Kubectl, web: str, client: str) -> None:
    vip, (pod, other) = cluster.vip("web", web), sorted(cluster.pods("web", web))
    # While the other drains, all connections are to this one.
    assert kubectl.run("drain", other, "-n", web, "--timeout", "60").returncode == 0
    with ThreadPoolExecutor() as pool, cluster.streams(3, client, vip):
        assert kubectl.run("undrain", other, "-n", web).returncode == 0
        cluster.reaches(client, [pod, other], vip)
        late = kubectl.run("drain", pod, "-n", web, "--timeout", "20")
        assert late.returncode == 1, late.stderr
        assert "3 connections are open, through node-1" in late.stderr
        counting = pool.submit(kubectl.run, "drain", pod, "-n", web, "-o", "json")
    done = counting.result()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "connections": 0,
        "byNode": {},
        "uncountedNodes": [],
        "silentNodes": [],
        "untoldNodes": [],
    }


def test_the_last_backend_is_drained_only_by_force(
    cluster: Cluster, kubectl: Kubectl, namespace: str, client: str
) -> None:
    cluster.serve("one", 1, namespace)
    cluster.apply(service("one", namespace))
    cluster.farm_has("one--http", namespace, 1)
    (pod,) = cluster.pods("one", namespace)
    refused = kubectl.run("drain", pod, "-n", namespace)
    assert refused.returncode == 2
    assert f"the last backend of {namespace}/one--http" in refused.stderr
    vip = cluster.vip("one", namespace)
    assert cluster.answers(client, vip) == {pod}
    assert kubectl.run("drain", pod, "-n", namespace, "--force", "--timeout", "60").returncode == 0
    assert cluster.answers(client, vip) == set()


@pytest.fixture
def developer(cluster: Cluster, web: str, tmp_path: Path) -> Iterator[str]:
    """The kubeconfig of somebody who sees one namespace, and what nodes report."""
    account, everywhere = f"--serviceaccount={web}:dev", f"dev-{web}"
    seen = "--resource=pods,nftlbfarms.kube-nftlb.io,endpointslices.discovery.k8s.io"
    cluster.kubectl("create", "serviceaccount", "dev", "-n", web)
    cluster.kubectl("create", "role", "dev", "--verb=get,list,patch", seen, "-n", web)
    cluster.kubectl("create", "rolebinding", "dev", "--role=dev", account, "-n", web)
    cluster.kubectl("create", "clusterrole", everywhere, "--verb=list", "--resource=nftlbnodes.kube-nftlb.io")
    cluster.kubectl("create", "clusterrolebinding", everywhere, f"--clusterrole={everywhere}", account)
    config = json.loads(cluster.lab.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": cluster.kubectl("create", "token", "dev", "-n", web).strip()}
    (tmp_path / "config").write_text(json.dumps(config))
    try:
        yield str(tmp_path / "config")
    finally:
        cluster.kubectl("delete", "clusterrole,clusterrolebinding", everywhere)


def test_who_sees_one_namespace_can_drain_and_ask_there(
    cluster: Cluster, kubectl: Kubectl, web: str, developer: str
) -> None:
    pod = min(cluster.pods("web", web))
    assert kubectl.run("why", "web", "-n", web, "--kubeconfig", developer).returncode == 0
    done = kubectl.run("drain", pod, "-n", web, "--timeout", "60", "--kubeconfig", developer)
    assert done.returncode == 0, done.stderr
    assert kubectl.run("undrain", pod, "-n", web, "--kubeconfig", developer).returncode == 0
    status = kubectl.run("status", "--kubeconfig", developer)
    assert (status.returncode, len(status.stderr.splitlines())) == (3, 1)
    assert "forbidden" in status.stderr


def test_a_backend_written_by_hand_gets_its_field_back(cluster: Cluster, kubectl: Kubectl, web: str) -> None:
    ips = [cluster.get("pod", pod, web)["status"]["podIP"] for pod in cluster.pods("web", web)]
    backends = [{"name": f"b{number}", "ip": ip, "port": 80} for number, ip in enumerate(ips)]
    cluster.apply(farm("hand", web, addresses=[{"ip": unique(), "ports": "80"}], backends=backends))
    cluster.wait("farm", "hand", "Programmed", web)

    def states() -> list[str]:
        return [each["state"] for each in cluster.farm("hand", web)["spec"]["backends"]]

    for number in (0, 1):
        force = ("--force",) if number else ()
        done = kubectl.run("drain", f"b{number}", "-n", web, "--timeout", "60", *force)
        assert done.returncode == 0, done.stderr
    assert states() == ["drain", "drain"]
    assert kubectl.run("undrain", "b0", "-n", web).returncode == 0
    assert states() == ["up", "drain"]


def test_a_dump_has_objects_and_what_the_nodes_have(
    cluster: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    tables = {"nftlb": "ip-nftlb", "nftables": "inet-kube-nftlb-services"}
    for name in tables:
        cluster.apply(service(name, namespace, {"engine": name}, selector={"app": "web"}))
    cluster.serve("web", 2, namespace)
    for name in tables:
        cluster.farm_has(f"{name}--http", namespace, 2)
    path = tmp_path / "dump.tar.gz"
    done = kubectl.run("sysdump", "-f", str(path), "--node-command", node_command(cluster.lab), "-n", namespace)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mode & 0o077 == 0
    subprocess.run(["tar", "-xzf", path, "-C", tmp_path], check=True)
    dumped = tmp_path / "dump"
    farms = json.loads((dumped / "objects/nftlbfarms.json").read_text())
    assert sorted(each["metadata"]["name"] for each in farms) == ["nftables--http", "nftlb--http"]
    assert json.loads((dumped / "status.json").read_text())["nodes"]
    for node in cluster.nodes:
        for name, table in tables.items():
            assert f"{namespace}.{name}--http" in (dumped / f"nodes/{node}/nft-{table}.txt").read_text()
        assert "farms" in json.loads((dumped / f"nodes/{node}/nftlb-farms.json").read_text())
    assert "Nothing is missing" in (dumped / "README.txt").read_text()


def test_a_dump_hides_what_it_is_told_to(cluster: Cluster, kubectl: Kubectl, web: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.tar.gz"
    done = kubectl.run("sysdump", "-f", str(path), "--hide", "names", "--hide", "addresses", "-n", web)
    assert "the agent has no pod there" in done.stderr
    subprocess.run(["tar", "-xzf", path, "-C", tmp_path], check=True)
    text = "".join(each.read_text() for each in (tmp_path / "dump").rglob("*") if each.is_file())
    for secret in (web, "node-1", cluster.vip("web", web), *cluster.pods("web", web)):
        assert secret not in text
    assert "managedFields" not in text


def test_top_shows_the_traffic_of_a_farm_where_it_is(cluster: Cluster, kubectl: Kubectl, web: str, client: str) -> None:
    options = ("top", "-n", web, "--node-command", node_command(cluster.lab))
    with cluster.streams(4, client, cluster.vip("web", web)):
        told = kubectl.json(*options)
        (farm_,) = told["farms"]
        assert (farm_["name"], farm_["open"], list(farm_["nodes"])) == (f"{web}/web--http", 4, ["node-1"])
        assert {each["name"]: each["open"] for each in farm_["backends"]} == dict.fromkeys(cluster.pods("web", web), 2)
        # The other node has none, and may take longer to say so.
        other = kubectl.json(*options, "--node", "node-2")
        assert ([each["name"] for each in other["nodes"]], other["farms"]) == (["node-2"], [])
        done = kubectl.run(*options, "--backends", "--by", "connections")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0].split() == ["FARM", "NEW/S", "OPEN", "SENT/S", "ANSWERED/S", "NODES"]
        assert lines[1].split()[0] == f"{web}/web--http"
        assert {line.split()[0] for line in lines[2:]} == set(cluster.pods("web", web))


def test_top_says_why_no_node_reports_its_traffic(kubectl: Kubectl) -> None:
    silent = kubectl.run("top", "--node-command", "false {node}")
    assert silent.returncode == 3
    assert "no node reports its traffic" in silent.stderr


def test_kubectl_finds_the_plugin_and_completes_its_commands(
    cluster: Cluster, plugin: dict[str, str], namespace: str
) -> None:
    """The one test of the program's start."""

    def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(cluster.lab.bin / "kubectl"), *arguments]
        return subprocess.run(command, env=plugin, capture_output=True, text=True, check=False, timeout=60)

    assert kubectl("__complete", "nftlb", "sta").stdout.splitlines() == ["status", ":4"]
    done = kubectl("nftlb", "get", "nothing", "-n", namespace)
    assert done.returncode == 2, done.stderr
