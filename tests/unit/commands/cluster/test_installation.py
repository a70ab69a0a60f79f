"""Operator and agents are those of the namespace that administrators gave them, whoever has objects like theirs."""

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster.installation import program_pods
from kube_nftlb.commands.cluster.on_nodes import InPods
from kube_nftlb.commands.cluster.overview import overview
from kube_nftlb.commands.cluster.queries import AGENT_PODS, OPERATOR_LEASE, Target
from kube_nftlb.kube.resources import CLUSTER_ROLE_BINDINGS, LEASES, PODS, JsonObject
from tests.fakes.kube import FakeKube

SYSTEM, TENANT = "kube-nftlb-system", "apps"


def agent(namespace: str) -> JsonObject:
    labels = {"app.kubernetes.io/name": "kube-nftlb", "app.kubernetes.io/component": "agent"}
    return {"metadata": {"namespace": namespace, "name": "agent", "labels": labels}, "spec": {"nodeName": "n1"}}


@pytest.fixture
def kube() -> FakeKube:
    """A cluster in which a tenant has a pod and a Lease like those of kube-nftlb."""
    kube = FakeKube()
    for namespace in (TENANT, SYSTEM):
        kube.put(PODS, agent(namespace))
        kube.put(LEASES, {"metadata": {"namespace": namespace, "name": OPERATOR_LEASE}, "spec": {}})
    return kube


def bind(kube: FakeKube) -> None:
    subjects = [{"kind": "User", "name": "kube-nftlb-agent"}]
    subjects.append({"kind": "ServiceAccount", "name": "kube-nftlb-agent", "namespace": SYSTEM})
    kube.put(CLUSTER_ROLE_BINDINGS, {"metadata": {"name": "kube-nftlb-agent"}, "subjects": subjects})


@pytest.mark.parametrize("target", [Target(), Target(system_namespace=SYSTEM)])
async def test_commands_run_in_the_pods_of_the_account_that_agents_have(kube: FakeKube, target: Target) -> None:
    if target.system_namespace is None:
        bind(kube)
    prefix = InPods(target, await program_pods(kube, target, AGENT_PODS)).prefix("n1")
    assert prefix[:4] == ["kubectl", "--namespace", SYSTEM, "exec"]
    view = await overview(kube, target, None)
    assert view.lease is not None
    assert view.lease["metadata"]["namespace"] == SYSTEM
    assert [raw["metadata"]["namespace"] for raw in view.pods or ()] == [SYSTEM]


async def test_they_run_nowhere_if_nobody_tells_which_pods_are_real(kube: FakeKube) -> None:
    with pytest.raises(
        errors.UsageError, match="apps, kube-nftlb-system: name the one of kube-nftlb with --system-namespace"
    ):
        await program_pods(kube, Target(), AGENT_PODS)
    with pytest.raises(
        errors.UsageError, match="apps, kube-nftlb-system: name the one of kube-nftlb with --system-namespace"
    ):
        await overview(kube, Target(), None)
