"""The permissions of the operator's and the agent's tokens: what they need (see ``leftovers``) and no more."""

import json
from typing import Any

import pytest

from kube_nftlb.settings import NftlbSettings
from lab.rights import AGENT_ACCOUNT, NAMESPACE, OPERATOR_ACCOUNT
from tests.builders.manifests import farm, policy, service
from tests.functional.cluster import Cluster
from tests.functional.farms import unique

OPERATOR = "operator"
AGENT = "agent"
OURS, CORE, APPS = "kube-nftlb.io", "", "apps"
DISCOVERY, LEASES, RIGHTS = "discovery.k8s.io", "coordination.k8s.io", "rbac.authorization.k8s.io"
GROUPS = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]


class Holder:
    """The account of one of the lab's own programs, and requests with its token."""

    def __init__(self, cluster: Cluster, program: str, node: str = "") -> None:
        self._cluster = cluster
        self._account = OPERATOR_ACCOUNT if program == OPERATOR else AGENT_ACCOUNT
        bound = ("--bound-object-kind=Node", f"--bound-object-name={node}") if node else ()
        self._token = cluster.kubectl("create", "token", self._account, "-n", NAMESPACE, *bound).strip()

    def says(self, *arguments: str, body: dict[str, Any] | None = None) -> str:
        """kubectl's standard error; empty on success."""
        # The lab's kubeconfig has an administrator's token, which an option comes before.
        done = self._cluster.try_kubectl(f"--token={self._token}", *arguments, stdin=json.dumps(body) if body else None)
        return done.stderr if done.returncode != 0 else ""

    def may_not(self, *arguments: str, body: dict[str, Any] | None = None) -> None:
        told = self.says(*arguments, body=body)
        assert "forbidden" in told, f"{arguments}: {told}"

    def can(self, verb: str, resource: str, namespace: str = "", group: str = OURS) -> bool:
        """Ask the API server; ``resource`` may name a subresource behind a slash, and an object after ``#``."""
        resource, _, name = resource.partition("#")
        resource, _, subresource = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name}
        who = {"user": f"system:serviceaccount:{NAMESPACE}:{self._account}", "groups": GROUPS}
        spec = {**who, "resourceAttributes": {**asked, "namespace": namespace}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self._cluster.api.request("POST", path, body)["status"]["allowed"])

    def writes(self, resource: str, group: str = OURS) -> list[str]:
        """The verbs with which it may change a resource anywhere."""
        return [verb for verb in ("create", "update", "patch", "delete") if self.can(verb, resource, group=group)]


@pytest.mark.parametrize("program", [OPERATOR, AGENT])
def test_neither_reads_secrets_nor_makes_pods_nor_gives_rights(cluster: Cluster, program: str) -> None:
    holder = Holder(cluster, program)
    refused = [
        ("get", "secrets", CORE),
        ("get", "configmaps", CORE),
        ("create", "pods", CORE),
        ("create", "deployments", APPS),
        ("create", "clusterrolebindings", RIGHTS),
        ("create", "serviceaccounts/token", CORE),
        ("impersonate", "users", CORE),
        ("patch", "nodes", CORE),
        ("patch", "customresourcedefinitions", "apiextensions.k8s.io"),
        ("*", "*", "*"),
    ]
    namespaces = ("", NAMESPACE)
    assert [each for each in refused for where in namespaces if holder.can(*each[:2], where, each[2])] == []


def test_the_operator_writes_no_services_slices_pods_or_others_leases(cluster: Cluster, namespace: str) -> None:
    holder = Holder(cluster, OPERATOR)
    cluster.apply(service("web", namespace))
    holder.may_not("annotate", "service", "web", "a=b", "-n", namespace)
    holder.may_not("delete", "service", "web", "-n", namespace)
    core = ("services", "services/status", "pods", "pods/status")
    of = {**dict.fromkeys(core, CORE), "endpointslices": DISCOVERY, "nftlbnodes": OURS, "nftlbpolicies": OURS}
    assert {resource: holder.writes(resource, group) for resource, group in of.items()} == {each: [] for each in of}
    assert holder.can("patch", "leases#kube-nftlb-operator", NAMESPACE, LEASES)
    assert not holder.can("patch", "leases#another", NAMESPACE, LEASES)
    assert not holder.can("create", "leases", "kube-system", LEASES)
    assert holder.says("get", "farms", "-n", namespace) == ""


def test_an_agent_writes_no_farms_and_no_policies(cluster: Cluster, namespace: str) -> None:
    holder = Holder(cluster, AGENT, cluster.nodes[0])
    made = farm("mine", namespace, addresses=[{"ip": unique(), "ports": "80"}])
    cluster.apply(made, policy("mine", namespace, "deny", ["10.0.0.0/8"]))
    for kind in ("farm", "nftlbpolicy"):
        holder.may_not("delete", kind, "mine", "-n", namespace)
        holder.may_not("label", kind, "mine", "a=b", "-n", namespace)
    holder.may_not("create", "-f", "-", body={**made, "metadata": {"name": "other", "namespace": namespace}})
    of = {"services": CORE, "nodes": CORE, "endpointslices": DISCOVERY, "daemonsets": APPS}
    of |= dict.fromkeys(("nftlbfarms", "nftlbfarms/status", "nftlbpolicies"), OURS)
    assert {resource: holder.writes(resource, group) for resource, group in of.items()} == {each: [] for each in of}
    assert holder.can("patch", "nftlbnodes/status")
    assert not holder.can("list", "daemonsets", NAMESPACE, APPS), "its own alone"
    assert holder.can("list", "daemonsets#kube-nftlb-agent", NAMESPACE, APPS)


def test_nftlb_answers_root_alone(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    port = NftlbSettings.from_environment(cluster.lab.environment(node)).port
    connect = ("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}")
    assert cluster.lab.exec(node, *connect).returncode == 0
    nobody = cluster.lab.exec(node, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *connect)
    assert "Connection refused" in nobody.stderr
