"""The proxy itself: its health, the health check ports of Services, and its rules while it is away."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.testbed import (
    CLIENT,
    FAMILIES,
    Endpoint,
    OutsideServer,
    Pod,
    Service,
    Testbed,
    ports,
    terminating,
    unready,
)

Make = Callable[..., Service]
Start = Callable[..., Pod]

HTTP, HTTP2 = ports("http", "http2")
HEALTHZ_PORT = 10256
STATUS_PORT = 10249
BALANCED = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}


# The proxy's own health


@pytest.mark.parametrize("family", FAMILIES)
def test_health_of_the_proxy(bed: Testbed, family: str) -> None:
    """should check kube-proxy urls (A44, A45)"""
    for node in bed.nodes:
        ask = partial(bed.status_of, CLIENT, bed.node_ip(node, family), HEALTHZ_PORT, "/healthz")
        eventually(lambda ask=ask: ask() == 200, f"the proxy of {node} is healthy")  # type: ignore[misc]  # a bound loop variable
        _, headers, body = bed.http(CLIENT, bed.node_ip(node, family), HEALTHZ_PORT, "/healthz")
        assert headers["content-type"].startswith("application/json")
        assert body["nodeEligible"] is True
        assert {"lastUpdated", "currentTime"} <= set(body)
        status, _, body = bed.http(CLIENT, bed.node_ip(node, family), HEALTHZ_PORT, "/livez")
        assert status == 200
        assert "nodeEligible" not in body


def test_mode_of_the_proxy(bed: Testbed) -> None:
    """should check kube-proxy urls (the mode)"""
    ask = partial(bed.status_of, bed.nodes[0], "127.0.0.1", STATUS_PORT, "/proxyMode")
    eventually(lambda: ask() == 200, "the proxy says its mode")
    status, _, body = bed.http(bed.nodes[0], "127.0.0.1", STATUS_PORT, "/proxyMode")
    assert status == 200
    assert body == ("nftables" if bed.proxy == "kube-nftlb" else bed.proxy.rpartition("-")[2])


# healthCheckNodePort


def checked(bed: Testbed, web: Service, node: str, family: str = "ipv4") -> tuple[int | str, int]:
    """The response to a load balancer's check of a node: the status and the number of endpoints."""
    port = web.body["spec"]["healthCheckNodePort"]
    try:
        status, headers, body = bed.http(CLIENT, bed.node_ip(node, family), port, "/anything")
    except ConnectionRefusedError:
        return "refused", 0
    except OSError:
        return "failed", 0
    assert headers["content-type"].startswith("application/json")
    assert headers["x-load-balancing-endpoint-weight"] == str(body["localEndpoints"])
    assert body["service"] == {"namespace": "conformance", "name": web.name}
    assert body["serviceProxyHealthy"] is True
    return status, body["localEndpoints"]


def checks_are(bed: Testbed, web: Service, *expected: tuple[int | str, int]) -> None:
    for node, wanted in zip(bed.nodes, expected, strict=True):
        eventually(partial(lambda node, wanted: checked(bed, web, node) == wanted, node, wanted), f"{node}: {wanted}")


