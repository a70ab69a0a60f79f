"""Gateways inside the cluster: their addresses are cluster IPs. The lab has the experimental definition of Gateways."""

import ipaddress
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kube_nftlb.announce.ownership.records import Record
from kube_nftlb.api.address_ranges import ip_of
from kube_nftlb.operator.addresses.cluster_ips import parts_of
from lab import addresses
from tests.builders.gateways import GATEWAY_CLASS, backend, gateway, listener, route
from tests.builders.manifests import service
from tests.docs import fields
from tests.docs.reader import ROOT
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.commands import Kubectl
from tests.functional.conftest import Used
from tests.functional.features.gateway.conftest import OPERATOR
from tests.functional.features.gateway.test_gateway import conditions, leaves, programmed, serving, status
from tests.functional.segment import POOL, record

MOST = 3
"""The number of cluster IPs of a namespace."""
LIMIT = "(gateway.namespaceClusterIPs)"
RANGES = [ipaddress.ip_network(each) for each in addresses.SERVICE_CIDRS.split(",")]
_REPAIRS = {"IPAddressNotAllocated", "IPAddressWrongReference", "ClusterIPNotAllocated", "ClusterIPAlreadyAllocated"}
"""What the API server says of IPAddresses and Services where something is wrong with them."""


@pytest.fixture(scope="module")
def _lab() -> Iterator[Used]:
    on = {"KUBE_NFTLB_ADDRESSES": "on"}
    settings = {"operator": {**OPERATOR, "KUBE_NFTLB_GATEWAY_NAMESPACE_CLUSTER_IPS_MAX": str(MOST)}, "agent": on}
    with running("inside", nodes=2, settings=settings, gateway_experimental=True) as cluster:
        cluster.apply(POOL, GATEWAY_CLASS)
        cluster.wait("gatewayclass", "kube-nftlb", "Accepted")
        yield Used(cluster, [])


def inside(name: str, namespace: str, *values: str, families: str = "", number: int = 1) -> dict[str, Any]:
    """A Gateway for clients inside the cluster, of TCP and UDP at port 80."""
    annotations = {"kube-nftlb.io/ip-families": families} if families else {}
    made = gateway(name, namespace, listener("tcp", 80), listener("udp", 80, "UDP"), annotations=annotations)
    asked: list[dict[str, str]] = [{"value": each} for each in values] or [{}] * number
    made["spec"]["addresses"] = [{"type": "IPAddress", "routability": "Cluster", **each} for each in asked]
    return made


def given(cluster: Cluster, name: str, namespace: str) -> list[str]:
    """The addresses of a Gateway, of which all are cluster IPs."""
    listed = status(cluster, "gateway", name, namespace).get("addresses", [])
    assert {each["routability"] for each in listed} <= {"Cluster"}
    return [each["value"] for each in listed]


def reserved(cluster: Cluster, namespace: str) -> dict[str, str]:
    """The Gateways of a namespace that have an IPAddress, by address."""
    found = {each["metadata"]["name"]: each["spec"]["parentRef"] for each in cluster.get("ipaddress")["items"]}
    ours = {ip: parent for ip, parent in found.items() if parent.get("resource") == "gateways"}
    return {ip: parent["name"] for ip, parent in ours.items() if parent["namespace"] == namespace}


def message(cluster: Cluster, name: str, namespace: str) -> str:
    return str(cluster.condition("gateway", name, "Programmed", namespace).get("message", ""))


def complaints(cluster: Cluster, ip: str) -> list[str]:
    """What the API server's repair of IPAddresses has said of an address."""
    found = json.loads(cluster.kubectl("get", "events", "-A", "-o", "json"))["items"]
    texts = (f"{each['reason']}: {each.get('note') or each.get('message')}" for each in found)
    return [text for text in texts if ip in text and text.partition(":")[0] in _REPAIRS]


def test_tcp_and_udp_are_reached_at_the_cluster_ip_from_pods_and_nodes(
    cluster: Cluster, namespace: str, client: str, far: str
) -> None:
    ports = [{"name": "tcp", "port": 80}, {"name": "udp", "port": 80, "protocol": "UDP"}]
    cluster.apply(service("web", namespace, ports=ports, ipFamilyPolicy="RequireDualStack"))
    cluster.serve("web", 2, namespace)
    cluster.apply(
        inside("edge", namespace, families="ipv4,ipv6"),
        route("web", namespace, "edge", backend("web")),
        route("web", namespace, "edge", backend("web"), kind="UDPRoute"),
    )
    programmed(cluster, "edge", namespace)
    ips, pods = given(cluster, "edge", namespace), cluster.pods("web", namespace)
    for ip, network in zip(ips, RANGES, strict=True):
        number, upper = ip_of(ip).number, next(iter(parts_of(network)))
        assert upper.first <= number <= upper.last
        for where in (client, far, cluster.nodes[0]):
            for options in ((), ("--udp",)):
                cluster.reaches(where, pods, ip, 80, *options)
    assert reserved(cluster, namespace) == dict.fromkeys(ips, "edge")
    assert conditions(status(cluster, "gateway", "edge", namespace))["AddressesAssigned"] == (
        "True",
        "AddressesAssigned",
    )
    # A backend that is its own client comes back to itself.
    own = f"{namespace}/{pods[0]}"
    cluster.reaches(own, pods, ips[0])
    assert all(record(cluster, ip) == Record() for ip in ips), "nodes do not announce them"


