"""Farms as an earlier operator wrote them, with a list of backends."""

import json

from kube_nftlb import names
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually


def test_a_farm_of_the_older_form_is_rewritten_without_a_lost_connection(
    cluster: Cluster, namespace: str, client: str
) -> None:
    cluster.apply(service("web", namespace))
    cluster.serve("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)

    backends = [
        {"name": each["name"], "ip": each["address"], "port": each["port"], "nodeName": each["node"]}
        for each in cluster.listed("web--http", namespace, 2)
    ]
    made = cluster.farm("web--http", namespace)
    kept = {key: made["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    spec = {key: value for key, value in made["spec"].items() if key != "backendsFrom"} | {"backends": backends}
    older = {**{key: made[key] for key in ("apiVersion", "kind")}, "metadata": kept, "spec": spec}
    with cluster.hammer(client, vip) as hammered:
        cluster.lab.stop("operator")
        try:
            manager = f"--field-manager={names.FIELD_MANAGER_FARMS}"
            text = json.dumps(older)
            cluster.kubectl("apply", "--server-side", "--force-conflicts", manager, "-f", "-", stdin=text)
            assert not cluster.farm("web--http", namespace)["spec"].get("backendsFrom")
            cluster.reaches(client, cluster.pods("web", namespace), vip)
        finally:
            cluster.lab.start("operator")
        eventually(lambda: cluster.farm("web--http", namespace)["spec"].get("backendsFrom"), "it is rewritten", 60)
        assert cluster.farm("web--http", namespace)["spec"]["backends"] == []
        cluster.farm_has("web--http", namespace, 2)
        cluster.serve("web", 3, namespace)
        cluster.reaches(client, cluster.pods("web", namespace), vip)
    assert hammered["failures"] == []
