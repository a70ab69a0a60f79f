"""A node changes."""

from collections.abc import Callable

from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.test_proxy import HEALTHZ_PORT
from tests.functional.conformance.test_topology import at_home
from tests.functional.conformance.testbed import CLIENT, Service, Testbed

Make = Callable[..., Service]

BEING_DELETED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}


def test_health_on_a_node_that_will_be_deleted(bed: Testbed) -> None:
    """A44, A45: load balancers shall leave such a node, but nobody shall restart the proxy for it."""
    node = bed.nodes[2]

    def answer(path: str) -> int | str:
        return bed.status_of(CLIENT, bed.node_ip(node), HEALTHZ_PORT, path)

    bed.patch("node", node, {"spec": {"taints": [BEING_DELETED]}})
    try:
        eventually(lambda: answer("/healthz") == 503, "the node is not eligible any more")
        assert answer("/livez") == 200
        assert bed.http(CLIENT, bed.node_ip(node), HEALTHZ_PORT, "/healthz")[2]["nodeEligible"] is False
        assert bed.status_of(CLIENT, bed.node_ip(bed.nodes[0]), HEALTHZ_PORT, "/healthz") == 200
    finally:
        bed.patch("node", node, {"spec": {"taints": None}})
    eventually(lambda: answer("/healthz") == 200, "the node is eligible again")


def test_node_changes_its_zone(bed: Testbed, pods: Pods, service: Make) -> None:
    """A25: the label of the node is followed."""
    web, node = service(), bed.nodes[1]
    web.endpoints(*at_home(pods, 0, 2))
    bed.reach(pods.clients[1].where, pods.servers[:1], web.ip())
    try:
        bed.patch("node", node, {"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}})
        bed.reach(pods.clients[1].where, pods.servers[2:], web.ip())
        bed.patch("node", node, {"metadata": {"labels": {"topology.kubernetes.io/zone": None}}})
        bed.reach(pods.clients[1].where, [pods.servers[0], pods.servers[2]], web.ip())
    finally:
        bed.patch("node", node, {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}})
    bed.reach(pods.clients[1].where, pods.servers[:1], web.ip())
