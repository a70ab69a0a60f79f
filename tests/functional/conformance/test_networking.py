"""The requirements of Kubernetes' networking.go (Granular Checks: Services), and of dual_stack.go for IPv6."""

import time
from collections.abc import Callable
from functools import partial

import pytest

from tests import engine
from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import HOST_PORT, Pods
from tests.functional.conformance.testbed import (
    CLIENT,
    FAMILIES,
    NAMESPACE,
    Pod,
    Service,
    Testbed,
    ports,
    with_port,
)

Make = Callable[..., Service]
Start = Callable[..., Pod]

HTTP, UDP = ports("http", "udp")
BOTH = [HTTP, UDP]

pytestmark = pytest.mark.parametrize("family", FAMILIES)
protocols = pytest.mark.parametrize("udp", [False, True], ids=["http", "udp"])


def name(udp: bool) -> str:
    return "udp" if udp else "http"


def all_ways(bed: Testbed, web: Service, family: str, udp: bool) -> list[tuple[str, int]]:
    """The cluster IP, and the node port of each node."""
    return [(web.ip(family), 80), *((bed.node_ip(node, family), web.node_port(name(udp))) for node in bed.nodes)]


@protocols
def test_pod_to_service(bed: Testbed, pods: Pods, service: Make, family: str, udp: bool) -> None:
    """should function for pod-Service: http / udp"""
    web = service(type="NodePort", ports=BOTH).endpoints(*pods.servers)
    for host, port in all_ways(bed, web, family, udp):
        for client in (pods.clients[0], pods.clients[2]):
            bed.reach(client.where, pods.servers, host, port, udp=udp)


@protocols
def test_node_to_service(bed: Testbed, pods: Pods, service: Make, family: str, udp: bool) -> None:
    """should function for node-Service: http / udp"""
    web = service(type="NodePort", ports=BOTH).endpoints(*pods.servers)
    for host, port in all_ways(bed, web, family, udp):
        for node in (bed.nodes[0], bed.nodes[2]):
            bed.reach(node, pods.servers, host, port, udp=udp)


@protocols
def test_endpoint_to_service(bed: Testbed, pods: Pods, service: Make, family: str, udp: bool) -> None:
    """should function for endpoint-Service: http / udp"""
    web = service(type="NodePort", ports=BOTH).endpoints(*pods.servers)
    for host, port in all_ways(bed, web, family, udp):
        bed.reach(pods.servers[0].where, pods.servers, host, port, udp=udp)


def test_services_with_the_same_selector(bed: Testbed, pods: Pods, service: Make, start: Start, family: str) -> None:
    """should function for multiple endpoint-Services with same selector"""
    app = {"app": f"same-{family}"}
    one, two = service(selector=app), service(selector=app)
    made = [start(node, labels=app) for node in bed.nodes[:2]]
    for where in (made[0].where, pods.clients[2].where):
        for each in (one, two):
            bed.reach(where, made, each.ip(family))
    one.delete()
    bed.fail(pods.clients[2].where, one.ip(family))
    bed.reach(pods.clients[2].where, made, two.ip(family))


@protocols
def test_endpoints_are_updated(bed: Testbed, pods: Pods, service: Make, start: Start, family: str, udp: bool) -> None:
    """should update endpoints: http / udp"""
    app = {"app": f"shrinks-{family}-{name(udp)}"}
    web = service(selector=app, ports=BOTH)
    made = [start(node, labels=app) for node in bed.nodes[:2]]
    bed.reach(pods.clients[0].where, made, web.ip(family), udp=udp)
    bed.delete_now(made[0])
    bed.reach(pods.clients[0].where, made[1:], web.ip(family), udp=udp)


@protocols
def test_node_port_is_removed(bed: Testbed, pods: Pods, service: Make, family: str, udp: bool) -> None:
    """should update nodePort: http / udp"""
    web = service(type="NodePort", ports=BOTH).endpoints(*pods.servers)
    host, number = bed.node_ip(bed.nodes[0], family), web.node_port(name(udp))
    bed.reach(CLIENT, pods.servers, host, number, udp=udp)
    web.edit(ports=[HTTP] if udp else [UDP])
    bed.refuse(CLIENT, host, number, udp=udp)


@protocols
def test_client_ip_affinity(bed: Testbed, pods: Pods, service: Make, family: str, udp: bool) -> None:
    """should function for client IP based session affinity: http / udp"""
    web = service(ports=BOTH, sessionAffinity="ClientIP").endpoints(*pods.servers, pods.second)
    for client in pods.clients[:2]:
        ask = partial(bed.answering, client.where, web.ip(family), udp=udp)
        eventually(lambda ask=ask: len(ask()) == 1, "one pod answers one client")  # type: ignore[misc]  # a bound loop variable


