"""The permissions of the operator's and the agent's tokens: what they need and no more."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.settings import NftlbSettings
from lab.rights import AGENT_ACCOUNT, NAMESPACE, OPERATOR_ACCOUNT
from tests.builders.manifests import farm, policy, service
from tests.functional.cluster import Cluster, eventually

pytestmark = [pytest.mark.timeout(180), pytest.mark.once("rights at the API server")]

NODE_OWNERSHIP = Path(__file__).parents[2] / "charts/kube-nftlb/admission/node-ownership.yaml"

OPERATOR = "operator"
AGENT = "agent"

KNOWS_NO_ROLES = '\\"system:discovery\\" not found'
"""Said by an API server that has just started: it has not even read the role that it makes itself."""


class Holder:
    """Requests with the token of one of the lab's own programs."""

    def __init__(self, cluster: Cluster, program: str, node: str = "") -> None:
        self._cluster = cluster
        account = OPERATOR_ACCOUNT if program == OPERATOR else AGENT_ACCOUNT
        bound = ("--bound-object-kind=Node", f"--bound-object-name={node}") if node else ()
        self._token = cluster.kubectl("create", "token", account, "-n", NAMESPACE, *bound).strip()

    def says(self, *arguments: str, body: dict[str, Any] | None = None) -> str:
        """kubectl's standard error; empty on success."""
        # The lab's kubeconfig has an administrator's token, which an option comes before.
        done = self._cluster.try_kubectl(f"--token={self._token}", *arguments, stdin=json.dumps(body) if body else None)
        return done.stderr if done.returncode != 0 else ""

    def may_not(self, *arguments: str, body: dict[str, Any] | None = None) -> None:
        told = self.says(*arguments, body=body)
        assert "forbidden" in told, f"{arguments}: {told}"

    def can(self, verb: str, resource: str, *more: str) -> bool:
        done = self._cluster.try_kubectl(f"--token={self._token}", "auth", "can-i", verb, resource, *more)
        assert done.stdout.strip() in ("yes", "no"), done.stderr
        return done.stdout.strip() == "yes"


def report(node: str) -> dict[str, Any]:
    """An NftlbNode, as an agent creates it."""
    return {"apiVersion": "kube-nftlb.io/v1alpha1", "kind": "NftlbNode", "metadata": {"name": node}}


def test_no_request_of_our_programs_in_this_lab_was_forbidden(cluster: Cluster) -> None:
    paths = [cluster.lab.log_path("operator"), *(cluster.lab.log_path("agent", node) for node in cluster.nodes)]
    for path in paths:
        text = path.read_text()
        assert text
        # The API server says this also of an Event in a namespace that is being deleted.
        assert [line for line in refused(text) if "being terminated" not in line] == []


def refused(log: str) -> list[str]:
    """The lines of a log that tell of a missing right; not of an API server that has just started.

    For a moment it knows no roles, and refuses everybody everything.
    """
    away_until, found = datetime.min.replace(tzinfo=UTC), []
    for line in log.splitlines():
        if "ClientConnectorError" in line or " broke: " in line:
            away_until = told_at(line) + timedelta(seconds=10)
        elif "403 Forbidden" in line and told_at(line) > away_until and KNOWS_NO_ROLES not in line:
            found.append(line)
    return found


def told_at(line: str) -> datetime:
    return datetime.fromisoformat(json.loads(line)["timestamp"])


def test_a_right_that_is_missing_is_told_from_an_api_server_that_starts() -> None:
    def line(second: int, error: str) -> str:
        return json.dumps({"error": error, "timestamp": f"2026-01-01T00:00:{second:02}.000000Z"})

    away, forbidden = "the watch of pods broke: ClientPayloadError()", "403 Forbidden: pods is forbidden"
    assert refused("\n".join((line(1, away), line(4, forbidden)))) == []
    assert refused("\n".join((line(1, away), line(20, forbidden), "-- operator ended"))) == [line(20, forbidden)]
    assert refused(line(1, forbidden)) == [line(1, forbidden)]
    missing = f'{forbidden}: RBAC: [clusterrole.rbac.authorization.k8s.io "{{}}" not found]'
    assert refused(line(1, missing.format("system:discovery"))) == []
    assert refused(line(1, missing.format("kube-nftlb-agent"))) != []


@pytest.mark.parametrize("program", [OPERATOR, AGENT])
def test_neither_reads_secrets_nor_makes_pods_nor_gives_rights(cluster: Cluster, program: str) -> None:
    holder = Holder(cluster, program)
    refused = [
        ("get", "secrets", "-A"),
        ("get", "configmaps", "-A"),
        ("create", "pods"),
        ("create", "deployments.apps"),
        ("create", "clusterrolebindings"),
        ("create", "serviceaccounts", "--subresource=token", "-n", NAMESPACE),
        ("impersonate", "users"),
        ("patch", "nodes"),
        ("patch", "customresourcedefinitions"),
        ("*", "*"),
    ]
    assert [each for each in refused if holder.can(*each)] == []


