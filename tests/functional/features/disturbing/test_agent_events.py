"""The admission policy that the chart has for Events of agents, while others are tried with a stolen token."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.kube.events import EventDraft, Source, Subject, event
from kube_nftlb.kube.resources import FARMS, NODES, PODS, SERVICES, Resource
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.test_rights import AGENT, Holder

AGENT_EVENTS = Path(__file__).parents[4] / "charts/kube-nftlb/admission/agent-events.yaml"
PORT_TAKEN = "cannot listen on the healthCheckNodePort 30000: Address already in use"
OTHERS = "may only write Events about that Node"


@pytest.fixture
def guarded(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the admission policy."""
    with cluster.applied(AGENT_EVENTS.read_text()):
        yield cluster


def made(kind: Resource, namespace: str, name: str, message: str, node: str, **fields: Any) -> dict[str, Any]:
    """An Event about an object, as the agent of a node writes it but for these fields."""
    draft = EventDraft(Subject(kind, namespace, name, ""), "Warning", "FailedToStartServiceHealthcheck", message)
    body = event(draft, Source("kube-nftlb-agent", node), datetime.now(UTC))
    return {"apiVersion": "v1", "kind": "Event", **body, **fields}


def test_the_admission_policy_leaves_an_agent_the_events_of_its_node(guarded: Cluster, namespace: str) -> None:
    own, other = guarded.nodes
    holder = Holder(guarded, AGENT, own)
    taken = f"node {own} {PORT_TAKEN} (while attempting to bind on address ('::', 30000))"

    def says(body: dict[str, Any], who: Holder = holder) -> str:
        return who.says("create", "-f", "-", body=body)

    def of_port(message: str = taken, node: str = own, kind: Resource = SERVICES, **fields: Any) -> str:
        return says(made(kind, namespace, "web", message, node, **fields))

    # The API server takes a new policy up a moment later.
    eventually(lambda: OTHERS in of_port("pay here"), "another text is refused", 30)
    assert (of_port(), of_port(kind=FARMS)) == ("", "")
    assert of_port(f"node {own} {PORT_TAKEN.partition(':')[0]}: the Service a/b has the same port") == ""
    for message in (f"node {other} {PORT_TAKEN}", f"{taken}, see https://example.org", f"{taken}\nsee example.org"):
        assert OTHERS in of_port(message)
    assert OTHERS in of_port(reason="Pay")
    assert OTHERS in of_port(kind=PODS)
    assert "name it as their source" in of_port(node=other)
    assert "name it as their source" in of_port(reportingComponent="kubelet", source={"component": "kubelet"})
    assert "the agent of node ''" in says(made(SERVICES, namespace, "web", taken, own), Holder(guarded, AGENT))
    assert says(made(NODES, "", own, "2 farms are not programmed", own, reason="FarmsFailed")) == ""
    assert OTHERS in says(made(NODES, "", other, "2 farms are not programmed", own, reason="FarmsFailed"))
    assert OTHERS in says(made(NODES, namespace, own, "pay here", own, reason="FarmsFailed")), "not for its tenants"