def test_large_requests_http(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should be able to handle large requests: http"""
    web = service(ports=BOTH).endpoints(pods.servers[1])
    bed.reach(pods.clients[0].where, pods.servers[1:2], web.ip(family))
    size = 300_000
    head = f"POST / HTTP/1.1\r\nHost: lab\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode()
    connection = bed.connect(pods.clients[0].where, web.ip(family)).socket
    with connection:
        connection.sendall(head + b"x" * size)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert answer.endswith(f"\r\n\r\n{size}\n".encode())


def test_large_requests_udp(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should be able to handle large requests: udp (in fragments, there and back)"""
    web = service(ports=BOTH).endpoints(pods.servers[1])
    bed.reach(pods.clients[0].where, pods.servers[1:2], web.ip(family), udp=True)
    payload = b"echo " + b"0123456789" * 600
    with bed.udp_socket(pods.clients[0].where, web.ip(family), 80) as asker:
        asker.settimeout(2)
        for _ in range(5):
            asker.send(payload)
            assert asker.recv(65536) == payload


@protocols
def test_host_network_endpoints(bed: Testbed, pods: Pods, service: Make, family: str, udp: bool) -> None:
    """should function for service endpoints using hostNetwork (A52: also from a node to its own one)"""
    web = service(type="NodePort", ports=[with_port(port, targetPort=HOST_PORT) for port in BOTH])
    web.endpoints(*pods.hosts)
    for host, port in all_ways(bed, web, family, udp)[:2]:
        for where in (pods.clients[0].where, bed.nodes[0], pods.hosts[1].where):
            bed.reach(where, pods.hosts, host, port, udp=udp)
    bed.reach(CLIENT, pods.hosts, bed.node_ip(bed.nodes[0], family), web.node_port(name(udp)), udp=udp)


@protocols
def test_pods_without_snat(bed: Testbed, pods: Pods, family: str, udp: bool) -> None:
    """no_snat.go: should be able to send traffic between Pods without SNAT"""
    for client in pods.clients[:2]:
        bed.reach(client.where, pods.servers[1:2], pods.servers[1].ips[family], udp=udp, keeps_address=True)


def test_connections_of_a_terminating_pod(bed: Testbed, pods: Pods, service: Make, start: Start, family: str) -> None:
    """pod_lifecycle.go: should be able to connect from and to a terminating Pod, other by Service and directly"""
    app = {"app": f"lifecycle-{family}"}
    web = service(selector=app)
    leaving = start(bed.nodes[0], labels=app, terminationGracePeriodSeconds=30)
    stays = start(bed.nodes[1], labels=app)
    bed.reach(pods.clients[0].where, [leaving, stays], web.ip(family))
    bed.delete("pod", leaving.name)
    bed.reach(leaving.where, [stays], web.ip(family))
    bed.reach(pods.clients[1].where, [leaving], leaving.ips[family])


def test_latency_of_endpoints(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """service_latency.go: endpoints latency should not be very high"""
    taken = []
    for _ in range(4):
        web = service()
        begin = time.monotonic()
        web.endpoints(pods.servers[0])
        bed.reach(pods.clients[0].where, pods.servers[:1], web.ip(family))
        taken.append(time.monotonic() - begin)
    assert sorted(taken)[1] < 20


def test_second_service_cidr(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """service_cidrs.go: should create Services and serve on different Service CIDRs"""
    number = 97 + engine.BOTH.index(engine.current())
    cidr = {"ipv4": f"10.{number}.0.0/24", "ipv6": f"fd00:{number}::/112"}[family]
    ip = {"ipv4": f"10.{number}.0.10", "ipv6": f"fd00:{number}::10"}[family]
    name = f"second-{family}-{number}"
    bed.create(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": name},
            "spec": {"cidrs": [cidr]},
        }
    )
    try:
        eventually(lambda: is_ready(bed, name), "the range can be used")
        web = service(clusterIP=ip, ipFamilies=["IPv4" if family == "ipv4" else "IPv6"], ipFamilyPolicy="SingleStack")
        web.endpoints(*pods.servers)
        bed.reach(pods.clients[0].where, pods.servers, web.ip(family))
        bed.refuse(pods.clients[0].where, web.ip(family), 4321)
    finally:
        bed.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/services?labelSelector=none=none")
        bed.delete("servicecidr", name)


def is_ready(bed: Testbed, cidr: str) -> bool:
    conditions = bed.get("servicecidr", cidr).get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
