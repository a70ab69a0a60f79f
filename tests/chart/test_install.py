"""The chart in a cluster with real API server and controllers. No image runs: nodes pretend to run the pods."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import documents
from tests.builders.manifests import farm
from tests.chart.render import CHART, NAMESPACE, VALUES, helm, render
from tests.functional.cluster import Cluster, eventually, running

FARMS = "nftlbfarms.kube-nftlb.io"
CRDS = {
    FARMS,
    "nftlbaddresspools.kube-nftlb.io",
    "nftlbbgppeers.kube-nftlb.io",
    "nftlbnodes.kube-nftlb.io",
    "nftlbpolicies.kube-nftlb.io",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster without kube-nftlb."""
    with running("chart", nodes=2, proxy="none") as cluster:
        yield cluster


@pytest.fixture
def release(cluster: Cluster) -> Iterator["Release"]:
    """The chart's release, removed after the test."""
    release = Release(cluster)
    try:
        yield release
    finally:
        release.uninstall("--ignore-not-found")
        cluster.kubectl("delete", "crd", *CRDS, "--ignore-not-found")


class Release:
    """Helm, on this cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._environment = {**os.environ, "KUBECONFIG": str(cluster.lab.kubeconfig), "HELM_MAX_HISTORY": "2"}

    def helm(self, *arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        return helm(*arguments, "--namespace", NAMESPACE, values=values, env=self._environment)

    def upgrade(self, values: dict[str, Any] | None = None, chart: Path = CHART, *, wait: bool = True) -> str:
        """Install or upgrade, wait until everything is ready, and return Helm's output."""
        waiting = ("--wait", "--timeout", "2m") if wait else ()
        arguments = ("--install", "--create-namespace", "--reset-values", *waiting)
        done = self.helm("upgrade", "kube-nftlb", str(chart), *arguments, values=values or {})
        assert done.returncode == 0, done.stderr
        return done.stdout

    def uninstall(self, *options: str) -> None:
        done = self.helm("uninstall", "kube-nftlb", "--wait", *options)
        assert done.returncode == 0, done.stderr
        # They would take the time that agents are given.
        self._cluster.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")


def crds(cluster: Cluster) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.get("crd")["items"]} & CRDS


def ours(cluster: Cluster) -> set[str]:
    """Return all objects named after the chart."""
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
    everywhere = cluster.kubectl("get", kinds, "-o", "name")
    here = cluster.kubectl(
        "get",
        "deployments,daemonsets,roles,rolebindings,serviceaccounts,poddisruptionbudgets",
        "-n",
        NAMESPACE,
        "-oname",
    )
    return {name for name in (everywhere + here).split() if "kube-nftlb" in name}


@contextlib.contextmanager
def users(cluster: Cluster) -> Iterator[Callable[[str, str, str], bool]]:
    """What two users may do in the namespace default, who have the roles view and edit there."""

    def can(user: str, verb: str, resource: str) -> bool:
        done = cluster.try_kubectl("auth", "can-i", verb, *resource_of(resource), f"--as={user}", "-n", "default")
        return done.stdout.strip() == "yes"

    for role in ("view", "edit"):
        cluster.kubectl(
            "create", "rolebinding", f"test-{role}", f"--clusterrole={role}", f"--user={role}er", "-n", "default"
        )
    try:
        yield can
    finally:
        for role in ("view", "edit"):
            cluster.delete("rolebinding", f"test-{role}")


def resource_of(text: str) -> list[str]:
    resource, _, subresource = text.partition("/")
    return [resource, *([f"--subresource={subresource}"] if subresource else [])]


@pytest.mark.parametrize(
    "name", ["everything", *(pytest.param(name, marks=pytest.mark.long) for name in VALUES if name != "everything")]
)
def test_the_api_server_takes_every_object(cluster: Cluster, name: str) -> None:
    foreign = ("PodMonitor", "ServiceMonitor", "PrometheusRule")
    objects = [body for body in render(VALUES[name], namespace="default") if body["kind"] not in foreign]
    # A pod needs its account, which a dry run does not make.
    wanted = [body for body in objects if body["kind"] != "Pod"]
    (pod,) = (body for body in objects if body["kind"] == "Pod")
    pod["spec"]["serviceAccountName"] = "default"
    arguments = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    done = cluster.try_kubectl(*arguments, stdin=yaml.safe_dump_all([*wanted, pod]))
    assert done.returncode == 0, done.stderr
    assert "unknown field" not in done.stderr
    assert done.stdout.count("server dry run") == len(wanted) + 1


