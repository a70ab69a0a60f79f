"""SCTP through a Service, packet by packet: neither the client nor the server needs a kernel with SCTP sockets."""

import itertools
import socket
import struct
from collections.abc import Callable

import pytest

from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.testbed import CLIENT, FAMILIES, Service, Testbed

Make = Callable[..., Service]

PORT, TARGET_PORT = 5060, 6060
INIT, INIT_ACK = 1, 2
CLIENT_TAG, SERVER_TAG = 0x1111_1111, 0x2222_2222


def crc32c(data: bytes) -> int:
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def packet(source: int, target: int, chunk: int, tag: int, own_tag: int) -> bytes:
    """An INIT or INIT ACK; ``tag`` is what the other side has chosen, ``own_tag`` what the sender chooses."""
    body = struct.pack("!BBHIIHHI", chunk, 0, 20, own_tag, 65536, 1, 1, 1)
    head = struct.pack("!HHI", source, target, tag)
    return head + struct.pack("<I", crc32c(head + bytes(4) + body)) + body


class Sctp:
    """A raw socket that gets all packets of SCTP that arrive in a place."""

    def __init__(self, bed: Testbed, where: str, family: str) -> None:
        self.kind = socket.AF_INET if family == "ipv4" else socket.AF_INET6
        self.socket = bed.keep(where, lambda: socket.socket(self.kind, socket.SOCK_RAW, socket.IPPROTO_SCTP))
        self.socket.settimeout(0.3)

    def send(self, data: bytes, host: str) -> None:
        self.socket.sendto(data, (host, 0))

    def receive(self, port: int) -> tuple[str, int, int]:
        """The sender, its port, and the kind of chunk of the next packet for a port. Raises TimeoutError."""
        while True:
            data, sender = self.socket.recvfrom(2048)
            if self.kind == socket.AF_INET:
                data = data[(data[0] & 15) * 4 :]  # IPv4 comes with its head
            source, target = struct.unpack("!HH", data[:4])
            if target == port:
                return sender[0], source, data[12]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("way", ["ClusterIP", "NodePort"])
def test_sctp(bed: Testbed, pods: Pods, service: Make, family: str, way: str) -> None:
    """should allow creating a basic SCTP service with pod and endpoints; should function for ...-Service: sctp"""
    target_port = TARGET_PORT + bed.number
    port = {"name": "sctp", "port": PORT, "targetPort": target_port, "protocol": "SCTP"}
    web = service(type="NodePort", ports=[port]).endpoints(pods.servers[1])
    where = pods.clients[0].where if way == "ClusterIP" else CLIENT
    node_ip = bed.node_ip(bed.nodes[0], family)
    host, number = (web.ip(family), PORT) if way == "ClusterIP" else (node_ip, web.node_port("sctp"))
    client, server = Sctp(bed, where, family), Sctp(bed, pods.servers[1].where, family)
    seen: list[tuple[str, int, int, int]] = []
    # From a new port each time: the kernel remembers for 10 s whatever became of the first attempt.
    client_ports = itertools.count(40_000 + 1000 * bed.number)

    def arrives() -> bool:
        client_port = next(client_ports)
        client.send(packet(client_port, number, INIT, 0, CLIENT_TAG), host)
        try:
            seen[:] = [(*server.receive(target_port), client_port)]
        except TimeoutError:
            return False
        return True

    eventually(arrives, f"the server gets what the client sends to {host}")
    ((peer, peer_port, chunk, client_port),) = seen
    assert chunk == INIT
    own = bed.address(where, family)
    assert (peer == own) == (way == "ClusterIP"), "external traffic is masqueraded, a pod's own is not"
    server.send(packet(target_port, peer_port, INIT_ACK, CLIENT_TAG, SERVER_TAG), peer)
    assert client.receive(client_port) == (host, number, INIT_ACK), "the answer comes from where the client asked"