def test_the_operator_writes_no_services_slices_pods_or_others_leases(cluster: Cluster, namespace: str) -> None:
    holder = Holder(cluster, OPERATOR)
    cluster.apply(service("web", namespace))
    holder.may_not("annotate", "service", "web", "a=b", "-n", namespace)
    holder.may_not("delete", "service", "web", "-n", namespace)
    written = ("services", "services/status", "endpointslices", "pods", "pods/status", "nftlbnodes", "nftlbpolicies")
    for resource in written:
        assert [verb for verb in ("create", "update", "patch", "delete") if holder.can(verb, resource)] == [], resource
    assert holder.can("patch", "leases/kube-nftlb-operator", "-n", NAMESPACE)
    assert not holder.can("patch", "leases/another", "-n", NAMESPACE)
    assert not holder.can("create", "leases", "-n", "kube-system")
    assert holder.says("get", "farms", "-n", namespace) == ""


def test_an_agent_writes_no_farms_and_no_policies(cluster: Cluster, namespace: str) -> None:
    holder = Holder(cluster, AGENT, cluster.nodes[0])
    made = farm("mine", namespace, addresses=[{"ip": "10.99.0.1", "ports": "80"}])
    cluster.apply(made, policy("mine", namespace, "deny", ["10.0.0.0/8"]))
    for kind in ("farm", "nftlbpolicy"):
        holder.may_not("delete", kind, "mine", "-n", namespace)
        holder.may_not("label", kind, "mine", "a=b", "-n", namespace)
    holder.may_not("create", "-f", "-", body={**made, "metadata": {"name": "other", "namespace": namespace}})
    for resource in ("services", "endpointslices", "nodes", "nftlbfarms", "nftlbpolicies", "daemonsets"):
        assert [verb for verb in ("create", "update", "patch", "delete") if holder.can(verb, resource)] == [], resource
    assert not holder.can("patch", "nftlbfarms", "--subresource=status")
    assert holder.can("patch", "nftlbnodes", "--subresource=status")
    assert not holder.can("list", "daemonsets", "-n", NAMESPACE), "its own alone"
    assert holder.can("list", "daemonsets/kube-nftlb-agent", "-n", NAMESPACE)


@pytest.fixture
def guarded(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the admission policy."""
    text = NODE_OWNERSHIP.read_text()
    cluster.kubectl("apply", "-f", "-", stdin=text)
    try:
        yield cluster
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=text)


def test_the_admission_policy_lets_an_agent_report_for_its_node_only(guarded: Cluster) -> None:
    own, other = guarded.nodes
    holder = Holder(guarded, AGENT, own)
    # As the agents do: kubectl's other ways read the object first, which they may not.
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")

    def forge(node: str, who: Holder = holder) -> str:
        forged = {**report(node), "status": {"watermark": "999999999"}}
        return who.says(*apply, "--subresource=status", body=forged)

    told = f"the agent of node '{own}' may only write the NftlbNode of that name, not"
    # The API server takes a new policy up a moment later.
    eventually(lambda: told in forge(other), "another node's status is refused", 30)
    assert f"{told} '{other}'" in holder.says(*apply, body=report(other))
    assert f"{told} 'invented'" in holder.says("create", "-f", "-", body=report("invented"))
    assert f"{told} 'invented-" in holder.says(
        "create", "-f", "-", body={**report(""), "metadata": {"generateName": "invented-"}}
    )
    assert forge(own) == ""
    anybody = Holder(guarded, AGENT)
    assert "the agent of node ''" in forge(own, anybody), "a token that is bound to no node"
    assert f"{told} '{other}'" in holder.says("delete", "nftlbnode", other, "--wait=false")
    assert not holder.can("deletecollection", "nftlbnodes")
    # The agents themselves go on: they write what the forged number hides.
    version = guarded.get("nftlbnode", own)["metadata"]["resourceVersion"]
    guarded.lab.restart("agent", own)
    eventually(lambda: guarded.get("nftlbnode", own)["metadata"]["resourceVersion"] != version, "it reports again")
    eventually(lambda: guarded.get("nftlbnode", own)["status"]["watermark"] != "999999999", "the truth is back")


@pytest.mark.parametrize(
    ("finalizers", "owners"),
    [
        pytest.param(["example.org/stay"], ["Node"], id="a finalizer"),
        pytest.param([], [], id="no owner"),
        pytest.param([], ["Node", "ConfigMap"], id="another owner"),
    ],
)
def test_no_agent_makes_an_nftlbnode_that_outlives_its_node(
    guarded: Cluster, finalizers: list[str], owners: list[str]
) -> None:
    own = guarded.nodes[0]
    references = [{"apiVersion": "v1", "kind": kind, "name": own, "uid": own} for kind in owners]
    body = {**report(own), "metadata": {"name": own, "finalizers": finalizers, "ownerReferences": references}}
    told = "an NftlbNode has no finalizers, and one ownerReference, the Node of its name"
    holder = Holder(guarded, AGENT, own)
    # The API server takes a new policy up a moment later.
    eventually(lambda: told in holder.says("create", "-f", "-", body=body), "it is refused", 30)


def test_nftlb_answers_root_alone(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    port = NftlbSettings.from_environment(cluster.lab.environment(node)).port
    connect = ("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}")
    assert cluster.lab.exec(node, *connect).returncode == 0
    nobody = cluster.lab.exec(node, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *connect)
    assert "Connection refused" in nobody.stderr
