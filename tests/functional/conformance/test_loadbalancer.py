"""The requirements of Kubernetes' loadbalancer.go. The tests write the status themselves, as a cloud would; the host
outside sends what is for the load balancer's address through a node that the test chooses."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.testbed import (
    CLIENT,
    FAMILIES,
    Endpoint,
    Pod,
    Service,
    Testbed,
    ports,
    terminating,
    with_port,
)

Make = Callable[..., Service]
Start = Callable[..., Pod]

HTTP, UDP, HTTP2 = ports("http", "udp", "http2")
families = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture
def ips(bed: Testbed) -> dict[str, str]:
    """The load balancer's addresses."""
    return bed.new_ips()


@pytest.fixture
def balanced(service: Make, ips: dict[str, str]) -> Callable[..., Service]:
    def make(**spec: object) -> Service:
        web = service(type="LoadBalancer", **spec)
        web.ingress(*ips.values())
        return web

    return make


@families
def test_load_balancer_ip(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str], family: str) -> None:
    """A7: short-circuited on every node, for pods, nodes and the outside; node port and cluster IP work as well (A2)"""
    web = balanced(ports=[HTTP, UDP])
    web.endpoints(*pods.servers)
    for where in (pods.clients[0].where, pods.clients[2].where, bed.nodes[0], bed.nodes[2]):
        bed.reach(where, pods.servers, ips[family])
        bed.reach(where, pods.servers, ips[family], udp=True)
    for node in bed.nodes[:2]:
        with bed.route(ips[family], node):
            bed.reach(CLIENT, pods.servers, ips[family])
            bed.reach(CLIENT, pods.servers, ips[family], udp=True)
    bed.reach(pods.clients[0].where, pods.servers, web.ip(family))
    bed.reach(CLIENT, pods.servers, bed.node_ip(bed.nodes[0], family), web.node_port())


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_type_and_ports_change(bed: Testbed, pods: Pods, service: Make, ips: dict[str, str], protocol: str) -> None:
    """should be able to change the type and ports of a TCP / UDP service"""
    udp, port = protocol == "UDP", UDP if protocol == "UDP" else HTTP
    web, client = service(ports=[port]), pods.clients[0].where
    web.endpoints(*pods.servers, ports=[port])
    bed.reach(client, pods.servers, web.ip(), udp=udp)
    web.edit(type="NodePort")
    first, node_ip = web.node_port(port["name"]), bed.node_ip(bed.nodes[0])
    bed.reach(CLIENT, pods.servers, node_ip, first, udp=udp)
    web.edit(type="LoadBalancer")
    web.ingress(ips["ipv4"])
    bed.reach(client, pods.servers, ips["ipv4"], udp=udp)
    other = first + 1 if first < 32767 else first - 1
    web.edit(ports=[with_port(port, nodePort=other)])
    bed.reach(CLIENT, pods.servers, node_ip, other, udp=udp)
    bed.refuse(CLIENT, node_ip, first, udp=udp)
    web.edit(ports=[with_port(port, port=85, nodePort=other)])
    bed.reach(client, pods.servers, ips["ipv4"], 85, udp=udp)
    bed.fail(client, ips["ipv4"], 80, udp=udp)
    web.endpoints()
    bed.refuse(client, ips["ipv4"], 85, udp=udp)
    web.endpoints(*pods.servers, ports=[port])
    bed.reach(client, pods.servers, ips["ipv4"], 85, udp=udp)
    web.edit(type="ClusterIP", ports=[with_port(port, port=85)])
    bed.fail(client, ips["ipv4"], 85, udp=udp)
    bed.refuse(CLIENT, node_ip, other, udp=udp)
    bed.reach(client, pods.servers, web.ip(), 85, udp=udp)


