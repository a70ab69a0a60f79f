"""The requirements of Kubernetes' conntrack.go: UDP flows that outlive their endpoint, and TCP out of its window."""

import contextlib
import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.testbed import (
    CLIENT,
    FAMILIES,
    PATIENCE_S,
    SILENCE_S,
    Pod,
    Service,
    Testbed,
    ports,
    terminating,
    udp_answer,
    unready,
    with_port,
)

Make = Callable[..., Service]
(UDP,) = ports("udp")

BETTER = pytest.mark.only("kube-nftlb", "kube-proxy leaves the flow alone, kubernetes/kubernetes#139628 and #141371")


@contextmanager
def flow(bed: Testbed, where: str, host: str, port: int) -> Iterator[socket.socket]:
    """A client that keeps its source port, and never stops to ask."""
    with bed.udp_socket(where, host, port) as asker:
        yield asker


def moves(asker: socket.socket, to: Pod) -> None:
    # It asks all the time: an entry that nobody deletes would live on.
    eventually(lambda: udp_answer(asker) == to.name, f"the flow goes to {to.name}", 30)


@pytest.mark.parametrize(
    ("way", "family"),
    [
        *itertools.product(("NodePort", "ClusterIP", "ClusterIP Local", "hostNetwork"), FAMILIES),
        *itertools.product(("LoadBalancer", "LoadBalancer to another node"), FAMILIES[:1]),
    ],
)
def test_udp_moves_when_the_server_cycles(bed: Testbed, pods: Pods, service: Make, family: str, way: str) -> None:
    """should be able to preserve UDP traffic when server pod cycles for a (NodePort | ClusterIP ...) service /
    for a LoadBalancer service (2 tests)"""
    is_balanced = way.startswith("LoadBalancer")
    policy = "Local" if way == "ClusterIP Local" else "Cluster"
    dns = service(ports=[UDP], type="LoadBalancer" if is_balanced else "NodePort", internalTrafficPolicy=policy)
    one, two = pods.servers[0], pods.servers[1] if way.endswith("another node") else pods.second
    dns.endpoints(one)
    where, host, port = pods.clients[0].where, dns.ip(family), 80
    with contextlib.ExitStack() as stack:
        if way == "hostNetwork":
            where = bed.nodes[0]
        elif way == "NodePort":
            where, host, port = CLIENT, bed.node_ip(bed.nodes[0], family), dns.node_port("udp")
        elif is_balanced:
            ips = bed.new_ips()
            dns.ingress(*ips.values())
            where, host = CLIENT, ips[family]
            stack.enter_context(bed.route(host, bed.nodes[0]))
        bed.reach(where, [one], host, port, udp=True)
        asker = stack.enter_context(flow(bed, where, host, port))
        moves(asker, one)
        dns.endpoints(one, two)
        time.sleep(0.3)
        # On a busy machine an answer may take longer than it takes to find that nobody answers.
        asker.settimeout(PATIENCE_S)
        assert udp_answer(asker) == one.name, "a flow stays while its endpoint is there"
        asker.settimeout(SILENCE_S)
        dns.endpoints(two)
        moves(asker, two)


