"""Users' mistakes, and the messages that they get."""

from typing import Any

import pytest

from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually

pytestmark = pytest.mark.timeout(120)

LISTEN = [{"ip": "10.99.0.1", "ports": "80"}]


def test_an_invalid_annotation_is_told_and_the_service_works(cluster: Cluster, namespace: str, client: str) -> None:
    cluster.run("web", 2, namespace)
    cluster.apply(
        service("web", namespace, {"scheduler": "roundrobin; flush ruleset", "mode": "dnat", "colour": "green"})
    )
    cluster.farm_has("web--http", namespace, 2)
    cluster.reaches(client, cluster.pods("web", namespace), cluster.vip("web", namespace))
    eventually(lambda: len(cluster.events("Service", "web", namespace)) == 2, "both mistakes are told")
    told = " ".join(event["message"] for event in cluster.events("Service", "web", namespace))
    assert "service.kubernetes.io/kube-nftlb-load-balancer-scheduler" in told
    assert "roundrobin; flush ruleset" in told
    assert "rr, weight, hash, symhash" in told
    assert "kube-nftlb-load-balancer-colour" in told
    spec = cluster.farm("web--http", namespace)["spec"]
    assert (spec["scheduler"], spec["mode"]) == ("rr", "dnat"), "what is right is followed"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"addresses": [{"ip": "10.99.0.300", "ports": "80"}]},
            "an IPv4 or IPv6 address in canonical form",
        ),
        ({"addresses": [{"ip": "127.0.0.1", "ports": "5555"}]}, "not a loopback, link-local or multicast address"),
        ({"addresses": [{"ip": "10.99.0.1", "ports": "80; flush ruleset"}]}, "should match"),
        ({"addresses": [{"ip": "10.99.0.1", "ports": "70000"}]}, "should match"),
        ({"addresses": [{"ip": "10.99.0.1", "ports": "90-80"}]}, "must start a range with its lower port"),
        ({"addresses": []}, "should have at least 1 items"),
        ({"addresses": LISTEN, "scheduler": "magic"}, 'supported values: "rr", "weight", "hash", "symhash"'),
        ({"addresses": LISTEN, "mode": "tunnel"}, 'supported values: "snat", "dnat"'),
        ({"addresses": LISTEN, "schedParam": "srcip"}, "schedParam requires scheduler hash"),
        ({"addresses": LISTEN, "persistence": "srcip; drop"}, "spec.persistence: Unsupported value"),
        ({"addresses": LISTEN, "persistTTL": 0}, "should be greater than or equal to 1"),
        ({"addresses": LISTEN, "family": "ipv6"}, "every address must be of the farm's family"),
        (
            {"addresses": LISTEN, "backends": [{"name": "a", "ip": "fd00::1", "port": 80}]},
            "every backend must be of the farm",
        ),
        ({"addresses": LISTEN, "backends": [{"name": "a b", "ip": "10.0.0.1", "port": 80}]}, "should match"),
        (
            {"addresses": LISTEN, "backends": [{"name": "a", "ip": "10.0.0.1", "port": 70000}]},
            "should be less than or equal",
        ),
    ],
)
def test_a_farm_that_cannot_be_is_refused_with_what_is_allowed(
    cluster: Cluster, spec: dict[str, Any], sentence: str
) -> None:
    assert sentence in cluster.refused(farm("wrong", "default", **spec))


def test_a_farm_with_a_dot_in_its_name_is_refused(cluster: Cluster) -> None:
    assert "must not contain a dot" in cluster.refused(farm("shop.web--http", "default", addresses=LISTEN))


def test_a_farm_that_evades_the_definition_is_refused_by_the_node_alone(
    cluster: Cluster, namespace: str, client: str
) -> None:
    """The last line of defence: what the API server's rules do not see, the agent does."""
    cluster.run("web", 1, namespace)
    cluster.apply(service("web", namespace))
    vip = cluster.vip("web", namespace)
    cluster.reaches(client, cluster.pods("web", namespace), vip)
    recoveries = cluster.recoveries()
    with cluster.hammer(client, vip) as hammered:
        twice = [{"ip": "10.99.0.9", "ports": "80"}, {"ip": "10.99.0.9", "ports": "79-81"}]
        cluster.apply(
            farm("twice", namespace, addresses=twice, backends=[{"name": "a", "ip": "10.244.1.9", "port": 80}])
        )

        def told() -> bool:
            conditions = cluster.farm("twice", namespace).get("status", {}).get("conditions", [])
            accepted = {c["type"]: c for c in conditions}.get("Accepted", {})
            return "same IP and port" in accepted.get("message", "")

        eventually(told, "its condition says why")
    assert hammered["failures"] == []
    assert cluster.recoveries() == recoveries


def test_a_farm_past_a_limit_says_so_and_the_others_stay(cluster: Cluster, namespace: str, client: str) -> None:
    """Bounds that a list has are the API server's to keep; what a text stands for, only the models can count."""
    cluster.run("web", 1, namespace)
    cluster.apply(service("web", namespace))
    vip, pods = cluster.vip("web", namespace), cluster.pods("web", namespace)
    cluster.reaches(client, pods, vip)
    recoveries = cluster.recoveries()
    too_many = {
        "addresses": [{"ip": f"10.99.9.{i}", "ports": "80"} for i in range(1, 34)],
        "policies": [f"p{i}" for i in range(17)],
        "sessions": [{"client": f"10.0.{i // 250}.{i % 250}", "backend": "a"} for i in range(1025)],
    }
    with cluster.hammer(client, vip) as hammered:
        for field, values in too_many.items():
            spec = {"addresses": LISTEN, "persistence": "srcip", field: values}
            told = cluster.refused(farm("wrong", namespace, **spec))
            assert f"spec.{field}: Too many" in told, told
        cluster.apply(farm("wide", namespace, addresses=[{"ip": "10.99.0.10", "ports": "1-2000"}]))

        def told_of_ports() -> bool:
            status = cluster.farm("wide", namespace).get("status", {})
            accepted = {c["type"]: c for c in status.get("conditions", [])}.get("Accepted", {})
            return accepted.get("status") == "False" and "must not have more than 1024 ports" in accepted["message"]

        eventually(told_of_ports, "its condition says which limit it is past")
        cluster.reaches(client, pods, vip)
    assert hammered["failures"] == []
    assert cluster.recoveries() == recoveries
