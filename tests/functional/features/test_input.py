"""Users' mistakes, and the messages that they get."""

from typing import Any

from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import accepted, unique

REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"addresses": [{"ip": "10.99.0.1", "ports": "80; flush ruleset"}]}, "should match"),
    ({"scheduler": "magic"}, 'supported values: "rr", "weight", "hash", "symhash"'),
    ({"schedParam": "srcip"}, "schedParam requires scheduler hash"),
    ({"policies": [f"p{number}" for number in range(17)]}, "spec.policies: Too many"),
    (
        {"backendsFrom": [{"service": "web", "cluster": "x"}]},
        'unknown field "spec.backendsFrom[0].cluster"',
    ),
)
"""One of each kind: pattern, enumeration, rule, bound and unknown field. tests/unit/api has all of them, as tables."""


def test_a_farm_that_cannot_be_is_refused_with_what_is_allowed(cluster: Cluster) -> None:
    for spec, sentence in REFUSED:
        wrong = farm("wrong", "default", **{"addresses": [{"ip": "10.99.0.1", "ports": "80"}], **spec})
        assert sentence in cluster.refused(wrong)


def served(cluster: Cluster, namespace: str, client: str) -> str:
    """The VIP of a Service that others' mistakes must not touch."""
    cluster.serve("web", 1, namespace)
    cluster.apply(service("web", namespace))
    vip = cluster.vip("web", namespace)
    cluster.reaches(client, cluster.pods("web", namespace), vip)
    return vip


def not_accepted(cluster: Cluster, name: str, namespace: str, why: str) -> bool:
    status, _, message = accepted(cluster, name, namespace)
    return status == "False" and why in message


def test_farms_that_evade_the_definition_say_so_and_the_others_stay(
    cluster: Cluster, namespace: str, client: str
) -> None:
    """What the API server's rules do not see, such as what a text stands for, the agents' models do."""
    vip, ip = served(cluster, namespace, client), unique()
    recoveries = cluster.recoveries()
    twice = [{"ip": ip, "ports": "80"}, {"ip": ip, "ports": "79-81"}]
    with cluster.hammer(client, vip) as hammered:
        cluster.apply(
            farm("twice", namespace, addresses=twice, backends=[{"name": "a", "ip": "10.244.1.9", "port": 80}]),
            farm("wide", namespace, addresses=[{"ip": unique(), "ports": "1-2000"}]),
        )
        eventually(lambda: not_accepted(cluster, "twice", namespace, "same IP and port"), "its condition says why")
        eventually(
            lambda: not_accepted(cluster, "wide", namespace, "must not have more than 1024 ports"), "and what limit"
        )
        cluster.reaches(client, cluster.pods("web", namespace), vip)
    assert hammered["failures"] == []
    assert cluster.recoveries() == recoveries