def test_ingress_changes(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str]) -> None:
    """A7: addresses come and go with the status."""
    web, client, other = balanced(), pods.clients[0].where, bed.new_ips()["ipv4"]
    web.endpoints(*pods.servers)
    bed.reach(client, pods.servers, ips["ipv4"])
    web.ingress(ips["ipv4"], other)
    bed.reach(client, pods.servers, other)
    web.ingress(other)
    bed.fail(client, ips["ipv4"])
    bed.reach(client, pods.servers, other)


@families
@pytest.mark.parametrize("mode", ["VIP", "Proxy"])
def test_ip_mode(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str], family: str, mode: str) -> None:
    """A7: with ipMode Proxy traffic leaves for the load balancer itself, with VIP it does not"""
    web, client = balanced(), pods.clients[0].where
    web.endpoints(*pods.servers)
    bed.reach(client, pods.servers, ips[family])
    with bed.outside_server(ips[family], 80, via=bed.nodes[0]):
        web.ingress(*ips.values(), ipMode=mode)
        if mode == "Proxy":
            bed.reach(client, [pods.servers[0]._replace(name="outside")], ips[family])
        else:
            bed.reach(client, pods.servers, ips[family])


def test_hostname_of_a_load_balancer(bed: Testbed, pods: Pods, service: Make) -> None:
    """A7: an ingress with nothing but a name is no frontend, and disturbs none."""
    web = service(type="LoadBalancer").endpoints(*pods.servers)
    ip = bed.new_ips()["ipv4"]
    status = {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}, {"ip": ip}]}}
    bed.patch("service", web.name, {"status": status}, subresource="status")
    bed.reach(pods.clients[0].where, pods.servers, ip)
    bed.reach(pods.clients[0].where, pods.servers, web.ip())


def test_class_of_a_load_balancer(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str]) -> None:
    """A7: whose load balancer it is does not matter to a proxy."""
    web = balanced(loadBalancerClass="example.com/somebody")
    web.endpoints(*pods.servers)
    bed.reach(pods.clients[0].where, pods.servers, ips["ipv4"])


def test_without_node_ports(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str]) -> None:
    """should be able to create LoadBalancer Service without NodePort and change it (A8)"""
    web = balanced(allocateLoadBalancerNodePorts=False)
    assert "nodePort" not in web.body["spec"]["ports"][0]
    web.endpoints(*pods.servers)
    for where in (pods.clients[0].where, bed.nodes[1]):
        bed.reach(where, pods.servers, ips["ipv4"])
        bed.reach(where, pods.servers, web.ip())
    web.edit(allocateLoadBalancerNodePorts=True)
    bed.reach(CLIENT, pods.servers, bed.node_ip(bed.nodes[0]), web.node_port())


@families
def test_source_ranges(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str], family: str) -> None:
    """should only allow access from service loadbalancer source ranges (A29)"""
    allowed, denied = pods.clients[0], pods.clients[1]
    length = 128 if family == "ipv6" else 32
    external = bed.new_ips()
    web = balanced(loadBalancerSourceRanges=[f"{allowed.ips[family]}/{length}"], externalIPs=list(external.values()))
    web.endpoints(*pods.servers)
    bed.reach(allowed.where, pods.servers, ips[family])
    bed.drop(denied.where, ips[family])
    with bed.route(ips[family], bed.nodes[0]):
        bed.drop(CLIENT, ips[family])
    # Nothing but the load balancer's address is concerned.
    bed.reach(denied.where, pods.servers, web.ip(family))
    bed.reach(denied.where, pods.servers, external[family])
    bed.reach(CLIENT, pods.servers, bed.node_ip(bed.nodes[0], family), web.node_port())
    web.edit(loadBalancerSourceRanges=[f"{denied.ips[family]}/{length}"])
    bed.reach(denied.where, pods.servers, ips[family])
    bed.drop(allowed.where, ips[family])
    web.edit(loadBalancerSourceRanges=None)
    bed.reach(allowed.where, pods.servers, ips[family])


