"""The readiness gate of pods to whose Service a route sends the connections of a Gateway."""

from tests.builders.gateways import backend, gateway, listener, route
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.gateway.test_gateway import programmed
from tests.functional.features.operations.test_readiness_gate import added_pod, gated, is_ready, waits


def lists_nothing(cluster: Cluster, namespace: str) -> bool:
    farms = cluster.get("farm", namespace=namespace)["items"]
    assert len(farms) == 2, "that of the Service, and that of the route"
    return not any(group.get("gatedIPs") for farm in farms for group in farm["spec"]["backendsFrom"])


def test_a_pod_is_ready_only_once_each_node_sends_it_connections_of_the_gateway(
    cluster: Cluster, namespace: str, client: str, far: str, ip: str
) -> None:
    _, second = cluster.nodes
    cluster.apply(
        service("web", namespace),
        gated("web", 1, namespace),
        gateway("edge", namespace, listener("tcp", 80), addresses=(ip,)),
        route("web", namespace, "edge", backend("web")),
    )
    cluster.rolled_out("web", 1, namespace)
    programmed(cluster, "edge", namespace)
    for where in (client, far):
        cluster.reaches(where, cluster.pods("web", namespace), ip)
    eventually(lambda: lists_nothing(cluster, namespace), "all nodes know that the pod is ready")
    with cluster.frozen("agent", second):
        pod = added_pod(cluster, namespace)
        eventually(lambda: pod in cluster.answers(client, ip), "the first node sends it connections")
        assert waits(cluster, pod, namespace)
        assert pod not in cluster.answers(far, ip)
    eventually(lambda: is_ready(cluster, pod, namespace), "it is ready once the agent goes on")
    for where in (client, far):
        assert pod in cluster.answers(where, ip), where
    eventually(lambda: lists_nothing(cluster, namespace), "the farms follow the slices again")
    for where in (client, far):
        assert pod in cluster.answers(where, ip), where
