"""What a client meets at a Gateway, and what its owner reads."""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kube_nftlb.operator.gateway.farms import farm_name
from kube_nftlb.operator.gateway.listeners import ListenerKey
from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey
from lab import addresses
from lab.places import CLIENT
from tests.builders.gateways import backend, gateway, grant, listener, route
from tests.builders.manifests import farm, service
from tests.chance import is_likely
from tests.docs import fields
from tests.docs.reader import ROOT
from tests.functional.cluster import Cluster, eventually
from tests.functional.segment import served

FIRST_BYTES = 5
LATEST_S = 5.0
"""The bar is 500 ms, on a machine with nothing else to do."""
REVOKED_WITHIN_S = 5.0
"""Likewise: 1 s."""


def conditions(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in found.get("conditions", [])}


def status(cluster: Cluster, kind: str, name: str, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = (cluster.get(kind, name, namespace) or {}).get("status", {})
    return found


def says(cluster: Cluster, route: str, namespace: str, **expected: tuple[str, str]) -> None:
    """Wait until a TCPRoute has these conditions, with their reasons, for its only parent."""

    def is_so() -> bool:
        parents = status(cluster, "tcproute", route, namespace).get("parents") or [{}]
        return expected.items() <= conditions(parents[0]).items()

    eventually(is_so, f"the route {route} says {expected}")


def serving(cluster: Cluster, namespace: str, **replicas: int) -> None:
    """Have Services with so many pods each."""
    for name, number in replicas.items():
        cluster.apply(service(name, namespace))
        cluster.serve(name, number, namespace)


def programmed(cluster: Cluster, name: str, namespace: str) -> None:
    cluster.wait("gateway", name, "Programmed", namespace)


def test_a_gateway_gets_an_address_and_serves_its_route_inside_and_outside(
    cluster: Cluster, namespace: str, client: str
) -> None:
    serving(cluster, namespace, web=2)
    cluster.apply(gateway("edge", namespace, listener("tcp", 8080)), route("web", namespace, "edge", backend("web")))
    programmed(cluster, "edge", namespace)
    # A Gateway may have all it needs before its routes.
    eventually(
        lambda: status(cluster, "gateway", "edge", namespace)["listeners"][0]["attachedRoutes"] == 1, "it has the route"
    )
    (address,) = status(cluster, "gateway", "edge", namespace)["addresses"]
    assert address["type"] == "IPAddress"
    for where in (CLIENT, client):
        cluster.reaches(where, cluster.pods("web", namespace), address["value"], 8080)
    (made,) = cluster.get("farm", namespace=namespace, labelSelector="kube-nftlb.io/route=web")["items"]
    assert made["metadata"]["ownerReferences"][0]["kind"] == "TCPRoute"
    says(cluster, "web", namespace, Accepted=("True", "Accepted"), ResolvedRefs=("True", "ResolvedRefs"))


@pytest.mark.parametrize("cascade", ["background", "orphan"])
def test_nothing_keeps_the_farm_of_a_route_that_is_gone(
    cluster: Cluster, namespace: str, client: str, ip: str, cascade: str
) -> None:
    serving(cluster, namespace, web=1)
    names = ObjectKey(namespace, "edge"), ListenerKey(None, "tcp"), RouteKey("TCPRoute", namespace, "web")
    name = farm_name(*names, "ipv4")
    before = farm(name, namespace, addresses=[{"ip": "10.99.9.8", "ports": "80"}])
    before["metadata"]["finalizers"] = ["example.com/kept"]
    cluster.apply(before)
    cluster.apply(
        gateway("edge", namespace, listener("tcp", 80), addresses=(ip,)),
        route("web", namespace, "edge", backend("web")),
    )
    programmed(cluster, "edge", namespace)
    cluster.reaches(client, cluster.pods("web", namespace), ip)
    cluster.kubectl("delete", "tcproute", "web", "-n", namespace, f"--cascade={cascade}")
    eventually(lambda: cluster.farm(name, namespace) is None, "the farm is gone")
    # The agents hear of it at the same time as this test.
    eventually(lambda: not cluster.answers(client, ip, 80, "--timeout", "0.3", number=2), "nobody answers", 20)


def test_the_first_byte_comes_soon(cluster: Cluster, namespace: str, client: str) -> None:
    serving(cluster, namespace, web=2)
    took = []
    for number in range(FIRST_BYTES):
        name, ip = f"edge-{number}", f"172.31.0.{180 + number}"
        began = time.monotonic()
        cluster.apply(
            gateway(name, namespace, listener("tcp", 80), addresses=(ip,)), route(name, namespace, name, backend("web"))
        )
        assert cluster.traffic(client, "until-answers", ip, 80)["answered"]
        took.append(time.monotonic() - began)
    print(f"Gateway and route → first byte: median {statistics.median(took) * 1000:.0f} ms, longest {max(took):.2f} s")
    assert statistics.median(took) < LATEST_S


def test_udp_has_the_same_port_as_tcp(cluster: Cluster, namespace: str, client: str, ip: str) -> None:
    ports = [{"name": "tcp", "port": 80}, {"name": "udp", "port": 80, "protocol": "UDP"}]
    cluster.apply(service("web", namespace, ports=ports))
    cluster.serve("web", 2, namespace)
    cluster.apply(
        gateway("edge", namespace, listener("tcp", 80), listener("udp", 80, "UDP"), addresses=(ip,)),
        route("web", namespace, "edge", backend("web")),
        route("web", namespace, "edge", backend("web"), kind="UDPRoute"),
    )
    programmed(cluster, "edge", namespace)
    pods = cluster.pods("web", namespace)
    for options in ((), ("--udp",)):
        cluster.reaches(client, pods, ip, 80, *options)


def test_a_listener_with_a_range_keeps_the_ports(cluster: Cluster, namespace: str, client: str, ip: str) -> None:
    serving(cluster, namespace, web=2)
    ranged = {"kube-nftlb.io/port-range.many": "8000-8001"}
    cluster.apply(
        gateway("edge", namespace, listener("many", 8000), addresses=(ip,), annotations=ranged),
        route("web", namespace, "edge", backend("web")),
    )
    programmed(cluster, "edge", namespace)
    for port in (8000, 8001):
        cluster.reaches(client, cluster.pods("web", namespace), ip, port)


def test_the_share_of_a_backend_that_is_missing_is_refused(
    cluster: Cluster, namespace: str, client: str, ip: str
) -> None:
    serving(cluster, namespace, web=2)
    cluster.apply(
        gateway("edge", namespace, listener("tcp", 80), addresses=(ip,)),
        route("web", namespace, "edge", backend("web", 3), backend("missing", 1)),
    )
    programmed(cluster, "edge", namespace)
    says(cluster, "web", namespace, ResolvedRefs=("False", "BackendNotFound"))
    eventually(lambda: bool(cluster.count(client, 5, ip)["answers"]), "it serves")
    counted = cluster.count(client, 400, ip)
    assert is_likely(counted["failures"]["refused"], 400, 0.25), counted


def test_routes_come_to_another_namespace_by_a_grant_and_go_with_it(
    cluster: Cluster, namespace: str, own_namespace: str, client: str, ip: str
) -> None:
    serving(cluster, namespace, web=2)
    cluster.apply(
        gateway("edge", own_namespace, listener("tcp", 80), addresses=(ip,)),
        route("web", own_namespace, "edge", backend("web", namespace=namespace)),
    )
    says(cluster, "web", own_namespace, ResolvedRefs=("False", "RefNotPermitted"))
    cluster.apply(grant("edge", namespace, own_namespace, "web"))
    cluster.reaches(client, cluster.pods("web", namespace), ip)
    began = time.time()
    cluster.delete("referencegrant", "edge", namespace)
    refused = cluster.traffic(client, "until-refuses", ip, 80)
    took = refused["realtime_ns"] / 1e9 - began
    print(f"grant deleted → nobody is served: {took * 1000:.0f} ms")
    assert refused["refused"]
    assert took < REVOKED_WITHIN_S
    says(cluster, "web", own_namespace, ResolvedRefs=("False", "RefNotPermitted"))


def test_the_oldest_route_serves_and_the_next_one_when_it_goes(
    cluster: Cluster, namespace: str, client: str, ip: str
) -> None:
    serving(cluster, namespace, first=1, second=1)
    cluster.apply(
        gateway("edge", namespace, listener("tcp", 80), addresses=(ip,)),
        route("first", namespace, "edge", backend("first")),
    )
    cluster.reaches(client, cluster.pods("first", namespace), ip)
    # Ages are in seconds, and a name decides between those of the same one.
    time.sleep(1)
    cluster.apply(route("a-second", namespace, "edge", backend("second")))

    def attached() -> int:
        listeners = status(cluster, "gateway", "edge", namespace)["listeners"]
        return int(listeners[0]["attachedRoutes"])

    eventually(lambda: attached() == 2, "both are attached")
    cluster.reaches(client, cluster.pods("first", namespace), ip)
    cluster.delete("tcproute", "first", namespace)
    cluster.reaches(client, cluster.pods("second", namespace), ip)


def test_what_is_not_tcp_or_udp_says_so(cluster: Cluster, namespace: str) -> None:
    cluster.apply(gateway("edge", namespace, listener("web", 80, "HTTP"), listener("tcp", 8080)))

    def accepted(name: str) -> tuple[str, str] | None:
        found = {each["name"]: each for each in status(cluster, "gateway", "edge", namespace).get("listeners", [])}
        return conditions(found.get(name, {})).get("Accepted")

    eventually(lambda: accepted("web") == ("False", "UnsupportedProtocol"), "HTTP is refused")
    assert accepted("tcp") == ("True", "Accepted")
    assert conditions(status(cluster, "gateway", "edge", namespace))["Accepted"] == ("True", "ListenersNotValid")


@pytest.mark.parametrize("kind", ["GatewayClass", "Gateway", "ListenerSet", "TCPRoute", "UDPRoute", "ReferenceGrant"])
def test_the_page_has_every_field_of_the_crds(cluster: Cluster, kind: str) -> None:
    rows = fields.rows((ROOT / "docs/gateway.md").read_text(), kind)
    plural = "gatewayclasses" if kind == "GatewayClass" else f"{kind.lower()}s"
    crd = cluster.get("crd", f"{plural}.gateway.networking.k8s.io")
    (version,) = (each for each in crd["spec"]["versions"] if each["name"] == "v1")
    there = set(leaves(version["schema"]["openAPIV3Schema"]["properties"]["spec"], ""))
    assert {leaf for leaf in there if not fields.covered(leaf, rows)} == set()
    assert {row for row in rows if not fields.matches(row, there)} == set()


def leaves(schema: dict[str, Any], path: str) -> Iterator[str]:
    """The paths of the fields in a schema that have no fields of their own."""
    if schema.get("type") == "array":
        yield from leaves(schema["items"], f"{path}[]")
    elif inner := schema.get("properties"):
        for name, each in inner.items():
            yield from leaves(each, f"{path}.{name}" if path else name)
    else:
        yield path


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_backends_see_the_client_where_the_gateway_asks_for_it(
    cluster: Cluster, namespace: str, ip: str, policy: str
) -> None:
    cluster.apply(service("web", namespace))
    for number, node in enumerate(cluster.nodes, 1):
        cluster.serve("web", number, namespace, node)
    kept = {"kube-nftlb.io/external-traffic-policy": policy}
    cluster.apply(
        gateway("edge", namespace, listener("tcp", 80), addresses=(ip,), annotations=kept),
        route("web", namespace, "edge", backend("web")),
    )
    programmed(cluster, "edge", namespace)
    served(cluster, ip)
    seen = set(cluster.count(CLIENT, 20, ip)["peers"])
    assert (seen == {str(addresses.CLIENT[0].ip)}) == (policy == "Local"), seen
