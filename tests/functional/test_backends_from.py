"""Farms that refer to the endpoints of a Service: nothing is written when endpoints change."""

import json
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import names
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(180)

VIP = "10.99.80.1"


@pytest.fixture
def follower(cluster: Cluster, namespace: str) -> str:
    """A farm written by hand that follows the Service ``web`` of two pods."""
    cluster.apply(service("web", namespace))
    cluster.run("web", 2, namespace)
    cluster.apply(
        farm(
            "follower",
            namespace,
            addresses=[{"ip": VIP, "ports": "8080"}],
            backendsFrom={"service": "web", "port": "http"},
        )
    )
    cluster.farm_has("follower", namespace, 2)
    return "follower"


def test_a_farm_by_hand_follows_the_pods_of_a_service(
    cluster: Cluster, namespace: str, client: str, follower: str
) -> None:
    cluster.reaches(client, cluster.pods("web", namespace), VIP, 8080)
    with cluster.hammer(client, VIP, 8080) as hammered:
        cluster.scale("web", 4, namespace)
        cluster.rolled_out("web", 4, namespace)
        cluster.reaches(client, cluster.pods("web", namespace), VIP, 8080)
        first, *rest = cluster.pods("web", namespace)
        cluster.lab.pod(False, f"{namespace}/{first}")
        cluster.reaches(client, rest, VIP, 8080)
    assert hammered["failures"] == []
    for name in (follower, "web--http"):
        assert cluster.farm(name, namespace)["metadata"]["generation"] == 1, "no farm was written"


def test_kubectl_shows_and_awaits_the_endpoints(cluster: Cluster, namespace: str, follower: str) -> None:
    first, second = cluster.pods("web", namespace)
    backends = cluster.farm(follower, namespace)["status"]["backends"]
    assert [(each["name"], each["pod"], each["port"], each["ready"], each["weight"]) for each in backends] == [
        (pod, pod, 80, True, 1) for pod in (first, second)
    ]
    cluster.lab.pod(False, f"{namespace}/{first}")
    await_it = ("wait", "farm", follower, "-n", namespace, "--timeout=30s")
    cluster.kubectl(*await_it, "--for=jsonpath={.status.backendsReady}=1/2")
    cluster.kubectl(*await_it, "--for=condition=EndpointsProgrammed")
    shown = cluster.kubectl("get", "farm", follower, "-n", namespace)
    assert "1/2" in shown.splitlines()[1].split()
    described = cluster.kubectl("describe", "farm", follower, "-n", namespace)
    assert any(line.split() == ["Pod:", first] for line in described.splitlines()), described


def test_an_override_is_for_one_pod_alone(cluster: Cluster, namespace: str, client: str, follower: str) -> None:
    heavy, light = cluster.pods("web", namespace)
    override = {"service": "web", "port": "http", "overrides": [{"pod": heavy, "weight": 3}]}
    patch = json.dumps({"spec": {"backendsFrom": override}})
    cluster.kubectl("patch", "farm", follower, "-n", namespace, "--type=merge", "-p", patch)
    eventually(
        lambda: cluster.count(client, 80, VIP, 8080)["answers"] == {heavy: 60, light: 20}, "it gets three of four"
    )


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"service": "other/web"}, "spec.backendsFrom.service"),
        ({"service": "web", "port": 0}, "spec.backendsFrom.port"),
        ({"service": "web", "overrides": [{"pod": "a", "weight": 101}]}, "weight"),
        ({"service": "web", "overrides": [{"pod": "a", "sourceAddress": "fd00::1"}]}, "sourceAddress of an override"),
        ({"service": "web", "namespace": "other"}, "spec.backendsFrom.namespace: field not declared in schema"),
    ],
)
def test_a_reference_is_validated(cluster: Cluster, namespace: str, reference: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        cluster.apply(farm("wrong", namespace, addresses=[{"ip": "10.99.80.9", "ports": "80"}], backendsFrom=reference))


def test_backends_and_a_reference_exclude_each_other(cluster: Cluster, namespace: str) -> None:
    both = {"backends": [{"name": "a", "ip": "10.244.9.9", "port": 80}], "backendsFrom": {"service": "web"}}
    with pytest.raises(AssertionError, match="backends and backendsFrom exclude each other"):
        cluster.apply(farm("both", namespace, addresses=[{"ip": "10.99.80.9", "ports": "80"}], **both))


def test_a_headless_service_has_no_endpoints_for_farms(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.apply(service("web", namespace, clusterIP="None"))
    cluster.run("web", 1, namespace)
    cluster.apply(
        farm(
            "headless",
            namespace,
            addresses=[{"ip": "10.99.80.2", "ports": "80"}],
            backendsFrom={"service": "web", "port": "http"},
        )
    )
    cluster.farm_has("headless", namespace, 0)
    assert cluster.count(client, 2, "10.99.80.2")["failures"] == {"refused": 2}


def test_a_farm_of_the_older_form_is_rewritten_without_a_lost_connection(
    cluster: Cluster, namespace: str, client: str, tmp_path: Path
) -> None:
    cluster.apply(service("web", namespace))
    cluster.run("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    vip = cluster.vip("web", namespace)
    made = cluster.farm("web--http", namespace)
    backends = [
        {"name": each["name"], "ip": each["address"], "port": each["port"], "nodeName": each["node"]}
        for each in made["status"]["backends"]
    ]
    kept = {key: made["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
    spec = {key: value for key, value in made["spec"].items() if key != "backendsFrom"} | {"backends": backends}
    older = tmp_path / "older.json"
    older.write_text(json.dumps({**{key: made[key] for key in ("apiVersion", "kind")}, "metadata": kept, "spec": spec}))
    with cluster.hammer(client, vip) as hammered:
        cluster.lab.stop("operator")
        try:
            manager = f"--field-manager={names.FIELD_MANAGER_FARMS}"
            cluster.kubectl("apply", "--server-side", "--force-conflicts", manager, "-f", str(older))
            assert "backendsFrom" not in cluster.farm("web--http", namespace)["spec"]
            cluster.reaches(client, cluster.pods("web", namespace), vip)
        finally:
            cluster.lab.start("operator")
        eventually(lambda: "backendsFrom" in cluster.farm("web--http", namespace)["spec"], "it is rewritten", 60)
        assert cluster.farm("web--http", namespace)["spec"]["backends"] == []
        cluster.farm_has("web--http", namespace, 2)
        cluster.scale("web", 3, namespace)
        cluster.rolled_out("web", 3, namespace)
        cluster.reaches(client, cluster.pods("web", namespace), vip)
    assert hammered["failures"] == []