@pytest.mark.parametrize("family", FAMILIES)
def test_health_check_node_port(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """A43: ready local endpoints are counted, each address once."""
    web = service(**BALANCED, ports=[HTTP, HTTP2]).endpoints(pods.servers[0], pods.second, unready(pods.servers[1]))
    eventually(lambda: checked(bed, web, bed.nodes[0], family) == (200, 2), "two endpoints on the first node")
    eventually(lambda: checked(bed, web, bed.nodes[1], family) == (503, 0), "none that is ready on the second")
    checks_are(bed, web, (200, 2), (503, 0), (503, 0))
    web.endpoints(pods.second, pods.servers[2])
    checks_are(bed, web, (200, 1), (503, 0), (200, 1))


def test_health_check_of_terminating_endpoints(bed: Testbed, pods: Pods, service: Make) -> None:
    """should fail health check node port if there are only terminating endpoints (traffic is still served)"""
    web = service(**BALANCED).endpoints(pods.servers[0])
    checks_are(bed, web, (200, 1), (503, 0), (503, 0))
    web.endpoints(terminating(pods.servers[0]))
    checks_are(bed, web, (503, 0), (503, 0), (503, 0))
    bed.reach(CLIENT, pods.servers[:1], bed.node_ip(bed.nodes[0]), web.node_port(), keeps_address=True)


def test_health_check_of_a_terminating_pod(bed: Testbed, service: Make, start: Start) -> None:
    """The same with a pod that is really being deleted."""
    web = service(**BALANCED, selector={"app": "checked"})
    pod = start(bed.nodes[1], labels={"app": "checked"}, terminationGracePeriodSeconds=30)
    checks_are(bed, web, (503, 0), (200, 1), (503, 0))
    bed.delete("pod", pod.name)
    checks_are(bed, web, (503, 0), (503, 0), (503, 0))
    bed.reach(CLIENT, [pod], bed.node_ip(bed.nodes[1]), web.node_port())


def test_health_check_follows_the_policy(bed: Testbed, pods: Pods, service: Make) -> None:
    """should implement NodePort and HealthCheckNodePort correctly when ExternalTrafficPolicy changes"""
    web = service(**BALANCED).endpoints(pods.servers[0])
    number, check_port = web.node_port(), web.body["spec"]["healthCheckNodePort"]
    here, there = (bed.node_ip(node) for node in bed.nodes[:2])

    def is_local() -> None:
        checks_are(bed, web, (200, 1), (503, 0), (503, 0))
        bed.reach(CLIENT, pods.servers[:1], here, number, keeps_address=True)
        bed.drop(CLIENT, there, number)
        # The short circuit: on its own node a pod gets there all the same.
        bed.reach(pods.clients[1].where, pods.servers[:1], there, number)

    is_local()
    web.edit(externalTrafficPolicy="Cluster")
    for ip in (here, there):
        bed.reach(CLIENT, pods.servers[:1], ip, number, is_masqueraded=True)
        bed.refuse(CLIENT, ip, check_port)
    web.edit(externalTrafficPolicy="Local", healthCheckNodePort=check_port)
    is_local()
    web.edit(type="ClusterIP", ports=[HTTP], externalTrafficPolicy=None, healthCheckNodePort=None)
    bed.refuse(CLIENT, here, check_port)


def test_health_check_addresses(bed: Testbed, pods: Pods, service: Make) -> None:
    """A5: the port is where node ports are, and not on each address of a node."""
    if bed.proxy == "kube-proxy-iptables":
        pytest.skip("in iptables mode the default is all addresses")
    web = service(**BALANCED).endpoints(*pods.servers)
    checks_are(bed, web, (200, 1), (200, 1), (200, 1))
    # Not so on the third node: without a range of IPv6 it may listen on ::, which takes IPv4 as well.
    bridge = str(bed.lab.nodes[0].gateway[0].ip)
    bed.refuse(pods.clients[0].where, bridge, web.body["spec"]["healthCheckNodePort"])


def test_health_check_port_is_taken(bed: Testbed, pods: Pods, service: Make) -> None:
    """A43: the node says so in an Event, and the rest goes on."""
    node, port = bed.nodes[0], 32_111 + bed.number
    with bed.lab.inside(node, lambda: socket.create_server(("0.0.0.0", port))):
        web = service(**BALANCED, healthCheckNodePort=port).endpoints(*pods.servers)

        def told() -> bool:
            events = bed.get("event")["items"]
            return any(
                event["reason"] == "FailedToStartServiceHealthcheck"
                and event["type"] == "Warning"
                and event["involvedObject"]["name"] == web.name
                for event in events
            )

        eventually(told, "an Event about the port")
        eventually(lambda: checked(bed, web, bed.nodes[1]) == (200, 1), "the other nodes have the port")
        bed.reach(CLIENT, pods.servers[:1], bed.node_ip(node), web.node_port())


# The addresses of a node


@contextmanager
def more_address(bed: Testbed, node: str, ip: str) -> Iterator[str]:
    length = 128 if ":" in ip else 32
    bed.run_in(node, "ip", "addr", "add", f"{ip}/{length}", "dev", "eth0", *(("nodad",) if ":" in ip else ()))
    try:
        with bed.route(ip, node):
            yield ip
    finally:
        bed.run_in(node, "ip", "addr", "del", f"{ip}/{length}", "dev", "eth0")


@pytest.mark.parametrize(
    ("node", "ip", "captured"),
    [
        (0, "172.31.{}.1", False),
        (0, "fd00:31:{}::1", False),
        (2, "172.31.{}.3", True),
        (2, "198.51.{}.3", False),
        (2, "fd00:31:{}::3", True),
    ],
    ids=["primary-ipv4", "primary-ipv6", "in-range", "out-of-range", "family-without-range"],
)
def test_node_port_addresses(bed: Testbed, pods: Pods, service: Make, node: int, ip: str, captured: bool) -> None:
    """A5: the first node has the default, its primary addresses; the third has a range of IPv4, and none of IPv6."""
    if bed.proxy == "kube-proxy-iptables" and node == 0:
        pytest.skip("in iptables mode the default is all addresses")
    web = service(type="NodePort")
    # On the node itself: what leaves it may be given the further address, to which others know no way.
    web.endpoints(pods.servers[node])
    bed.reach(CLIENT, [pods.servers[node]], bed.node_ip(bed.nodes[node]), web.node_port())
    ip = ip.format(101 + bed.number)
    with more_address(bed, bed.nodes[node], ip):
        if bed.proxy != "kube-nftlb":
            bed.restart_proxy(bed.nodes[node])  # kube-proxy looks for addresses once an hour
        if captured:
            bed.reach(CLIENT, [pods.servers[node]], ip, web.node_port())
        else:
            bed.refuse(CLIENT, ip, web.node_port())  # by the node itself: nobody listens there


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_node_port_and_loopback(bed: Testbed, pods: Pods, service: Make, host: str) -> None:
    """A4: what is for the node's loopback is not for a Service."""
    if bed.proxy == "kube-proxy-iptables" and host == "127.0.0.1":
        pytest.skip("kube-proxy serves it in iptables mode")
    web = service(type="NodePort").endpoints(*pods.servers)
    bed.reach(bed.nodes[0], pods.servers, bed.node_ip(bed.nodes[0]), web.node_port())
    with bed.lab.inside(bed.nodes[0], lambda: listener(host, web.node_port())) as server:
        server.settimeout(3)
        with bed.lab.inside(bed.nodes[0], lambda: socket.create_connection((host, web.node_port()), 2)):
            server.accept()[0].close()


def listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


@pytest.mark.parametrize("family", FAMILIES)
def test_node_port_of_somebody_else(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """A4: a connection through the node to another host's port of the same number is not the node's."""
    web = service(type="NodePort").endpoints(*pods.servers)
    bed.reach(CLIENT, pods.servers, bed.node_ip(bed.nodes[0], family), web.node_port())
    host = bed.address(CLIENT, family)
    server = OutsideServer(bed, host, web.node_port())
    try:
        outside = pods.servers[0]._replace(name="outside")
        bed.reach(pods.clients[0].where, [outside], host, web.node_port(), keeps_address=True)
    finally:
        server.close()


# Other packets


def test_marks_of_others(bed: Testbed, pods: Pods, service: Make) -> None:
    """A33: the mark by which packets are masqueraded is one bit; the others are left as they are."""
    web, node, theirs = service(type="NodePort"), bed.nodes[0], "0x10000001"
    # The tests of both engines run beside each other.
    table = f"theirs-{bed.number}"
    web.endpoints(pods.servers[0])
    bed.reach(CLIENT, pods.servers[:1], bed.node_ip(node), web.node_port(), is_masqueraded=True)
    rules = f"""
        table ip {table} {{
            chain before {{
                type filter hook prerouting priority -300; policy accept;
                ip saddr {bed.address(CLIENT, "ipv4")} tcp dport {web.node_port()} meta mark set {theirs}
            }}
            chain after {{
                type filter hook postrouting priority 300; policy accept;
                ct direction original meta l4proto tcp ct original proto-dst {web.node_port()} jump judge
            }}
            chain judge {{
                meta mark {theirs} counter packets 0 bytes 0 comment "kept"
                meta mark != {theirs} counter packets 0 bytes 0 comment "changed"
            }}
        }}"""
    done = bed.lab.exec(node, "nft", "-f", "-", input=rules)
    assert done.returncode == 0, done.stderr
    try:
        bed.reach(CLIENT, pods.servers[:1], bed.node_ip(node), web.node_port(), is_masqueraded=True)
        seen = [line.strip() for line in bed.nft(node, "list", "chain", "ip", table, "judge").splitlines()]
        (kept,) = [line for line in seen if "kept" in line]
        (changed,) = [line for line in seen if "changed" in line]
        assert " packets 0 " not in kept
        assert " packets 0 " in changed
    finally:
        bed.nft(node, "delete", "table", "ip", table)


def test_close_wait_timeout(bed: Testbed, pods: Pods, service: Make) -> None:
    """should set TCP CLOSE_WAIT timeout [Privileged]"""
    web, client = service(), pods.clients[0]
    number = 9000 + bed.number
    web.endpoints(pods.servers[1], ports=[{**HTTP, "port": number}])
    server = bed.keep(pods.servers[1].where, lambda: listener("0.0.0.0", number))
    server.settimeout(3)
    eventually(lambda: bed.outcomes(client.where, web.ip())["timeout"] > 0, "there is a listener")
    port = bed.connect(client.where, web.ip()).socket.getsockname()[1]
    accepted, peer = server.accept()
    bed.sockets.append(accepted)
    while peer[1] != port:
        accepted, peer = server.accept()
        bed.sockets.append(accepted)
    # One side has ended the connection, the other has not.
    accepted.shutdown(socket.SHUT_WR)

    def timeout() -> int:
        listed = bed.run_in(bed.nodes[0], "conntrack", "-L", "-p", "tcp", "-d", web.ip(), "--sport", str(port)).split()
        return int(listed[2]) if "CLOSE_WAIT" in listed else 0

    eventually(lambda: 3000 < timeout() <= 3600, "such a connection is remembered for an hour")


# Without the proxy


def test_an_endpoint_said_to_be_on_a_node(bed: Testbed, pods: Pods, service: Make) -> None:
    """A52: where an endpoint is, its nodeName says, and not its address."""
    web = service(internalTrafficPolicy="Local").endpoints(Endpoint(pods.servers[1], node=bed.nodes[0]))
    bed.reach(pods.clients[0].where, pods.servers[1:2], web.ip())
    bed.drop(pods.clients[1].where, web.ip())
