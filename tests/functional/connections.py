"""Open connections that a test watches while their backends go."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.functional.cluster import Cluster

SECONDS = 60
"""The connection is cut a second after the endpoint has left; the rest is for a busy machine and an agent's start."""


class Way(NamedTuple):
    """The place of a client, and the address and port that it connects to."""

    where: str
    host: str
    port: int = 80


class Client:
    """A connection that waits for data after a first answer."""

    def __init__(self, cluster: Cluster, way: Way) -> None:
        self._socket = cluster.lab.inside(way.where, lambda: socket.create_connection((way.host, way.port), SECONDS))
        self.pod = self.ask()

    def ask(self) -> str:
        """Return the pod that answers."""
        self._socket.settimeout(SECONDS)
        self._socket.sendall(b"hello\n")
        return self._socket.recv(1 << 10).decode().split()[0]

    def waits(self) -> bool:
        """Return True if nothing has come of the connection."""
        self._socket.setblocking(False)
        try:
            self._socket.recv(1)
        except BlockingIOError:
            return True
        return False

    def is_reset(self) -> bool:
        """Wait for data. Return True if the connection is reset instead."""
        self._socket.settimeout(SECONDS)
        try:
            self._socket.recv(1)
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return False

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def connected(cluster: Cluster, way: Way, pods: list[str]) -> Iterator[dict[str, Client]]:
    """A client of each of these pods."""
    clients: dict[str, Client] = {}
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            opened = stack.enter_context(contextlib.closing(Client(cluster, way)))
            clients.setdefault(opened.pod, opened)
            if clients.keys() == set(pods):
                break
        assert clients.keys() == set(pods)
        yield clients


def pod(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get("pod", name, namespace)
    return found


def far_pod(cluster: Cluster, namespace: str, pods: list[str]) -> str:
    """A pod on another node than the clients."""
    return next(name for name in pods if pod(cluster, name, namespace)["spec"]["nodeName"] == cluster.nodes[1])


@contextlib.contextmanager
def silent(cluster: Cluster, name: str, namespace: str) -> Iterator[None]:
    """Drop every packet to and from a pod."""
    found = pod(cluster, name, namespace)
    rules = "; ".join(
        f"{'ip6' if ':' in each['ip'] else 'ip'} {side} {each['ip']} drop"
        for each in found["status"]["podIPs"]
        for side in ("saddr", "daddr")
    )
    node = found["spec"]["nodeName"]
    hook, table = "type filter hook forward priority -300", f"silent-{namespace}"
    cluster.nft(node, f"add table inet {table}; add chain inet {table} drops {{ {hook}; }}")
    for rule in rules.split("; "):
        cluster.nft(node, f"add rule inet {table} drops {rule}")
    try:
        yield
    finally:
        cluster.nft(node, f"delete table inet {table}")