def test_source_ranges_of_both_families(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str]) -> None:
    """A30: each family has its own list, none of a family allows all of it; /0 allows all; spaces do not matter."""
    one, two = pods.clients[:2]
    web = balanced(loadBalancerSourceRanges=[f" {one.ips['ipv4']}/32 "])
    web.endpoints(*pods.servers)
    bed.reach(one.where, pods.servers, ips["ipv4"])
    bed.drop(two.where, ips["ipv4"])
    bed.reach(two.where, pods.servers, ips["ipv6"])
    web.edit(loadBalancerSourceRanges=[f"{one.ips['ipv4']}/32", "0.0.0.0/0", f"{one.ips['ipv6']}/128"])
    bed.reach(two.where, pods.servers, ips["ipv4"])
    bed.drop(two.where, ips["ipv6"])
    bed.reach(one.where, pods.servers, ips["ipv6"])


def test_source_ranges_and_nodes(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str]) -> None:
    """A30: a node is a client as any other, allowed where a range has its address."""
    web = balanced(loadBalancerSourceRanges=[f"{bed.node_ip(bed.nodes[0])}/32"])
    web.endpoints(*pods.servers)
    bed.reach(bed.nodes[0], pods.servers, ips["ipv4"])
    bed.drop(pods.clients[0].where, ips["ipv4"])


def test_source_ranges_of_a_shared_address(
    bed: Testbed, pods: Pods, balanced: Make, service: Make, ips: dict[str, str]
) -> None:
    """A51: two Services share an address; what one of them forbids is nothing to the other."""
    one = balanced(loadBalancerSourceRanges=["203.0.113.0/24", "2001:db8:ffff::/48"])
    two = service(type="LoadBalancer", ports=[with_port(HTTP, port=8080, targetPort=80), UDP])
    two.ingress(*ips.values())
    one.endpoints(pods.servers[0])
    two.endpoints(pods.servers[1])
    client = pods.clients[0].where
    for ip in ips.values():
        bed.reach(client, pods.servers[1:2], ip, 8080)
        bed.reach(client, pods.servers[1:2], ip, 80, udp=True)
        bed.drop(client, ip, 80)
    one.edit(loadBalancerSourceRanges=None)
    bed.reach(client, pods.servers[:1], ips["ipv4"], 80)
    two.delete()
    bed.fail(client, ips["ipv4"], 8080)
    bed.reach(client, pods.servers[:1], ips["ipv4"], 80)


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_session_affinity(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str], policy: str) -> None:
    """should have session affinity work / be able to switch session affinity for LoadBalancer service, ETP on / off"""
    web = balanced(sessionAffinity="ClientIP", externalTrafficPolicy=policy)
    here = [pods.servers[0], pods.second]
    web.endpoints(*pods.servers, pods.second)
    with bed.route(ips["ipv4"], bed.nodes[0]):
        eventually(lambda: len(bed.answering(CLIENT, ips["ipv4"], number=15)) == 1, "one pod answers one client")
        first = bed.answering(CLIENT, ips["ipv4"], number=15)
        assert bed.answering(CLIENT, ips["ipv4"], number=15) == first
        web.edit(sessionAffinity="None")
        bed.reach(CLIENT, here if policy == "Local" else [*pods.servers, pods.second], ips["ipv4"])
        web.edit(sessionAffinity="ClientIP")
        eventually(lambda: len(bed.answering(CLIENT, ips["ipv4"], number=15)) == 1, "one pod answers one client")


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_rolling_update(bed: Testbed, balanced: Make, start: Start, ips: dict[str, str], policy: str) -> None:
    """should not have connectivity disruption during rolling update with externalTrafficPolicy=Cluster / Local"""
    app = {"app": f"rolling-{policy.lower()}"}
    balanced(externalTrafficPolicy=policy, selector=app)

    def run() -> Pod:
        # The EndpointSlice controller may come late: it waits a second if its caches are old.
        return start(bed.nodes[0], labels=app, terminationGracePeriodSeconds=30)

    pod = run()
    with bed.route(ips["ipv4"], bed.nodes[0]):
        bed.reach(CLIENT, [pod], ips["ipv4"])
        with bed.steady(CLIENT, ips["ipv4"]) as failures:
            for _ in range(2):
                successor = run()
                bed.delete("pod", pod.name)
                pod = successor
                bed.reach(CLIENT, [pod], ips["ipv4"])
            time.sleep(0.3)
        assert failures == []


