"""What a node says and does while its nftlb is away: its farms wait, those of the other engine go on."""

import contextlib
import sys
from collections.abc import Iterator

from tests.builders.manifests import farm, service
from tests.functional import commands
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique
from tests.functional.features.test_engines import served_by
from tests.functional.features.test_events import told
from tests.functional.features.test_health import until_status

SHORT_S = 1


def test_a_node_tells_that_its_nftlb_is_away_and_that_it_is_back(cluster: Cluster) -> None:
    """In Events, in the NftlbNode, and to the kubelet; what needs no nftlb is repaired meanwhile."""
    node = cluster.nodes[1]
    until_status(cluster, node, "/readyz", 200)
    cluster.api.delete_all("event", "default")  # those of earlier tests
    cluster.lab.stop("nftlb", node)
    try:
        eventually(lambda: "NftlbUnreachable" in told(cluster, "Node", node, "default"), "the Node tells")
        ready = cluster.condition("nftlbnode", node, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "NftlbUnreachable")
        assert "see its logs on this node" in ready["message"]
        assert until_status(cluster, node, "/readyz", 503).body["nftlbReachable"] is False
        assert until_status(cluster, node, "/livez", 200).status == 200
        cluster.nft(node, "flush chain inet kube-nftlb refuse")
        eventually(lambda: "reject" in cluster.nft(node, "list chain inet kube-nftlb refuse"), "it refuses", 5)
    finally:
        cluster.lab.start("nftlb", node)
    eventually(lambda: "NftlbReachable" in told(cluster, "Node", node, "default"), "the Node tells that it is over")
    cluster.wait("nftlbnode", node, "Ready")
    until_status(cluster, node, "/readyz", 200)
    events = told(cluster, "Node", node, "default")
    assert (events["NftlbUnreachable"]["type"], events["NftlbReachable"]["type"]) == ("Warning", "Normal")
    assert events["NftlbUnreachable"]["source"] == {"component": "kube-nftlb-agent", "host": node}
    described = cluster.kubectl("describe", "node", node)
    assert "NftlbUnreachable" in described
    assert "NftlbReachable" in described
    assert "NftlbUnreachable" not in told(cluster, "Node", cluster.nodes[0], "default")


def test_a_node_tells_of_farms_that_fail_on_it_and_that_they_do_no_longer(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[0]
    guarded = farm("guarded", namespace, addresses=[{"ip": unique(), "ports": "80"}], policies=["nowhere"])
    cluster.api.delete_all("event", "default")  # those of earlier tests
    cluster.apply(guarded)
    eventually(
        lambda: (
            f"{namespace}/guarded" in told(cluster, "Node", node, "default").get("FarmsFailed", {}).get("message", "")
        ),
        "the Node names the farm",
    )
    message = told(cluster, "Node", node, "default")["FarmsFailed"]["message"]
    assert "PolicyMissing" in message
    assert message.endswith(f"kubectl describe nftlbnode {node}")
    cluster.delete("farm", "guarded", namespace)
    eventually(lambda: "FarmsProgrammed" in told(cluster, "Node", node, "default"), "the Node tells that it is over")


def test_the_other_engine_s_farms_go_on_while_nftlb_is_away(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace, {"engine": "nftables"}))
    cluster.serve("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    node = cluster.nodes[0]
    cluster.lab.stop("nftlb", node)
    try:
        cluster.serve("web", 4, namespace)
        cluster.reaches(client, cluster.pods("web", namespace), vip)
        backends = [{"name": "a", "ip": "10.244.1.200", "port": 80}]
        cluster.apply(
            farm("waits", namespace, addresses=[{"ip": unique(), "ports": "80"}], engine="nftlb", backends=backends)
        )
        eventually(
            lambda: "nftlb does not answer" in cluster.reason("waits", namespace),
            "only nftlb's farm waits",
        )
    finally:
        cluster.lab.start("nftlb", node)
    cluster.wait("farm", "waits", "Programmed", namespace)


def test_a_new_node_on_which_nftlb_never_starts_serves_the_farms_of_the_other_engine(
    cluster: Cluster, namespace: str
) -> None:
    node = cluster.nodes[0]
    cluster.apply(service("web", namespace, {"engine": "nftables"}))
    cluster.serve("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    cluster.lab.stop("agent", node)
    cluster.lab.stop("nftlb", node)
    try:
        cleaned = commands.run(cluster, "clean", where=node)
        assert cleaned.returncode == 0, cleaned.stderr
        cluster.lab.start("agent", node)
        eventually(lambda: served_by(cluster, [vip], node) == [{"nftables"}], "served without nftlb", 30)
        cluster.reaches(node, cluster.pods("web", namespace), vip)
    finally:
        cluster.lab.start("nftlb", node)
    eventually(lambda: cluster.get("nftlbnode", node)["status"]["failed"] == 0, "nothing is left of it", 60)


def test_an_agent_that_cannot_program_a_pending_change_is_unhealthy(cluster: Cluster, namespace: str) -> None:
    node = cluster.nodes[1]
    with impatient_agent(cluster, node):
        until_status(cluster, node, "/readyz", 200)
        cluster.lab.stop("nftlb", node)
        try:
            # So many that at least half of all farms are nftlb's, whichever engine serves the lab's.
            for number in range(10):
                addresses = [{"ip": unique(), "ports": "80"}]
                cluster.apply(farm(f"waits-{number}", namespace, addresses=addresses, engine="nftlb"))
            told = until_status(cluster, node, "/healthz", 503)
            assert (told.body["nodeEligible"], told.body["healthy"]) == (True, False)
            assert told.body["lastUpdated"] < told.body["currentTime"]
            until_status(cluster, node, "/livez", 503)
        finally:
            cluster.lab.start("nftlb", node)
        until_status(cluster, node, "/healthz", 200)
        until_status(cluster, node, "/livez", 200)


@contextlib.contextmanager
def impatient_agent(cluster: Cluster, node: str) -> Iterator[None]:
    """In place of a node's agent one that calls itself unhealthy after ``SHORT_S``."""
    settings = (
        f"KUBE_NFTLB_NODE_NAME={node}",
        f"KUBE_NFTLB_SYNC_OVERDUE_SECONDS={SHORT_S}",
        "KUBE_NFTLB_NFTLB_PORT=5555",
        "KUBE_NFTLB_LOG_LEVEL=ERROR",
    )
    cluster.lab.stop("agent", node)
    process = cluster.lab.popen(node, "env", *settings, sys.executable, "-m", "kube_nftlb", "agent")
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)
        cluster.lab.start("agent", node)
