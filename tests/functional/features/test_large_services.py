"""A Service with more endpoints than nftlb takes; the engine nftables has room for them."""

import json

from kube_nftlb.api.farm import BACKENDS_MAX
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.features.test_events import told


def test_a_service_with_too_many_endpoints_has_as_many_as_a_farm_can(cluster: Cluster, own_namespace: str) -> None:
    namespace = own_namespace
    long = "a-deployment-with-quite-a-long-name-as-generated-by-some-tool-7d9f8b6c5d"
    for number in range(5):
        cluster.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"many-{number}",
                    "namespace": namespace,
                    "labels": {"kubernetes.io/service-name": "many"},
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
                "endpoints": [
                    {
                        "addresses": [f"10.{200 + number}.{each // 250}.{each % 250 + 1}"],
                        "conditions": {"ready": True},
                        "nodeName": f"ip-10-0-{number}-{each % 250}.eu-central-1.compute.internal",
                        "targetRef": {"kind": "Pod", "name": f"{long}-{number}-{each:05}", "namespace": namespace},
                    }
                    for each in range(1000)
                ],
            }
        )
    # Down, so that the nodes need not program thousands of backends.
    cluster.apply(service("many", namespace, {"state": "down", "engine": "nftlb"}, selector=None))
    cluster.farm_has("many--http", namespace, BACKENDS_MAX)
    cluster.listed("many--http", namespace, 100)
    assert cluster.farm("many--http", namespace)["status"]["omittedBackends"] == BACKENDS_MAX - 100
    assert len(json.dumps(cluster.farm("many--http", namespace)["spec"])) < 3000

    eventually(lambda: "TooManyEndpoints" in told(cluster, "Service", "many", namespace), "its owner is told")
    message = told(cluster, "Service", "many", namespace)["TooManyEndpoints"]["message"]
    assert f"5000 endpoints; only {BACKENDS_MAX} are used" in message
