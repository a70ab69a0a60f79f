"""An agent takes addresses for its own node, and has no other say in who holds what."""

from typing import Any

import pytest

from kube_nftlb.announce.ownership import records
from lab.rights import NAMESPACE
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.test_rights import AGENT, LEASES, Holder
from tests.functional.segment import announce, holder, record


def lease(name: str, holder: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {records.LABEL: "true"}},
        "spec": {"holderIdentity": holder},
    }


def test_an_agent_takes_addresses_for_its_own_node_alone(cluster: Cluster) -> None:
    # Nodes with an agent give up what nothing needs, at once.
    own, other = cluster.nodes[0], "node-without-agent"
    agent = Holder(cluster, AGENT, own)

    def writes(name: str, holder: str) -> str:
        return agent.says("apply", "--server-side", "--force-conflicts", "-f", "-", body=lease(name, holder))

    sentence = f"the agent of node '{own}' may"
    eventually(lambda: sentence in writes("address-192-0-2-1", other), "it may not name another node", 30)
    assert writes("address-192-0-2-1", own) == ""
    unseen = lease("address-192-0-2-3", own)
    del unseen["metadata"]["labels"]
    refused = agent.says("apply", "--server-side", "-f", "-", body=unseen)
    assert "needs the label" in refused, "other nodes would not see who holds it"
    owner = {"apiVersion": "v1", "kind": "Node", "name": own, "uid": own}
    for more in ({"finalizers": ["example.org/stay"]}, {"ownerReferences": [owner]}):
        stays = lease("address-192-0-2-4", own)
        stays["metadata"] |= more
        refused = agent.says("create", "-f", "-", body=stays)
        assert "may not add finalizers or ownerReferences" in refused, "it would stay, or go while it is held"
    assert sentence in writes("address-192-0-2-1", other)
    assert sentence in writes("kube-nftlb-operator", own)
    cluster.apply(lease("address-192-0-2-2", other))
    delete = ("delete", "lease", "-n", NAMESPACE, "--wait=false")
    assert sentence in agent.says(*delete, "address-192-0-2-2")
    assert writes("address-192-0-2-2", own) == "", "it takes it over"
    for name in ("address-192-0-2-1", "address-192-0-2-2"):
        assert sentence not in agent.says(*delete, name)


@pytest.mark.parametrize("resource", ["leases", "leases#kube-nftlb-operator"])
def test_an_agent_writes_leases_in_no_other_namespace(cluster: Cluster, resource: str) -> None:
    agent = Holder(cluster, AGENT, cluster.nodes[0])
    assert [verb for verb in ("create", "patch", "delete") if agent.can(verb, resource, "kube-system", LEASES)] == []


def test_a_lease_whose_label_somebody_removes_has_it_again(
    cluster: Cluster, namespace: str, pair: tuple[str, str]
) -> None:
    cluster.serve("web", 1, namespace)
    announce(cluster, "web", namespace, pair[0])
    holder(cluster, pair[0])
    cluster.kubectl("label", "lease", records.name(pair[0]), f"{records.LABEL}-", "-n", NAMESPACE)
    eventually(lambda: not record(cluster, pair[0]).unwatched, "its holder has written it")


def test_the_lease_of_an_address_goes_with_its_service(cluster: Cluster, namespace: str, pair: tuple[str, str]) -> None:
    cluster.serve("web", 1, namespace)
    announce(cluster, "web", namespace, pair[0])
    holder(cluster, pair[0])
    cluster.kubectl("delete", "service", "web", "-n", namespace, "--wait=false")
    eventually(lambda: not record(cluster, pair[0]).version, "nothing is left of it")