def test_it_comes_up_changes_and_goes(cluster: Cluster, release: Release) -> None:
    said = release.upgrade()
    assert "WARNING: apiServer.host is not set" in said
    assert cluster.get("deployment", "kube-nftlb-operator", NAMESPACE)["status"]["availableReplicas"] == 2
    assert cluster.get("daemonset", "kube-nftlb-agent", NAMESPACE)["status"]["numberReady"] == len(cluster.nodes)
    assert cluster.get("pdb", "kube-nftlb-operator", NAMESPACE)["status"]["disruptionsAllowed"] == 1
    for role in ("operator", "agent"):
        rules = yaml.safe_load((CHART / f"rbac/{role}.yaml").read_text())
        assert cluster.get("clusterrole", f"kube-nftlb-{role}")["rules"] == rules
        account = f"system:serviceaccount:{NAMESPACE}:kube-nftlb-{role}"
        may_list = cluster.try_kubectl("auth", "can-i", "list", "nftlbfarms", f"--as={account}", "-A").stdout
        assert may_list.strip() == "yes"
    cluster.apply(farm("kept", "default", addresses=[{"ip": "10.99.0.1", "ports": "80"}]))
    second = release.helm("install", "another", str(CHART))
    assert second.returncode != 0
    assert "cannot be imported into the current release" in second.stderr

    with users(cluster) as can:
        # A controller puts the roles together.
        eventually(lambda: can("viewer", "get", "nftlbfarms") and can("editer", "create", "nftlbpolicies"), "they may")
        assert [can("viewer", "create", kind) for kind in ("nftlbfarms", "nftlbpolicies")] == [False, False]
        assert not can("editer", "create", "nftlbfarms"), "a farm may listen on any address"
        assert can("editer", "list", "nftlbfarms")
        published = {"clusters": [{"name": "", "cluster": {"server": "https://192.0.2.1:8443"}}]}
        literal = f"--from-literal=kubeconfig={yaml.safe_dump(published)}"
        cluster.kubectl("create", "configmap", "cluster-info", "-n", "kube-public", literal)
        changed: dict[str, Any] = {"log": {"level": "DEBUG"}, "apiServer": {"host": "auto"}, "profile": "kube-proxy"}
        changed["userRoles"] = {"aggregateFarmEditor": True}
        # The nodes here let agents have all the time that they may take to end.
        said = release.upgrade(changed, wait=False)
        eventually(lambda: can("editer", "create", "nftlbfarms"), "now they may")
        assert not can("viewer", "create", "nftlbfarms")
        assert not can("editer", "patch", "nftlbfarms/status")
    assert "WARNING" not in said
    container = cluster.get("daemonset", "kube-nftlb-agent", NAMESPACE)["spec"]["template"]["spec"]["containers"][0]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["KUBE_NFTLB_LOG_LEVEL"] == "DEBUG"
    assert (values["KUBERNETES_SERVICE_HOST"], values["KUBERNETES_SERVICE_PORT"]) == ("192.0.2.1", "8443")

    release.uninstall()
    eventually(lambda: not ours(cluster), f"nothing is left but what is to be kept: {ours(cluster)}")
    assert crds(cluster) == CRDS
    assert cluster.farm("kept", "default") is not None

    release.upgrade({"crds": {"keep": False}})
    assert cluster.farm("kept", "default") is not None, "what was kept is taken over again"
    release.uninstall()
    eventually(lambda: not crds(cluster), "the definitions go where they are not to be kept", 60)


@pytest.mark.long
def test_the_plain_manifest_comes_up_and_goes(cluster: Cluster) -> None:
    overlay = str(CHART.parents[1] / "examples/kustomize")
    try:
        cluster.kubectl("apply", "--server-side", "-k", overlay)
        for kind, name in (("deployment", "operator"), ("daemonset", "agent")):
            cluster.kubectl("rollout", "status", f"{kind}/kube-nftlb-{name}", "-n", NAMESPACE, "--timeout=120s")
        assert crds(cluster) == CRDS
        container = cluster.get("daemonset", "kube-nftlb-agent", NAMESPACE)["spec"]["template"]["spec"]["containers"][0]
        assert container["image"].startswith("registry.example.com/kube-nftlb:")
        assert {"name": "KUBERNETES_SERVICE_HOST", "value": "192.0.2.1"} in container["env"]
    finally:
        cluster.kubectl("delete", "-k", overlay, "--wait=false")
        cluster.try_kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
    eventually(lambda: not ours(cluster) and not crds(cluster), "nothing is left", 120)
    eventually(lambda: cluster.get("namespace", NAMESPACE) is None, "not even the namespace", 120)


def test_an_upgrade_brings_new_fields_into_the_definitions(cluster: Cluster, release: Release, tmp_path: Path) -> None:
    old = tmp_path / "kube-nftlb"
    shutil.copytree(CHART, old)
    path = old / f"files/crds/kube-nftlb.io_{FARMS.partition('.')[0]}.yaml"
    definition = documents.parse(path.read_text())
    fields = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["logPrefix"]
    path.write_text(yaml.safe_dump(definition, sort_keys=False))

    def knows_log_prefix() -> bool:
        schema = cluster.get("crd", FARMS)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return "logPrefix" in schema["properties"]["spec"]["properties"]

    release.upgrade(chart=old)
    assert not knows_log_prefix()
    cluster.apply(farm("kept", "default", addresses=[{"ip": "10.99.0.1", "ports": "80"}]))
    release.upgrade()
    assert knows_log_prefix()
    changed = farm("kept", "default", addresses=[{"ip": "10.99.0.1", "ports": "80"}], logPrefix="new")
    eventually(
        lambda: cluster.try_kubectl("apply", "-f", "-", stdin=json.dumps(changed)).returncode == 0, "it is taken"
    )
    assert cluster.farm("kept", "default")["spec"]["logPrefix"] == "new"
