"""A node whose agent no longer reports is named, and holds nobody back."""

import pytest

from tests.builders.manifests import service
from tests.functional.clients import condition
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.test_events import told


def ready(cluster: Cluster, node: str) -> tuple[str, str]:
    """The status and the reason of the node's condition Ready."""
    conditions = cluster.get("nftlbnode", node)["status"]["conditions"]
    return next((each["status"], each["reason"]) for each in conditions if each["type"] == "Ready")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_silent_agent_is_named_and_holds_nobody_back_until_it_reports_again(cluster: Cluster, namespace: str) -> None:
    _, node = cluster.nodes
    cluster.serve("web", 2, namespace)
    cluster.lab.stop("agent", node)
    try:
        cluster.apply(service("web", namespace))
        cluster.reaches(f"{namespace}/client", cluster.pods("web", namespace), cluster.vip("web", namespace))
        assert condition(cluster, "farm", "web--http", namespace)["status"] == "False", "it waits for the node"
        # Agents report once a minute; see SILENT_S.
        eventually(lambda: ready(cluster, node) == ("Unknown", "AgentSilent"), "the node is named", 120)
        cluster.farm_has("web--http", namespace, 2)
        assert "counts neither in statuses" in told(cluster, "NftlbNode", node, "default")["AgentSilent"]["message"]
        shown = {line.split()[0]: line.split() for line in cluster.kubectl("get", "nftlbnodes").splitlines()}
        assert dict(zip(shown["NAME"], shown[node], strict=True))["READY"] == "Unknown"
    finally:
        cluster.lab.start("agent", node)
    eventually(lambda: ready(cluster, node) == ("True", "AgentReady"), "it reports again", 30)
    eventually(lambda: "AgentReports" in told(cluster, "NftlbNode", node, "default"), "an Event tells of its return")
    cluster.reaches(node, cluster.pods("web", namespace), cluster.vip("web", namespace))
