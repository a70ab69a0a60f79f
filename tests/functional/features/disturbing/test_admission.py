"""The chart's admission policies for farms: what the operator made is the operator's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import names
from lab.rights import NAMESPACE, OPERATOR_ACCOUNT
from tests.builders.manifests import client_pod, farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique
from tests.functional.features.test_conflicts import controlled_by

POLICIES = Path(__file__).parents[4] / "charts/kube-nftlb/admission"
OTHER_SERVICE = {"apiVersion": "serving.knative.dev/v1", "kind": "Service"}


@pytest.fixture
def guarded(cluster: Cluster, own_namespace: str) -> Iterator[str]:
    """A own_namespace with a user "tenant" who may write farms, and the admission policy of the chart."""
    policy = "---\n".join((POLICIES / f"farm-{name}.yaml").read_text() for name in ("ownership", "deletion"))
    allow = ("--verb=*", "--resource=nftlbfarms.kube-nftlb.io", "-n", own_namespace)
    with cluster.applied(policy):
        cluster.kubectl("create", "role", "farms", *allow)
        cluster.kubectl("create", "rolebinding", "farms", "--role=farms", "--user=tenant", "-n", own_namespace)
        yield own_namespace


def test_the_admission_policy_lets_nobody_delete_a_services_farm_but_with_its_service(
    cluster: Cluster, guarded: str
) -> None:
    cluster.apply(
        service("own", guarded, selector={"app": "nobody"}),
        farm("mine", guarded, addresses=[{"ip": unique(), "ports": "80"}]),
    )
    eventually(lambda: cluster.farm("own--http", guarded) is not None, "the operator makes a farm")

    def refused() -> bool:
        done = cluster.try_kubectl("delete", "farm", "own--http", "--as=tenant", "-n", guarded)
        return "only kube-nftlb's operator may delete it; delete the Service" in done.stderr

    eventually(refused, "a tenant may not delete it")
    cluster.kubectl("delete", "farm", "mine", "--as=tenant", "-n", guarded)
    foreign = [{**OTHER_SERVICE, "name": "own", "uid": "0b6c2ff4-0000-4000-8000-000000000000", "controller": True}]
    theirs = farm("theirs", guarded, addresses=[{"ip": unique(), "ports": "80"}])
    theirs["metadata"]["ownerReferences"] = foreign
    made = cluster.try_kubectl("create", "--as=tenant", "-f", "-", stdin=json.dumps(theirs))
    assert made.returncode == 0, f"a Service of another API may own a farm: {made.stderr}"
    cluster.kubectl("delete", "farm", "theirs", "--as=tenant", "-n", guarded)
    cluster.kubectl("delete", "service", "own", "-n", guarded)
    eventually(lambda: cluster.farm("own--http", guarded) is None, "it is gone with its Service")


def test_the_admission_policy_lets_only_the_operator_make_a_services_farm(cluster: Cluster, guarded: str) -> None:
    cluster.apply(service("own", guarded, selector={"app": "nobody"}))
    eventually(lambda: cluster.farm("own--http", guarded) is not None, "the operator still writes farms")

    def as_tenant(**metadata: Any) -> str:
        made = farm("mine", guarded, addresses=[{"ip": unique(), "ports": "80"}])
        text = json.dumps({**made, "metadata": {**made["metadata"], **metadata}})
        return cluster.try_kubectl("apply", "--as=tenant", "-f", "-", stdin=text).stderr

    owners = controlled_by(cluster, "own", guarded)
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY_OPERATOR}

    def refused() -> bool:
        return "may make a Service or route the controller of a farm" in as_tenant(ownerReferences=owners)

    eventually(refused, "a Service as the controller is refused")
    assert "only kube-nftlb's operator may label a farm" in as_tenant(labels=labels)
    cluster.kubectl("delete", "farm", "mine", "-n", guarded, "--ignore-not-found")
    assert as_tenant() == "", "a farm written by hand is taken"
    assert "may make a Service or route the controller of a farm" in as_tenant(ownerReferences=owners)
    assert as_tenant(ownerReferences=[{**owners[0], "controller": False}]) == ""
    edit = cluster.try_kubectl("label", "--as=tenant", "farm", "own--http", "-n", guarded, "colour=green")
    assert edit.returncode == 0, "what the operator has said may stay in an edit of another's"

    def patched(part: dict[str, Any]) -> str:
        patch = ("patch", "--as=tenant", "farm", "own--http", "-n", guarded, "--type=merge", "-p", json.dumps(part))
        return cluster.try_kubectl(*patch).stderr

    stolen = {"addresses": [{"ip": unique(), "ports": "80"}]}
    assert "only kube-nftlb's operator may change its spec; change that" in patched({"spec": stolen})
    assert "only kube-nftlb's operator may add finalizers" in patched({"metadata": {"finalizers": ["a.b/c"]}})
    assert "only kube-nftlb's operator may change that" in patched({"metadata": {"ownerReferences": None}})
    unlabelled = {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}}
    assert "only kube-nftlb's operator may remove the label" in patched(unlabelled)
    assert patched({"metadata": {"labels": {"colour": "red"}}}) == ""


def test_the_admission_policy_lets_only_the_operator_refer_to_services_of_other_namespaces(
    cluster: Cluster, guarded: str
) -> None:
    def as_tenant(namespace: str) -> str:
        reference = {"namespace": namespace, "service": "web", "port": "http"}
        made = farm("mine", guarded, addresses=[{"ip": unique(), "ports": "80"}], backendsFrom=[reference])
        made["spec"].pop("backends", None)
        return cluster.try_kubectl("apply", "--as=tenant", "-f", "-", stdin=json.dumps(made)).stderr

    refusal = "only kube-nftlb's operator may have a farm refer to a Service of another namespace"
    eventually(lambda: refusal in as_tenant("kube-system"), "a tenant may not")
    assert as_tenant(guarded) == "", "its own namespace may be named"
    for version in ("gateway.networking.k8s.io/v1", "gateway.networking.k8s.io"):
        route = {"apiVersion": version, "kind": "TCPRoute", "name": "web", "uid": "0b6c2ff4", "controller": True}
        patch = json.dumps({"metadata": {"ownerReferences": [route]}})
        owned = cluster.try_kubectl("patch", "--as=tenant", "farm", "mine", "-n", guarded, "--type=merge", "-p", patch)
        assert "may make a Service or route the controller of a farm" in owned.stderr


@pytest.mark.parametrize(
    ("kind", "own", "stolen_field"),
    [
        ("pod", names.READINESS_GATE, {"hostIP": "10.9.9.%d", "hostIPs": None}),
        ("service", names.SERVICE_CONDITION, {"loadBalancer": {"ingress": [{"ip": "10.9.9.%d"}]}}),
    ],
)
def test_the_admission_policy_leaves_the_operator_its_own_conditions_of_a_status(
    cluster: Cluster, own_namespace: str, kind: str, own: str, stolen_field: dict[str, Any]
) -> None:
    file = POLICIES / "operator-conditions.yaml"
    operator = f"system:serviceaccount:{NAMESPACE}:{OPERATOR_ACCOUNT}"
    rights = ("--verb=get,patch", f"--resource={kind}s/status", "-n", own_namespace)
    cluster.kubectl("create", "role", "conditions", *rights)
    cluster.kubectl(
        "create", "rolebinding", "conditions", "--role=conditions", f"--user={operator}", "-n", own_namespace
    )
    cluster.apply(
        client_pod("web", own_namespace, cluster.nodes[0])
        if kind == "pod"
        else service("web", own_namespace, type="LoadBalancer")
    )

    def patched(part: dict[str, Any], how: str = "merge") -> str:
        patch = ("--as", operator, "-n", own_namespace, "--type", how, "--subresource=status")
        return cluster.try_kubectl("patch", kind, "web", *patch, "-p", json.dumps(part)).stderr

    def written(type_: str) -> str:
        now = "2026-01-02T03:04:05Z"
        condition = {"type": type_, "status": "True", "reason": "A", "message": "", "lastTransitionTime": now}
        return patched({"status": {"conditions": [condition]}}, "strategic")

    # One that is written before the policy is in force would be no change the next time.
    stolen = (json.loads(json.dumps({"status": stolen_field}) % number) for number in range(1, 255))
    cluster.kubectl("apply", "-f", str(file))
    try:
        eventually(lambda: "may only write its own conditions" in patched(next(stolen)), "the policy is in force")
        assert "conditions of the domain kube-nftlb.io" in written("example.com/Ready")
        assert "may not change labels" in patched({"metadata": {"labels": {"a": "b"}}})
        if kind == "service":
            # The API server itself leaves those of a Pod as they are. An owner that does not exist has it deleted.
            gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0b6c2ff4"}
            assert "ownerReferences with a status" in patched({"metadata": {"ownerReferences": [gone]}})
        assert written(own) == ""
        assert own in json.dumps(cluster.get(kind, "web", own_namespace)["status"]["conditions"])
    finally:
        cluster.kubectl("delete", "-f", str(file))