def test_a_service_never_gets_the_address_and_the_api_server_does_not_repair_it(
    cluster: Cluster, namespace: str
) -> None:
    serving(cluster, namespace, web=1)
    cluster.apply(inside("edge", namespace), route("web", namespace, "edge", backend("web")))
    programmed(cluster, "edge", namespace)
    (ip,) = given(cluster, "edge", namespace)
    refused = cluster.refused(service("thief", namespace, clusterIP=ip))
    assert "provided IP is already allocated" in refused
    before = cluster.get("ipaddress", ip)["metadata"]["uid"]
    # The API server looks at each IPAddress when it comes, and at those of Services.
    for number in range(20):
        cluster.apply(service(f"more-{number}", namespace))
    time.sleep(2)
    assert cluster.get("ipaddress", ip)["metadata"]["uid"] == before
    assert complaints(cluster, ip) == []
    cluster.delete("gateway", "edge", namespace)
    eventually(lambda: not reserved(cluster, namespace), "the IPAddress is gone")
    cluster.apply(service("next", namespace, clusterIP=ip))
    assert cluster.get("ipaddress", ip)["spec"]["parentRef"]["resource"] == "services"


def test_a_restart_of_the_operator_keeps_it_and_frees_what_went_meanwhile(
    cluster: Cluster, namespace: str, client: str
) -> None:
    serving(cluster, namespace, web=1)
    names = ("edge", "goes", "leaves")
    cluster.apply(*(inside(name, namespace) for name in names), route("web", namespace, "edge", backend("web")))
    for name in names:
        programmed(cluster, name, namespace)
    before = reserved(cluster, namespace)
    (ip,) = given(cluster, "edge", namespace)
    with cluster.hammer(client, ip) as hammered:
        cluster.lab.stop("operator")
        try:
            cluster.delete("gateway", "goes", namespace)
            cluster.api.patch("gateway", "leaves", namespace, {"spec": {"addresses": None}})
        finally:
            cluster.lab.start("operator")
        eventually(lambda: set(reserved(cluster, namespace).values()) == {"edge"}, "the others are free", 60)
        programmed(cluster, "leaves", namespace)
    assert not hammered["failures"]
    assert reserved(cluster, namespace).items() <= before.items()
    assert given(cluster, "edge", namespace) == [ip]
    cluster.kubectl("delete", "ipaddress", ip)
    eventually(lambda: reserved(cluster, namespace) == {ip: "edge"}, "it gets its address back")


def test_whoever_gets_none_reads_why(cluster: Cluster, own_namespace: str) -> None:
    kube_dns = "10.96.0.1"
    cluster.apply(
        inside("taken", own_namespace, kube_dns),
        inside("strange", own_namespace, "203.0.113.1"),
        inside("many", own_namespace, number=MOST + 1),
    )
    expected = {
        "taken": f"spec.addresses: {kube_dns} is the cluster IP of something else (kubectl get ipaddress {kube_dns})",
        "strange": "spec.addresses: 203.0.113.1 is not in the ServiceCIDR 10.96.0.0/16",
        "many": f"the Gateways of the namespace may have {MOST} cluster IPs, and have them {LIMIT}",
    }
    for name, text in expected.items():
        eventually(lambda name=name, text=text: message(cluster, name, own_namespace) == text, f"{name} says {text}")  # type: ignore[misc]
    assert conditions(status(cluster, "gateway", "many", own_namespace))["AddressesAssigned"] == (
        "False",
        "PartiallyAssigned",
    )
    assert conditions(status(cluster, "gateway", "taken", own_namespace))["AddressesAssigned"] == (
        "False",
        "NotAssigned",
    )
    assert len(reserved(cluster, own_namespace)) == MOST
    found = Kubectl(cluster).run("why", "-n", own_namespace, "gateway/taken")
    assert (found.returncode, expected["taken"] in " ".join(found.stdout.split())) == (1, True)


def test_commands_say_where_the_address_is_from(cluster: Cluster, namespace: str) -> None:
    kubectl = Kubectl(cluster)
    serving(cluster, namespace, web=1)
    cluster.apply(inside("edge", namespace), route("web", namespace, "edge", backend("web")))
    programmed(cluster, "edge", namespace)
    (ip,) = given(cluster, "edge", namespace)

    def healthy() -> bool:
        shown = " ".join(kubectl.run("why", "-n", namespace, "gateway/edge").stdout.split())
        return f"address {ip}: a cluster IP, for clients inside the cluster" in shown

    eventually(healthy, "why says what the address is")
    (made,) = [each for each in kubectl.json("get", "-n", namespace, "web")["farms"] if "--edge--" in each["name"]]
    assert [each["type"] for each in made["addresses"]] == ["ClusterIP"]
    assert f"gateways.gateway.networking.k8s.io/{namespace}/edge" in cluster.kubectl("get", "ipaddress", ip)
    features = status(cluster, "gatewayclass", "kube-nftlb", "")["supportedFeatures"]
    assert {"name": "GatewayAddressRoutabilityCluster"} in features


def test_the_page_has_the_field_of_the_experimental_channel(cluster: Cluster) -> None:
    rows = fields.rows((ROOT / "docs/gateway.md").read_text(), "experimental Gateway")
    assert rows == {"addresses[].routability": "yes"}
    crd = cluster.get("crd", "gateways.gateway.networking.k8s.io")
    (version,) = (each for each in crd["spec"]["versions"] if each["name"] == "v1")
    there = set(leaves(version["schema"]["openAPIV3Schema"]["properties"]["spec"], ""))
    assert fields.matches("addresses[].routability", there)
