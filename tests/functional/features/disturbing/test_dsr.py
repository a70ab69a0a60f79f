"""The mode dsr, whose addresses in pods outlive the agent that gave them."""

from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.test_modes import DSR, clean, loopback


def test_a_restarted_agent_undoes_what_an_earlier_one_has_done(cluster: Cluster, namespace: str) -> None:
    cluster.serve("web", 1, namespace, cluster.nodes[0])
    cluster.apply(service("web", namespace, DSR))
    (pod,) = (f"{namespace}/{name}" for name in cluster.pods("web", namespace))
    vip = cluster.vip("web", namespace)
    eventually(lambda: loopback(cluster, pod) == {vip}, "the pod has the address")
    cluster.lab.restart("agent")
    cluster.delete("service", "web", namespace)
    eventually(lambda: clean(cluster, pod), "the pod is as it was")
