"""Open connections to a backend that is gone: cut where a farm asks for it, and kept everywhere else."""

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders.manifests import service
from tests.functional.cluster import Cluster
from tests.functional.connections import SECONDS, Way, connected, far_pod, silent
from tests.functional.farms import Front

pytestmark = pytest.mark.engines


def node_ip(cluster: Cluster, number: int, version: int) -> str:
    return str(next(each.ip for each in cluster.lab.nodes[number].addresses if each.version == version))


def test_clients_of_a_backend_that_is_gone_are_reset_where_the_service_asks_for_it(
    cluster: Cluster, namespace: str, client: str
) -> None:
    cluster.serve("web", 4, namespace)
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