@contextmanager
def through(bed: Testbed, ip: str, node: int) -> Iterator[None]:
    with bed.route(ip, bed.nodes[node]):
        yield


@families
def test_local_policy(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str], family: str) -> None:
    """should work for type=LoadBalancer; should only target nodes with endpoints (externalTrafficPolicy Local, A10)"""
    web, ip = balanced(externalTrafficPolicy="Local"), ips[family]
    web.endpoints(pods.servers[0], pods.servers[2])
    for node in (0, 2):
        with through(bed, ip, node):
            bed.reach(CLIENT, [pods.servers[node]], ip, keeps_address=True)
    with through(bed, ip, 1):
        bed.drop(CLIENT, ip)


def test_local_policy_all_nodes(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str]) -> None:
    """should target all nodes with endpoints"""
    web, ip = balanced(externalTrafficPolicy="Local"), ips["ipv4"]
    for index in (1, 2):
        web.endpoints(pods.servers[index])
        for node in bed.nodes:
            with bed.route(ip, node):
                if node == pods.servers[index].node:
                    bed.reach(CLIENT, [pods.servers[index]], ip)
                else:
                    bed.drop(CLIENT, ip)


@families
def test_local_policy_from_pods(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str], family: str) -> None:
    """should work from pods (A11: they get to any endpoint, from any node, with their own address)"""
    external = bed.new_ips()
    web = balanced(externalTrafficPolicy="Local", externalIPs=list(external.values()))
    web.endpoints(pods.servers[0])
    for index in (0, 1):
        client, node = pods.clients[index], bed.nodes[index]
        ways = [(ips[family], 80), (external[family], 80), (bed.node_ip(node, family), web.node_port())]
        for host, port in ways:
            bed.reach(client.where, pods.servers[:1], host, port, keeps_address=True)
            bed.reach(node, pods.servers[:1], host, port)
    # Another node's node port is external traffic there.
    bed.drop(bed.nodes[0], bed.node_ip(bed.nodes[1], family), web.node_port())
    web.endpoints()
    bed.refuse(pods.clients[1].where, ips[family])


def test_no_local_endpoint_is_no_refusal(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str]) -> None:
    """A10, A14: dropped while there are endpoints elsewhere, refused when there are none at all."""
    web, ip = balanced(externalTrafficPolicy="Local"), ips["ipv4"]
    web.endpoints(pods.servers[0])
    with bed.route(ip, bed.nodes[1]):
        bed.drop(CLIENT, ip)
        web.endpoints()
        bed.refuse(CLIENT, ip)
        web.endpoints(pods.servers[1])
        bed.reach(CLIENT, pods.servers[1:2], ip)


def test_serving_terminating_and_affinity(bed: Testbed, pods: Pods, balanced: Make, ips: dict[str, str]) -> None:
    """A27: affinity does not hold a client to an endpoint that policy or readiness takes away."""
    web, ip = balanced(sessionAffinity="ClientIP", externalTrafficPolicy="Local"), ips["ipv4"]
    web.endpoints(pods.servers[0], pods.second)
    with bed.route(ip, bed.nodes[0]):
        eventually(lambda: len(bed.answering(CLIENT, ip)) == 1, "one pod answers")
        (held,) = bed.answering(CLIENT, ip)
        first, second = (
            (pods.servers[0], pods.second) if held == pods.servers[0].name else (pods.second, pods.servers[0])
        )
        web.endpoints(terminating(first), Endpoint(second))
        bed.reach(CLIENT, [second], ip)
