"""The addresses of the cluster, which no Service can choose."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb import names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.environment import IpNetwork
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NODES, SERVICE_CIDRS, SERVICES, Resource
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.reserved import Reserved
from tests.builders import endpoint, raw_farm, raw_service, raw_slice
from tests.builders.pools import raw_balanced

WEB = ServiceKey("default", "web")
NODE_IP, NEW_NODE_IP = "172.31.0.11", "172.31.0.12"


def raw_node(name: str = "n1", *ips: str, version: int = 1, pod_cidr: str = "10.244.1.0/24") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": str(version)},
        "spec": {"podCIDRs": [pod_cidr]},
        "status": {
            "addresses": [
                {"type": "Hostname", "address": name},
                *({"type": "InternalIP", "address": ip} for ip in ips or (NODE_IP,)),
            ]
        },
    }


def raw_service_cidr(cidr: str, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": "kubernetes", "resourceVersion": str(version)}, "spec": {"cidrs": [cidr]}}


@pytest.fixture
def ingest() -> Ingest:
    reserved = Reserved([ipaddress.ip_network("10.200.0.0/16")], ["192.0.2.1", "api.example.com"])
    ingest = Ingest(Cache(reserved))
    api = raw_slice(endpoint("172.31.0.1"), name="kubernetes-x", service="kubernetes")
    other = raw_service("dns", clusterIP="10.97.0.10", clusterIPs=["10.97.0.10"])
    elsewhere = raw_service("elsewhere", clusterIP="10.97.0.11", clusterIPs=["10.97.0.11"])
    elsewhere["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "another"}
    seen: list[tuple[Resource, dict[str, Any]]] = [
        (NODES, raw_node()),
        (NODES, raw_node("n2", "fd00:31::C", pod_cidr="fd00:244:2::/64")),
        (SERVICE_CIDRS, raw_service_cidr("10.96.0.0/16")),
        (ENDPOINT_SLICES, api),
        (SERVICES, other),
        (SERVICES, elsewhere),
    ]
    for resource, raw in seen:
        ingest.put(resource, raw)
    return ingest


@pytest.mark.parametrize(
    ("ip", "why"),
    [
        (NODE_IP, "it is an address of the node n1"),
        ("fd00:31::c", "it is an address of the node n2"),
        ("10.244.1.7", "it is in 10.244.1.0/24, the range of the pods of the node n1"),
        ("fd00:244:2::7", "it is in fd00:244:2::/64, the range of the pods of the node n2"),
        ("10.200.9.9", "it is in 10.200.0.0/16, the range of pods"),
        ("10.96.3.4", "it is in 10.96.0.0/16, the range of cluster IPs"),
        ("10.97.0.10", "it is the cluster IP of the Service default/dns"),
        ("10.97.0.11", "it is the cluster IP of the Service default/elsewhere"),
        ("172.31.0.1", "it is an address of the API server"),
        ("192.0.2.1", "it is an address of the API server"),
        ("172.31.0.13", None),
        ("10.244.2.7", None),
        ("203.0.113.7", None),
        ("2001:db8::7", None),
    ],
)
def test_what_an_address_is(ingest: Ingest, ip: str, why: str | None) -> None:
    assert ingest.cache.reserved.why(ip, WEB) == why


def test_the_services_that_ask_for_external_ips_are_looked_at_when_the_cluster_changes(ingest: Ingest) -> None:
    ingest.put(SERVICES, raw_service(externalIPs=["203.0.113.7", "10.97.0.77"]))
    ingest.put(SERVICES, raw_service("plain", clusterIP="10.96.0.11", clusterIPs=["10.96.0.11"]))
    assert ingest.put(NODES, raw_node(version=2)).services == frozenset(), "a heartbeat changes nothing"
    gone = {"metadata": {"name": "n1", "resourceVersion": "9"}}
    api = raw_slice(endpoint("172.31.0.2"), name="kubernetes-x", service="kubernetes", version=8)
    changes: list[tuple[Resource, dict[str, Any]]] = [
        (NODES, raw_node("n3", NEW_NODE_IP, version=3)),
        (NODES, raw_node("n3", "172.31.0.13", version=4)),
        (NODES, raw_node("n3", "172.31.0.13", version=5, pod_cidr="10.244.3.0/24")),
        (SERVICE_CIDRS, raw_service_cidr("10.98.0.0/16", version=6)),
        (ENDPOINT_SLICES, api),
    ]
    for resource, raw in changes:
        assert ingest.put(resource, raw).services == {WEB}, raw
    assert ingest.remove(NODES, gone).services == {WEB}
    assert ingest.remove(SERVICE_CIDRS, gone | {"metadata": {"name": "kubernetes", "resourceVersion": "9"}}).services
    assert ingest.cache.reserved.why(NODE_IP, WEB) is None
    assert ingest.cache.reserved.why("10.98.0.1", WEB) is None


def test_a_cluster_ip_of_another_service_is_taken_from_who_chose_it(ingest: Ingest) -> None:
    ingest.put(SERVICES, raw_service(externalIPs=["10.97.0.77"]))
    given = raw_service("late", version=2, clusterIP="10.97.0.77", clusterIPs=["10.97.0.77"])
    assert ingest.put(SERVICES, given).services == {WEB, ServiceKey("default", "late")}
    assert ingest.cache.reserved.why("10.97.0.77", WEB) is not None
    assert ingest.cache.reserved.why("10.97.0.77", ServiceKey("default", "late")) is None
    assert WEB in ingest.remove(SERVICES, raw_service("late", version=3)).services
    assert ingest.cache.reserved.why("10.97.0.77", WEB) is None


def test_a_new_node_decides_who_has_a_port_of_its_address(ingest: Ingest) -> None:
    port = raw_farm("port", addresses=[{"type": "NodePort", "ports": "30080"}], owner="web")
    ingest.put(FARMS, port)
    ingest.put(FARMS, raw_farm("squatter", addresses=[{"ip": NEW_NODE_IP, "ports": "30080"}]))
    squatter = FarmKey("default", "squatter")
    assert ingest.cache.conflicts.get(squatter) is None
    assert ingest.put(NODES, raw_node("n3", NEW_NODE_IP, version=3)).farms == {squatter}
    assert ingest.cache.conflicts.get(squatter) is not None
    assert ingest.remove(NODES, {"metadata": {"name": "n3", "resourceVersion": "4"}}).farms == {squatter}
    assert ingest.cache.conflicts.get(squatter) is None


RANGES = st.lists(
    st.tuples(st.integers(0, 255), st.integers(24, 32)).map(
        lambda pair: ipaddress.ip_network((f"10.0.0.{pair[0]}", pair[1]), strict=False)
    ),
    max_size=6,
)


@given(RANGES, RANGES, RANGES, st.integers(0, 255))
def test_an_address_is_reserved_if_a_range_has_it(
    settings: list[IpNetwork], nodes: list[IpNetwork], services: list[IpNetwork], last: int
) -> None:
    reserved = Reserved(settings)
    for number, network in enumerate(nodes):
        reserved.put_node(f"n{number}", (), (network,))
    reserved.put_service_cidrs("kubernetes", tuple(services))
    ip = f"10.0.0.{last}"
    had = any(ipaddress.ip_address(ip) in network for network in (*settings, *nodes, *services))
    assert (reserved.why(ip, WEB) is not None) == had
    for number, _ in enumerate(nodes):
        reserved.put_node(f"n{number}")
    left = any(ipaddress.ip_address(ip) in network for network in (*settings, *services))
    assert (reserved.why(ip, WEB) is not None) == left


def test_the_addresses_of_the_api_server_are_reserved_however_they_are_written() -> None:
    reserved = Reserved((), ["FD00:0::1", "api.example.com"])
    assert reserved.why("fd00::1", ServiceKey("default", "web")) == "it is an address of the API server"


def test_a_service_that_is_replaced_unseen_concerns_those_that_shared_its_address() -> None:
    cache = Cache(addresses=Book())
    ingest = Ingest(cache)
    key = {f"{names.ANNOTATION_PREFIX}address-sharing-key": "k"}
    for name in ("one", "two"):
        ingest.put(SERVICES, raw_balanced(name, "192.0.2.1", assigned=True, annotations=key))
    successor = raw_balanced("one")
    successor["metadata"] |= {"uid": "another", "resourceVersion": "9"}
    assert ServiceKey("default", "two") in ingest.put(SERVICES, successor).services
