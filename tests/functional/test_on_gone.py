"""Open connections to a backend that is gone: cut where a farm asks for it, and kept everywhere else."""

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.builders.manifests import service
from tests.functional.cluster import Cluster
from tests.functional.farms import Front

pytestmark = pytest.mark.timeout(240)

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
    hook = "type filter hook forward priority -300"
    cluster.nft(node, f"add table inet silent; add chain inet silent drops {{ {hook}; }}")
    for rule in rules.split("; "):
        cluster.nft(node, f"add rule inet silent drops {rule}")
    try:
        yield
    finally:
        cluster.nft(node, "delete table inet silent")


def node_ip(cluster: Cluster, number: int, version: int) -> str:
    return str(next(each.ip for each in cluster.lab.nodes[number].addresses if each.version == version))


def test_clients_of_a_backend_that_is_gone_are_reset_where_the_service_asks_for_it(
    cluster: Cluster, namespace: str, client: str
) -> None:
    cluster.run("web", 4, namespace)
    pods = cluster.pods("web", namespace)
    gone = far_pod(cluster, namespace, pods)
    for name, annotations in (("cut", {"on-gone": "cut"}), ("kept", {})):
        spec: dict[str, Any] = {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "web"}}
        cluster.apply(service(name, namespace, annotations, **spec))
        for suffix in ("", "--ipv6"):
            cluster.farm_has(f"{name}--http{suffix}", namespace, 4)
    port = cluster.get("service", "cut", namespace)["spec"]["ports"][0]["nodePort"]
    node = cluster.nodes[0]
    ways = [
        *(Way(where, cluster.vip("cut", namespace, family)) for where in (client, node) for family in ("ipv4", "ipv6")),
        *(Way("client", node_ip(cluster, 0, version), port) for version in (4, 6)),
        Way(client, node_ip(cluster, 1, 4), port),
        Way(client, node_ip(cluster, 0, 4), port),
    ]
    with contextlib.ExitStack() as stack:
        clients = {way: stack.enter_context(connected(cluster, way, pods)) for way in ways}
        kept = stack.enter_context(connected(cluster, Way(client, cluster.vip("kept", namespace)), pods))
        stack.enter_context(silent(cluster, gone, namespace))
        cluster.lab.pod(False, f"{namespace}/{gone}")
        assert {way: found[gone].is_reset() for way, found in clients.items()} == dict.fromkeys(ways, True)
        assert kept[gone].waits()
        for found in (kept, *clients.values()):
            assert all(found[name].ask() == name for name in pods if name != gone)


@pytest.mark.parametrize("mode", ["snat", "dnat"])
def test_what_went_while_no_agent_ran_is_cut_when_one_starts(
    cluster: Cluster, namespace: str, client: str, mode: str
) -> None:
    front = Front(cluster, namespace, 4)
    front.apply(onGone="cut", mode=mode)
    gone = far_pod(cluster, namespace, front.pods)
    node, way = cluster.nodes[0], Way(client, front.ip)
    with connected(cluster, way, front.pods) as clients, silent(cluster, gone, namespace):
        cluster.lab.stop("agent", node)
        try:
            left = [front.backend(name) for name in front.pods if name != gone]
            front.submit(onGone="cut", mode=mode, backends=left)
            assert clients[gone].waits()
        finally:
            cluster.lab.start("agent", node)
        assert clients[gone].is_reset()
        assert all(clients[name].ask() == name for name in front.pods if name != gone)


def test_clients_are_kept_until_a_backend_is_neither_ready_nor_serving(
    cluster: Cluster, namespace: str, client: str
) -> None:
    front = Front(cluster, namespace, 2)
    doomed, other = front.pods

    def backends(**state: bool) -> list[dict[str, Any]]:
        return [front.backend(doomed, **state), front.backend(other)]

    front.apply(onGone="cut")
    way = Way(client, front.ip)
    with connected(cluster, way, front.pods) as clients:
        # As of a pod that is shut down. Its clients finish what they are at.
        front.apply(onGone="cut", backends=backends(ready=False, terminating=True))
        front.apply(onGone="cut", backends=[front.backend(doomed), front.backend(other, ready=False, serving=False)])
        assert clients[other].is_reset()
        assert clients[doomed].ask() == doomed
        with connected(cluster, way, [doomed]) as later:
            front.apply(backends=backends(ready=False, serving=False))
            assert later[doomed].waits()
            front.apply(onGone="cut", backends=backends(ready=False, serving=False))
            assert clients[doomed].is_reset()
            assert later[doomed].is_reset()


def test_a_client_that_is_still_connecting_gets_to_another_backend(
    cluster: Cluster, namespace: str, client: str
) -> None:
    front = Front(cluster, namespace, 2)
    gone, other = front.pods
    front.apply(onGone="cut", backends=[front.backend(gone)])
    with silent(cluster, gone, namespace), socket_in(cluster, client) as connecting:
        assert connecting.connect_ex((front.ip, 80)) == errno.EINPROGRESS
        front.apply(onGone="cut", backends=[front.backend(other)])
        connecting.settimeout(SECONDS)
        connecting.sendall(b"hello\n")
        assert connecting.recv(1 << 10).decode().split()[0] == other


@contextlib.contextmanager
def socket_in(cluster: Cluster, where: str) -> Iterator[socket.socket]:
    """A socket that does not block."""
    with cluster.lab.inside(where, socket.socket) as opened:
        opened.setblocking(False)
        yield opened
