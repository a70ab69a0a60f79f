"""The addresses of Services of type LoadBalancer in the run of Kubernetes' tests."""

from typing import Any

import pytest

from tests.upstream import balancers


def service(
    families: tuple[str, ...] = ("IPv4",), ingress: tuple[str, ...] = (), deleted: bool = False, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})},
        "spec": {"type": "LoadBalancer", "ipFamilies": list(families), **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": ip} for ip in ingress]}},
    }


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        (service(), ("203.0.113.3",)),
        (service(("IPv6", "IPv4")), ("2001:db8:3::1", "203.0.113.3")),
        (service(("IPv4", "IPv6"), ("203.0.113.9",)), ("203.0.113.9", "2001:db8:3::1")),
        (service(type="ClusterIP"), ()),
        (service(loadBalancerClass="example.com/mine"), ()),
        (service(deleted=True, ingress=("203.0.113.9",)), ()),
    ],
)
def test_addresses_are_of_the_services_families_and_free(given: dict[str, Any], addresses: tuple[str, ...]) -> None:
    wanted = balancers.wanted(given, {"203.0.113.1", "203.0.113.2", "203.0.113.9"})
    assert wanted == (addresses, bool(addresses))


def test_other_finalizers_stay() -> None:
    kept = {"metadata": {"finalizers": ["other", balancers.FINALIZER]}}
    assert balancers.finalizers(kept, ours=False) == ["other"]
    assert balancers.finalizers(kept, ours=True) == ["other", balancers.FINALIZER]


def test_no_addresses_are_a_removed_list() -> None:
    assert balancers.status(()) == {"status": {"loadBalancer": {"ingress": None}}}


@pytest.mark.parametrize(
    ("healthy", "now", "sticky", "nodes"),
    [
        ("ab", (), False, ("a", "b")),
        ("b", ("a", "b"), False, ("b",)),
        ("", ("b",), False, ("a",)),
        ("ab", ("b",), True, ("b",)),
        ("a", ("b",), True, ("a",)),
        ("ab", ("b", "a"), True, ("b",)),
        ("", (), True, ("a",)),
    ],
)
def test_connections_are_spread_over_healthy_nodes_unless_they_have_to_stay(
    healthy: str, now: tuple[str, ...], sticky: bool, nodes: tuple[str, ...]
) -> None:
    assert balancers.route(["a", "b"], {node: node in healthy for node in "ab"}, now, sticky=sticky) == nodes


def test_only_services_with_the_policy_local_are_checked() -> None:
    assert balancers.health_port(service(externalTrafficPolicy="Local", healthCheckNodePort=30001)) == 30001
    assert balancers.health_port(service(externalTrafficPolicy="Cluster")) is None
