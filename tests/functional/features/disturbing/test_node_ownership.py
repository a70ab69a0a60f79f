"""The admission policy that the chart has for reports of agents, while a forged one is tried."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.cluster import Cluster, eventually
from tests.functional.features.test_rights import AGENT, Holder

NODE_OWNERSHIP = Path(__file__).parents[4] / "charts/kube-nftlb/admission/node-ownership.yaml"


def report(node: str) -> dict[str, Any]:
    """An NftlbNode, as an agent creates it."""
    return {"apiVersion": "kube-nftlb.io/v1alpha1", "kind": "NftlbNode", "metadata": {"name": node}}


@pytest.fixture
def guarded(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the admission policy."""
    with cluster.applied(NODE_OWNERSHIP.read_text()):
        yield cluster


def test_the_admission_policy_lets_an_agent_report_for_its_node_only(guarded: Cluster) -> None:
    own, other = guarded.nodes
    holder = Holder(guarded, AGENT, own)
    # As the agents do: kubectl's other ways read the object first, which they may not.
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")

    def forge(node: str, who: Holder = holder) -> str:
        forged = {**report(node), "status": {"watermark": "999999999"}}
        return who.says(*apply, "--subresource=status", body=forged)

    sentence = f"the agent of node '{own}' may only write the NftlbNode of that name, not"
    # The API server takes a new policy up a moment later.
    eventually(lambda: sentence in forge(other), "another node's status is refused", 30)
    assert f"{sentence} '{other}'" in holder.says(*apply, body=report(other))
    assert f"{sentence} 'invented'" in holder.says("create", "-f", "-", body=report("invented"))
    assert f"{sentence} 'invented-" in holder.says(
        "create", "-f", "-", body={**report(""), "metadata": {"generateName": "invented-"}}
    )
    assert forge(own) == ""
    anybody = Holder(guarded, AGENT)
    assert "the agent of node ''" in forge(own, anybody), "a token that is bound to no node"
    assert f"{sentence} '{other}'" in holder.says("delete", "nftlbnode", other, "--wait=false")
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
