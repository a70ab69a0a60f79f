"""The requirements of Kubernetes' endpointslice.go and endpointslicemirroring.go, and merging of slices."""

from collections.abc import Callable

import pytest

from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.testbed import (
    FAMILIES,
    NAMESPACE,
    Endpoint,
    Service,
    Testbed,
    always,
    local,
    ports,
    unready,
    with_port,
)

Make = Callable[..., Service]
HTTP, UDP, HTTP2 = ports("http", "udp", "http2")


@pytest.mark.parametrize("family", FAMILIES)
def test_multiple_ports_in_multiple_slices(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should support a Service with multiple ports specified in multiple EndpointSlices"""
    web, client = service(ports=[HTTP, HTTP2, UDP]), pods.clients[0].where
    web.endpoints(pods.servers[0], pods.servers[1], slice_name="a", ports=[HTTP])
    web.endpoints(pods.servers[1], pods.servers[2], slice_name="b", ports=[HTTP2, UDP])
    bed.reach(client, pods.servers[:2], web.ip(family), 80)
    bed.reach(client, pods.servers[1:], web.ip(family), 81)
    bed.reach(client, pods.servers[1:], web.ip(family), 80, udp=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_multiple_ips_in_multiple_slices(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should support a Service with multiple endpoint IPs specified in multiple EndpointSlices"""
    web, client = service(ports=[HTTP, HTTP2]), pods.clients[0].where
    web.endpoints(pods.servers[0], slice_name="a")
    web.endpoints(pods.servers[1], slice_name="b")
    for port in (80, 81):
        bed.reach(client, pods.servers[:2], web.ip(family), port)
    web.endpoints(slice_name="a")
    for port in (80, 81):
        bed.reach(client, pods.servers[1:2], web.ip(family), port)


def write_endpoints(bed: Testbed, name: str, *subsets: dict[str, object]) -> None:
    bed.create(
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "subsets": list(subsets),
        }
    )


def subset(ip: str, port: dict[str, object]) -> dict[str, object]:
    return {"addresses": [{"ip": ip}], "ports": [port]}


def test_custom_endpoints_are_mirrored(bed: Testbed, pods: Pods, service: Make) -> None:
    """should mirror a custom Endpoints resource through create update and delete"""
    web, client = service(ipFamilyPolicy="SingleStack"), pods.clients[0].where
    one, two = pods.servers[:2]
    write_endpoints(bed, web.name, subset(one.ips["ipv4"], HTTP))
    bed.reach(client, [one], web.ip())
    bed.patch("endpoints", web.name, {"subsets": [subset(two.ips["ipv4"], HTTP)]})
    bed.reach(client, [two], web.ip())
    bed.delete("endpoints", web.name)
    bed.refuse(client, web.ip())


def test_custom_endpoints_with_several_subsets(bed: Testbed, pods: Pods, service: Make) -> None:
    """should mirror a custom Endpoint with multiple subsets and same IP address"""
    web, client = service(ipFamilyPolicy="SingleStack", ports=[HTTP, HTTP2]), pods.clients[0].where
    ip = pods.servers[0].ips["ipv4"]
    write_endpoints(bed, web.name, subset(ip, HTTP), subset(ip, HTTP2))
    for port in (80, 81):
        bed.reach(client, pods.servers[:1], web.ip(), port)


def test_different_ports_for_one_name(bed: Testbed, pods: Pods, service: Make) -> None:
    """A22: each endpoint has the number that its own slice gives."""
    web = service().endpoints(pods.servers[0], slice_name="a", ports=[HTTP])
    web.endpoints(pods.servers[1], slice_name="b", ports=[with_port(HTTP, port=81)])
    bed.reach(pods.clients[0].where, pods.servers[:2], web.ip())


def test_an_endpoint_that_several_slices_have_counts_once(bed: Testbed, pods: Pods, service: Make) -> None:
    """A21"""
    web, client = service(), pods.clients[0].where
    web.endpoints(pods.servers[0], slice_name="a")
    for name in "bcde":
        web.endpoints(pods.servers[1], slice_name=name)
    bed.reach(client, pods.servers[:2], web.ip())
    share = sum(answer.pod == pods.servers[0].name for answer in bed.answers_to(client, web.ip(), number=200)) / 200
    assert 0.3 < share < 0.7, "of two endpoints, though the other one is listed four times"