def test_udp_moves_when_an_endpoint_gets_ready(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be able to preserve UDP traffic when initial unready endpoints get ready"""
    dns = service(ports=[UDP], type="NodePort").endpoints(unready(pods.servers[0]), unready(pods.second))
    number = dns.node_port("udp")
    with flow(bed, CLIENT, bed.node_ip(bed.nodes[0]), number) as asker:
        eventually(lambda: udp_answer(asker) in ("refused", "timeout"), "nobody answers")
        dns.endpoints(pods.servers[0], unready(pods.second))
        moves(asker, pods.servers[0])
        dns.endpoints(terminating(pods.servers[0], serving=False), pods.second)
        moves(asker, pods.second)


@pytest.mark.parametrize("family", FAMILIES)
def test_udp_flow_from_before_the_service(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """A37: a flow that was let through untranslated is translated once there is an endpoint."""
    ips = bed.new_ips()
    with bed.route(ips[family], bed.nodes[0]), flow(bed, CLIENT, ips[family], 80) as asker:
        assert udp_answer(asker) in ("timeout", "unreachable", "other", "refused")
        service(ports=[UDP], externalIPs=list(ips.values())).endpoints(pods.servers[0])
        moves(asker, pods.servers[0])


def test_udp_moves_when_the_target_port_changes(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be able to cleanup conntrack entries when UDP service target port changes for a NodePort service"""
    dns = service(ports=[UDP], type="NodePort").endpoints(pods.servers[0])
    with flow(bed, CLIENT, bed.node_ip(bed.nodes[0]), dns.node_port("udp")) as asker:
        moves(asker, pods.servers[0])
        # The same pod serves the other port; who answers there says from where it was asked.
        dns.edit(ports=[with_port(dns.body["spec"]["ports"][0], targetPort=81)])
        dns.endpoints(pods.servers[0], ports=[with_port(UDP, port=81)])

        def goes_to_81() -> bool:
            udp_answer(asker)
            entries = bed.run_in(bed.nodes[0], "conntrack", "-L", "-p", "udp", "--dport", str(dns.node_port("udp")))
            return "sport=81 " in entries and "sport=80 " not in entries

        eventually(goes_to_81, "the flow goes to the new port")


@BETTER
def test_udp_ends_when_no_endpoint_is_left(bed: Testbed, pods: Pods, service: Make) -> None:
    """A36, beyond kube-proxy: scaled to zero."""
    dns, client = service(ports=[UDP]), pods.clients[0].where
    dns.endpoints(pods.servers[0])
    with flow(bed, client, dns.ip(), 80) as asker:
        moves(asker, pods.servers[0])
        dns.endpoints()
        eventually(lambda: udp_answer(asker) == "refused", "the flow is refused")


@BETTER
def test_udp_ends_with_its_service(bed: Testbed, pods: Pods, service: Make) -> None:
    """A36, beyond kube-proxy: the Service is deleted."""
    dns, client = service(ports=[UDP]), pods.clients[0].where
    dns.endpoints(pods.servers[0])
    with flow(bed, client, dns.ip(), 80) as asker:
        moves(asker, pods.servers[0])
        dns.delete()
        eventually(lambda: udp_answer(asker) in ("refused", "timeout"), "the flow ends")


def test_udp_flow_of_a_terminating_endpoint_goes_on(bed: Testbed, pods: Pods, service: Make) -> None:
    """A36: an endpoint that still serves keeps its flows."""
    dns, client = service(ports=[UDP]), pods.clients[0].where
    dns.endpoints(pods.servers[0])
    bed.reach(client, pods.servers[:1], dns.ip(), udp=True)
    with flow(bed, client, dns.ip(), 80) as asker:
        moves(asker, pods.servers[0])
        dns.endpoints(terminating(pods.servers[0]), pods.second)
        bed.reach(client, [pods.second], dns.ip(), udp=True)
        time.sleep(0.5)
        assert udp_answer(asker) == pods.servers[0].name


@pytest.mark.parametrize("family", FAMILIES)
def test_tcp_out_of_window(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """proxy implementation should not be vulnerable to the invalid conntrack state bug (A38)"""
    web, client, server = service(), pods.clients[0], pods.servers[1]
    web.endpoints(server)
    bed.reach(client.where, [server], web.ip(family))
    kind = socket.AF_INET if family == "ipv4" else socket.AF_INET6
    connection = bed.connect(client.where, web.ip(family))
    # All TCP of the node comes to this socket: only the last question's has to fit into its buffer.
    raw = bed.keep(server.where, lambda: socket.socket(kind, socket.SOCK_RAW, socket.IPPROTO_TCP))
    raw.settimeout(0.2)
    assert connection.ask().pod == server.name
    # A bare ACK of the server's, with a sequence number far beyond the window. If it came to the client with the
    # pod's address, the client would know no such connection, and would answer with a reset. The server would believe
    # that, as its number is the one that the server itself acknowledges here.
    source_port, sent, acknowledged = numbers(raw, client.ips[family])
    beyond = (sent + 0x2000_0000) & 0xFFFF_FFFF
    segment = struct.pack("!HHIIBBHHH", 80, source_port, beyond, acknowledged, 5 << 4, 0x10, 1024, 0, 0)
    for _ in range(3):
        raw.sendto(with_checksum(segment, kind, server.ips[family], client.ips[family]), (client.ips[family], 0))
    time.sleep(0.3)
    for _ in range(3):
        assert connection.ask().pod == server.name, "the connection goes on"


def numbers(raw: socket.socket, client: str) -> tuple[int, int, int]:
    """The client's port as the server sees it, and the sequence numbers of the server's and the client's next byte.

    The port may be another than the client's own: the kernel changes one that is in use at the same server.
    """
    port = of_server = of_client = 0
    with contextlib.suppress(TimeoutError):
        while True:
            data, (address, *_) = raw.recvfrom(65536)
            if raw.family == socket.AF_INET:
                data = data[(data[0] & 15) * 4 :]  # IPv4 comes with its head
            source, target, sequence, of_other, offset, flags = struct.unpack("!HHIIBB", data[:14])
            if (address, target) == (client, 80):
                port, of_server = source, of_other
                of_client = sequence + len(data) - (offset >> 4) * 4 + (flags >> 1 & 1)
    assert of_server
    return port, of_server, of_client & 0xFFFF_FFFF


def with_checksum(segment: bytes, kind: int, source: str, target: str) -> bytes:
    ends = socket.inet_pton(kind, source) + socket.inet_pton(kind, target)
    # The words of both pseudo heads have the same sum.
    summed = ends + struct.pack("!HH", socket.IPPROTO_TCP, len(segment)) + segment
    total = sum(struct.unpack(f"!{len(summed) // 2}H", summed))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return segment[:16] + struct.pack("!H", ~total & 0xFFFF) + segment[18:]
