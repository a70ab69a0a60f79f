"""What pods ask for by annotations, and an operator that is started anew."""

from kube_nftlb import names
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually


def test_a_restarted_operator_does_not_forget_what_pods_ask_for(cluster: Cluster, namespace: str) -> None:
    cluster.apply(service("web", namespace))
    cluster.serve("web", 2, namespace)
    (first, _) = cluster.pods("web", namespace)

    def ask(weight: int) -> None:
        annotations = {f"{names.ANNOTATION_PREFIX}weight": str(weight)}
        cluster.api.patch("pod", first, namespace, {"metadata": {"annotations": annotations}})

    def has(weight: int) -> bool:
        found = cluster.farm("web--http", namespace)["spec"]["backendsFrom"][0]["overrides"]
        return bool({each["pod"]: each for each in found}.get(first, {}).get("weight") == weight)

    ask(5)
    eventually(lambda: has(5), "it has its weight")
    before = cluster.farm("web--http", namespace)["metadata"]["generation"]
    cluster.lab.restart("operator")
    ask(6)
    eventually(lambda: has(6), "the new operator follows the pods")
    assert cluster.farm("web--http", namespace)["metadata"]["generation"] == before + 1, "and changed nothing before"