@pytest.mark.only(
    "kube-proxy", "a backend of a farm is on one node, which slices that contradict each other do not tell"
)
def test_one_endpoint_of_several_slices_counts_once(bed: Testbed, pods: Pods, service: Make) -> None:
    """A21: the one that is local, where slices differ about that."""
    web = service(internalTrafficPolicy="Local").endpoints(local(pods.servers[0], "node-9"), slice_name="a")
    web.endpoints(pods.servers[0], slice_name="b")
    web.endpoints(local(pods.servers[0], "node-9"), slice_name="c")
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip())
    web.endpoints(pods.servers[1], slice_name="b")
    bed.reach(pods.clients[1].where, pods.servers[1:2], web.ip())
    bed.drop(pods.clients[0].where, web.ip())
    web.edit(internalTrafficPolicy="Cluster")
    for name in "def":
        web.endpoints(pods.servers[1], slice_name=name)
    bed.reach(pods.clients[0].where, pods.servers[:2], web.ip())
    answers = bed.answers_to(pods.clients[0].where, web.ip(), number=200)
    share = sum(answer.pod == pods.servers[0].name for answer in answers) / 200
    assert 0.3 < share < 0.7, "of two endpoints, though the other one is listed four times"


def test_what_slices_have_that_is_passed_over(bed: Testbed, pods: Pods, service: Make) -> None:
    """A21: names instead of addresses, ports without a name or number, addresses but the first, other families."""
    web, client = service(ipFamilyPolicy="SingleStack"), pods.clients[0].where
    one, two, three = (pod.ips["ipv4"] for pod in pods.servers)
    bed.put_slice(web.name, f"{web.name}-fqdn", "", [{"addresses": ["example.com"]}], [HTTP], "FQDN")
    bed.put_slice(web.name, f"{web.name}-noport", "ipv4", [{"addresses": [two]}], [{"name": "http"}])
    bed.put_slice(web.name, f"{web.name}-noname", "ipv4", [{"addresses": [two]}], [{"port": 80}])
    bed.put_slice(web.name, f"{web.name}-other", "ipv4", [{"addresses": [two]}], [with_port(HTTP, name="other")])
    bed.put_slice(web.name, f"{web.name}-v6", "ipv6", [{"addresses": [pods.servers[1].ips["ipv6"]]}], [HTTP])
    bed.refuse(client, web.ip())
    bed.put_slice(web.name, f"{web.name}-two", "ipv4", [{"addresses": [one, three]}], [HTTP])
    bed.reach(client, pods.servers[:1], web.ip())
    assert always(lambda: bed.answering(client, web.ip()) == {pods.servers[0].name}, 0.3)


def test_slices_with_a_proxy_label_are_left_alone(bed: Testbed, pods: Pods, service: Make) -> None:
    """A3: as Services with the label are."""
    web = service().endpoints(pods.servers[0], slice_name="a")
    web.endpoints(pods.servers[1], slice_name="b")
    bed.reach(pods.clients[0].where, pods.servers[:2], web.ip())
    labels = {"metadata": {"labels": {"service.kubernetes.io/service-proxy-name": "somebody-else"}}}
    bed.patch("endpointslice", f"{web.name}-b-ipv4", labels)
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip())


def test_endpoints_without_a_node(bed: Testbed, pods: Pods, service: Make) -> None:
    """A53: they are local nowhere, and reached from everywhere."""
    web = service().endpoints(Endpoint(pods.servers[0], node=None))
    for where in (pods.clients[0].where, pods.clients[2].where, bed.nodes[1]):
        bed.reach(where, pods.servers[:1], web.ip())
    web.edit(internalTrafficPolicy="Local")
    bed.drop(pods.clients[0].where, web.ip())


def test_endpoints_outside_the_cluster(bed: Testbed, pods: Pods, service: Make) -> None:
    """A53: an address that no pod has."""
    web = service(ipFamilyPolicy="SingleStack")
    ip = bed.new_ips()["ipv4"]
    with bed.outside_server(ip, 8080, via=bed.nodes[0]):
        bed.put_slice(web.name, f"{web.name}-out", "ipv4", [{"addresses": [ip]}], [with_port(HTTP, port=8080)])
        bed.put_slice(web.name, f"{web.name}-in", "ipv4", [unready(pods.servers[0]).body("ipv4")], [HTTP])
        outside = pods.servers[0]._replace(name="outside")
        bed.reach(pods.clients[0].where, [outside], web.ip(), keeps_address=True)
