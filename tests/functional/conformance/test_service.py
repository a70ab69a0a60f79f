"""The requirements of Kubernetes' test/e2e/network/service.go; each docstring has the upstream name."""

import json
import ssl
import time
import urllib.request
from collections.abc import Callable
from functools import partial

import pytest

from lab import versions
from tests import engine
from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import HOST_PORT, Pods
from tests.functional.conformance.testbed import (
    CLIENT,
    FAMILIES,
    NAMESPACE,
    Endpoint,
    Pod,
    Service,
    Testbed,
    always,
    ports,
    terminating,
    unready,
    with_port,
)

Make = Callable[..., Service]
Start = Callable[..., Pod]

AFFINITY = {"sessionAffinity": "ClientIP"}
LOCAL = {"type": "NodePort", "externalTrafficPolicy": "Local"}
HTTP, UDP, HTTP2 = ports("http", "udp", "http2")


def everywhere(bed: Testbed, pods: Pods) -> list[str]:
    """A pod and the node itself, on the first node and on another."""
    return [pods.clients[0].where, pods.clients[2].where, bed.nodes[0], bed.nodes[2]]


def test_secure_master_service(bed: Testbed, pods: Pods) -> None:
    """should provide secure master service"""
    kubernetes = bed.get("service", "kubernetes", "default")
    assert [(port["name"], port["port"]) for port in kubernetes["spec"]["ports"]] == [("https", 443)]
    vip = kubernetes["spec"]["clusterIP"]
    tls = ssl.create_default_context(
        cafile=json.loads(bed.lab.kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority"]
    )

    def version(where: str) -> str:
        with bed.lab.inside(
            where, lambda: urllib.request.urlopen(f"https://{vip}/version", timeout=10, context=tls)
        ) as a:
            return str(json.load(a)["minor"])

    for where in everywhere(bed, pods):
        assert version(where) == str(versions.of(None).minor)


def test_basic_endpoint_from_pods(bed: Testbed, pods: Pods, service: Make, start: Start) -> None:
    """should serve a basic endpoint from pods"""
    web = service(selector={"app": "basic"})
    for ip in web.ips:
        bed.refuse(pods.clients[0].where, ip)
    one = start(bed.nodes[0], labels={"app": "basic"})
    two = start(bed.nodes[1], labels={"app": "basic"})
    for ip in web.ips:
        bed.reach(pods.clients[0].where, [one, two], ip)
    bed.delete_now(one)
    for ip in web.ips:
        bed.reach(pods.clients[0].where, [two], ip)
    bed.delete_now(two)
    for ip in web.ips:
        bed.refuse(pods.clients[0].where, ip)


def test_multiport_endpoints_from_pods(bed: Testbed, pods: Pods, service: Make, start: Start) -> None:
    """should serve multiport endpoints from pods"""
    ways = [{"name": "one", "port": 80, "targetPort": "p1"}, {"name": "two", "port": 81, "targetPort": "p2"}]
    web = service(selector={"app": "multiport"}, ports=ways)
    one = start(bed.nodes[0], labels={"app": "multiport"}, ports=[{"name": "p1", "containerPort": 100}])
    two = start(bed.nodes[1], labels={"app": "multiport"}, ports=[{"name": "p2", "containerPort": 101}])
    for ip in web.ips:
        bed.reach(pods.clients[0].where, [one], ip, 80)
        bed.reach(pods.clients[0].where, [two], ip, 81)
    bed.delete_now(one)
    for ip in web.ips:
        bed.refuse(pods.clients[0].where, ip, 80)
        bed.reach(pods.clients[0].where, [two], ip, 81)


def test_ports_are_added_and_deleted(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be updated after adding or deleting ports"""
    web, client = service(ports=[HTTP]), pods.clients[0].where
    web.endpoints(pods.servers[0], ports=[HTTP, HTTP2])
    bed.reach(client, pods.servers[:1], web.ip())
    with bed.steady(client, web.ip()) as failures:
        web.edit(ports=[HTTP, with_port(HTTP2, port=8100)])
        bed.reach(client, pods.servers[:1], web.ip(), 8100)
        web.edit(ports=[HTTP, with_port(HTTP2, port=8101)])
        bed.reach(client, pods.servers[:1], web.ip(), 8101)
        bed.fail(client, web.ip(), 8100)
        web.edit(ports=[HTTP])
        bed.fail(client, web.ip(), 8101)
    assert failures == []


def test_a_port_is_renamed_and_changes_its_protocol(bed: Testbed, pods: Pods, service: Make) -> None:
    """A42, beyond upstream."""
    web, client = service(ports=[HTTP]), pods.clients[0].where
    web.endpoints(pods.servers[0], ports=[HTTP, with_port(HTTP, name="renamed"), UDP])
    bed.reach(client, pods.servers[:1], web.ip())
    with bed.steady(client, web.ip()) as failures:
        web.edit(ports=[with_port(HTTP, name="renamed")])
        time.sleep(0.5)
    assert failures == []
    web.edit(ports=[UDP])
    bed.reach(client, pods.servers[:1], web.ip(), udp=True)
    bed.fail(client, web.ip())


@pytest.mark.parametrize("family", FAMILIES)
def test_source_pod_ip_is_preserved(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should preserve source pod IP for traffic thru service cluster IP"""
    web = service(ports=ports("http", "udp")).endpoints(pods.servers[0])
    for client in (pods.clients[0], pods.clients[1]):
        for udp in (False, True):
            bed.reach(client.where, pods.servers[:1], web.ip(family), udp=udp, keeps_address=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_hairpin(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should allow pods to hairpin back to themselves through services"""
    web = service(ports=ports("http", "udp")).endpoints(pods.servers[0])
    for udp in (False, True):
        # Otherwise the pod would answer itself directly, past the node that has to translate back.
        bed.reach(pods.servers[0].where, pods.servers[:1], web.ip(family), udp=udp, is_masqueraded=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_hairpin_by_every_frontend(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """A31: the node port, an external IP and the load balancer's IP, with both traffic policies."""
    external, balancer = bed.new_ips(), bed.new_ips()
    web = service(type="LoadBalancer", externalIPs=list(external.values()))
    web.ingress(*balancer.values())
    web.endpoints(pods.servers[0])
    for policy in ("Cluster", "Local"):
        web.edit(externalTrafficPolicy=policy)
        for host, port in (
            (external[family], 80),
            (balancer[family], 80),
            (bed.node_ip(bed.nodes[0], family), web.node_port()),
        ):
            bed.reach(pods.servers[0].where, pods.servers[:1], host, port, is_masqueraded=True)


def test_services_go_up_and_down(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be able to up and down services"""
    one, two = service(), service()
    for each in (one, two):
        each.endpoints(*pods.servers)
        for where in everywhere(bed, pods):
            bed.reach(where, pods.servers, each.ip())
    with bed.steady(pods.clients[0].where, two.ip()) as failures:
        one.delete()
        bed.fail(pods.clients[0].where, one.ip())
        bed.fail(bed.nodes[0], one.ip())
        three = service().endpoints(*pods.servers[:2])
        bed.reach(bed.nodes[0], pods.servers[:2], three.ip())
    assert failures == []


def test_recreated_service(bed: Testbed, pods: Pods, service: Make) -> None:
    """should work after the service has been recreated"""
    first = service().endpoints(*pods.servers)
    bed.reach(pods.clients[0].where, pods.servers, first.ip())
    first.delete()
    bed.fail(pods.clients[0].where, first.ip())
    second = service(name=first.name, clusterIP=first.ip()).endpoints(*pods.servers)
    for ip in second.ips:
        bed.reach(pods.clients[0].where, pods.servers, ip)


@pytest.mark.parametrize("family", FAMILIES)
def test_node_port(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should be able to create a functioning NodePort service"""
    web = service(type="NodePort", ports=ports("http", "udp")).endpoints(*pods.servers)
    for node in bed.nodes:
        ip = bed.node_ip(node, family)
        bed.reach(CLIENT, pods.servers, ip, web.node_port())
        bed.reach(CLIENT, pods.servers, ip, web.node_port("udp"), udp=True)
        bed.reach(pods.clients[0].where, pods.servers, ip, web.node_port())
        bed.reach(bed.nodes[0], pods.servers, ip, web.node_port())
    bed.reach(pods.clients[0].where, pods.servers, web.ip(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_external_ip_of_no_node(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should be possible to connect to a service via ExternalIP when the external IP is not assigned to a node"""
    ips = bed.new_ips()
    web = service(externalIPs=[ips["ipv4"], ips["ipv6"]]).endpoints(*pods.servers)
    for where in everywhere(bed, pods):
        bed.reach(where, pods.servers, ips[family])
    with bed.route(ips[family], bed.nodes[1]):
        bed.reach(CLIENT, pods.servers, ips[family])
    web.edit(externalIPs=[])
    bed.fail(pods.clients[0].where, ips[family])
    bed.reach(pods.clients[0].where, pods.servers, web.ip(family))


def test_external_ip_and_traffic_policy(bed: Testbed, pods: Pods, service: Make) -> None:
    """A6: an external IP is external traffic; one of a family that the Service does not have is ignored."""
    ips = bed.new_ips()
    web = service(type="NodePort", externalIPs=list(ips.values()), ipFamilyPolicy="SingleStack")
    web.endpoints(pods.servers[0])
    web.edit(externalTrafficPolicy="Local")
    with bed.route(ips["ipv4"], bed.nodes[0]):
        bed.reach(CLIENT, pods.servers[:1], ips["ipv4"], keeps_address=True)
    with bed.route(ips["ipv4"], bed.nodes[1]):
        bed.drop(CLIENT, ips["ipv4"])
    bed.fail(pods.clients[0].where, ips["ipv6"])


def test_node_port_of_several_protocols(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be able to update service type to NodePort listening on same port number but different protocols"""
    web = service(ports=[HTTP]).endpoints(*pods.servers, ports=[HTTP, UDP])
    bed.reach(pods.clients[0].where, pods.servers, web.ip())
    web.edit(type="NodePort")
    number, ip = web.node_port(), bed.node_ip(bed.nodes[1])
    bed.reach(CLIENT, pods.servers, ip, number)
    web.edit(ports=[with_port(HTTP, nodePort=number), with_port(UDP, nodePort=number)])
    bed.reach(CLIENT, pods.servers, ip, number, udp=True)
    bed.reach(CLIENT, pods.servers, ip, number)


def test_external_name_becomes_cluster_ip(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be able to change the type from ExternalName to ClusterIP"""
    web = service(type="ExternalName", externalName="example.com")
    web.edit(type="ClusterIP", externalName=None, ports=[HTTP], ipFamilyPolicy="PreferDualStack")
    web.endpoints(*pods.servers)
    for ip in web.ips:
        bed.reach(pods.clients[0].where, pods.servers, ip)


def test_external_name_becomes_node_port(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be able to change the type from ExternalName to NodePort"""
    web = service(type="ExternalName", externalName="example.com")
    web.edit(type="NodePort", externalName=None, ports=[HTTP], ipFamilyPolicy="PreferDualStack")
    web.endpoints(*pods.servers)
    bed.reach(pods.clients[0].where, pods.servers, web.ip())
    bed.reach(CLIENT, pods.servers, bed.node_ip(bed.nodes[0]), web.node_port())


NAME_ONLY = {"type": "ExternalName", "externalName": "example.com", "clusterIP": None, "clusterIPs": None}
NO_FAMILY = {"ipFamilies": None, "ipFamilyPolicy": None, "internalTrafficPolicy": None}


def test_cluster_ip_becomes_external_name(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be able to change the type from ClusterIP to ExternalName"""
    web = service().endpoints(*pods.servers)
    ips = web.ips
    for ip in ips:
        bed.reach(pods.clients[0].where, pods.servers, ip)
    web.edit(**NAME_ONLY, **NO_FAMILY)
    for ip in ips:
        bed.fail(pods.clients[0].where, ip)


def test_node_port_becomes_external_name(bed: Testbed, pods: Pods, service: Make) -> None:
    """should be able to change the type from NodePort to ExternalName"""
    web = service(type="NodePort").endpoints(*pods.servers)
    vip, number, node_ip = web.ip(), web.node_port(), bed.node_ip(bed.nodes[0])
    bed.reach(CLIENT, pods.servers, node_ip, number)
    web.edit(**NAME_ONLY, **NO_FAMILY, externalTrafficPolicy=None, ports=None)
    bed.refuse(CLIENT, node_ip, number)  # by the node itself: nobody listens there
    bed.fail(pods.clients[0].where, vip)


def test_cluster_ip_goes_on_while_the_type_changes(bed: Testbed, pods: Pods, service: Make) -> None:
    """A2, A41: ClusterIP, NodePort, LoadBalancer and back."""
    ips, client = bed.new_ips(), pods.clients[0].where
    web = service().endpoints(*pods.servers)
    bed.reach(client, pods.servers, web.ip())
    with bed.steady(client, web.ip()) as failures:
        web.edit(type="NodePort")
        number = web.node_port()
        bed.reach(CLIENT, pods.servers, bed.node_ip(bed.nodes[0]), number)
        web.edit(type="LoadBalancer")
        web.ingress(ips["ipv4"])
        bed.reach(client, pods.servers, ips["ipv4"])
        bed.reach(CLIENT, pods.servers, bed.node_ip(bed.nodes[0]), number)
        web.edit(type="ClusterIP", ports=[HTTP])
        bed.refuse(CLIENT, bed.node_ip(bed.nodes[0]), number)
        bed.fail(client, ips["ipv4"])
    assert failures == []


def test_unready_pods_are_published(bed: Testbed, pods: Pods, service: Make, start: Start) -> None:
    """should create endpoints for unready pods"""
    web = service(selector={"app": "unready"}, publishNotReadyAddresses=True)
    pod = start(bed.nodes[1], labels={"app": "unready"}, terminationGracePeriodSeconds=30)
    bed.reach(pods.clients[0].where, [pod], web.ip())
    bed.lab.pod(False, pod.where)
    assert always(lambda: bed.answering(pods.clients[0].where, web.ip(), number=1) == {pod.name}, 0.5)
    web.edit(publishNotReadyAddresses=False)
    bed.refuse(pods.clients[0].where, web.ip())
    web.edit(publishNotReadyAddresses=True)
    bed.reach(pods.clients[0].where, [pod], web.ip())
    bed.delete("pod", pod.name)
    assert always(lambda: bed.answering(pods.clients[0].where, web.ip(), number=1) == {pod.name}, 0.5)


@pytest.mark.parametrize("published", [True, False])
def test_terminating_and_unready_endpoints(
    bed: Testbed, pods: Pods, service: Make, start: Start, published: bool
) -> None:
    """should (not) be able to connect to terminating and unready endpoints if PublishNotReadyAddresses is true/false"""
    web = service(type="NodePort", selector={"app": f"t-{published}"}, publishNotReadyAddresses=published)
    pod = start(bed.nodes[0], labels={"app": f"t-{published}"}, terminationGracePeriodSeconds=30)
    bed.reach(pods.clients[1].where, [pod], web.ip())
    bed.lab.pod(False, pod.where)
    bed.delete("pod", pod.name)
    ways = ((pods.clients[1].where, web.ip(), 80), (CLIENT, bed.node_ip(bed.nodes[0]), web.node_port()))
    for where, host, port in ways:
        if published:
            bed.reach(where, [pod], host, port)
        else:
            bed.refuse(where, host, port)
    assert bed.get("pod", pod.name)["metadata"]["deletionTimestamp"]


def frontend(bed: Testbed, web: Service, kind: str, family: str = "ipv4") -> tuple[str, int]:
    """The address of a Service: its cluster IP, or its node port on the second node."""
    return (web.ip(family), 80) if kind == "ClusterIP" else (bed.node_ip(bed.nodes[1], family), web.node_port())


def held(bed: Testbed, where: str, host: str, port: int) -> str | None:
    """The one pod that answers many connections, if it is one."""
    answering = bed.answering(where, host, port, 15)
    return answering.pop() if len(answering) == 1 else None


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort"])
@pytest.mark.parametrize("family", FAMILIES)
def test_session_affinity(bed: Testbed, pods: Pods, service: Make, kind: str, family: str) -> None:
    """should have session affinity work for service with type clusterIP / for NodePort service"""
    web = service(type=kind, **AFFINITY).endpoints(*pods.servers, pods.second)
    host, port = frontend(bed, web, kind, family)
    eventually(lambda: held(bed, pods.clients[0].where, host, port) is not None, "one pod answers one client")
    one = held(bed, pods.clients[0].where, host, port)
    assert held(bed, pods.clients[0].where, host, port) == one


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort"])
def test_session_affinity_timeout(bed: Testbed, pods: Pods, service: Make, kind: str) -> None:
    """should have session affinity timeout work for service with type clusterIP / for NodePort service"""
    web = service(type=kind, **AFFINITY, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 1}})
    web.endpoints(*pods.servers, pods.second)
    host, port = frontend(bed, web, kind)
    client = pods.clients[0].where
    eventually(lambda: held(bed, client, host, port) is not None, "one pod answers one client")
    seen = set[str]()

    def moved() -> bool:
        time.sleep(1.2)
        seen.update(bed.answering(client, host, port, 1))
        return len(seen) > 1

    eventually(moved, "a client that was silent for longer is sent elsewhere")


def test_session_affinity_is_renewed_by_new_connections(bed: Testbed, pods: Pods, service: Make) -> None:
    """A27: the time runs from the last new connection."""
    web = service(**AFFINITY, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 2}})
    web.endpoints(*pods.servers, pods.second)
    client = pods.clients[0].where
    eventually(lambda: held(bed, client, web.ip(), 80) is not None, "one pod answers one client")
    seen = set[str]()
    for _ in range(4):
        seen |= bed.answering(client, web.ip(), number=1)
        time.sleep(0.8)
    assert len(seen) == 1, "in all for longer than the timeout"


def test_session_affinity_is_not_renewed_by_an_open_connection(bed: Testbed, pods: Pods, service: Make) -> None:
    """A27: packets of a connection that is open do not count, however many there are."""
    web = service(**AFFINITY, sessionAffinityConfig={"clientIP": {"timeoutSeconds": 1}})
    web.endpoints(*pods.servers, pods.second)
    client = pods.clients[0].where
    eventually(lambda: held(bed, client, web.ip(), 80) is not None, "one pod answers one client")
    busy = bed.connect(client, web.ip())
    pod = busy.ask().pod
    seen = set[str]()

    def moved() -> bool:
        until = time.monotonic() + 1.4
        while time.monotonic() < until:
            assert busy.ask().pod == pod
            time.sleep(0.1)
        seen.update(bed.answering(client, web.ip(), number=1))
        return bool(seen - {pod})

    eventually(moved, "a client without new connections for longer is sent elsewhere")
    assert busy.ask().pod == pod


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort"])
def test_session_affinity_is_switched(bed: Testbed, pods: Pods, service: Make, kind: str) -> None:
    """should be able to switch session affinity for service with type clusterIP / for NodePort service"""
    web, client = service(type=kind), pods.clients[0].where
    web.endpoints(*pods.servers)
    host, port = frontend(bed, web, kind)
    bed.reach(client, pods.servers, host, port)
    connection = bed.connect(client, host, port)
    before = connection.ask()
    web.edit(**AFFINITY)
    eventually(lambda: held(bed, client, host, port) is not None, "one pod answers one client")
    assert connection.ask() == before, "A28: an open connection is left alone"
    web.edit(sessionAffinity="None")
    bed.reach(client, pods.servers, host, port)
    assert connection.ask() == before
    connection.close()


def test_session_affinity_is_shared_by_the_frontends_of_a_port(bed: Testbed, pods: Pods, service: Make) -> None:
    """A26: by client and port of the Service, whatever its way in; another client may be held elsewhere."""
    ips = bed.new_ips()
    web = service(type="NodePort", externalIPs=[ips["ipv4"]], **AFFINITY).endpoints(*pods.servers, pods.second)
    client = pods.clients[0].where
    eventually(lambda: held(bed, client, web.ip(), 80) is not None, "one pod answers one client")
    one = held(bed, client, web.ip(), 80)
    assert held(bed, client, ips["ipv4"], 80) == one
    assert held(bed, client, bed.node_ip(bed.nodes[0]), web.node_port()) == one


def test_session_affinity_ends_with_its_endpoint(bed: Testbed, pods: Pods, service: Make) -> None:
    """A27: a client that was held to an endpoint that is gone is sent to another at once, and held to that."""
    web, client = service(**AFFINITY), pods.clients[0].where
    web.endpoints(*pods.servers)
    eventually(lambda: held(bed, client, web.ip(), 80) is not None, "one pod answers one client")
    one = held(bed, client, web.ip(), 80)
    web.endpoints(*(pod for pod in pods.servers if pod.name != one))
    eventually(lambda: held(bed, client, web.ip(), 80) not in (None, one), "it is held to another")


def test_service_proxy_name(bed: Testbed, pods: Pods, service: Make) -> None:
    """should implement service.kubernetes.io/service-proxy-name"""
    label = "service.kubernetes.io/service-proxy-name"
    client = pods.clients[0].where
    other, web, never = service(), service(), service(labels={label: "somebody-else"})
    for each in (other, web, never):
        each.endpoints(*pods.servers)
        bed.reach(client, pods.servers, each.ip()) if each is not never else None
    with bed.steady(client, other.ip()) as failures:
        bed.fail(client, never.ip())
        web.label(**{label: "somebody-else"})
        bed.fail(client, web.ip())
        bed.fail(bed.nodes[0], web.ip())
        web.label(**{label: None})
        bed.reach(client, pods.servers, web.ip())
    assert failures == []


def test_headless_label(bed: Testbed, pods: Pods, service: Make) -> None:
    """should implement service.kubernetes.io/headless"""
    client, headless = pods.clients[0].where, {"service.kubernetes.io/headless": ""}
    web = service(labels=headless).endpoints(*pods.servers)
    bed.reach(client, pods.servers, web.ip())
    bed.patch("endpointslice", f"{web.name}-a-ipv4", {"metadata": {"labels": headless}})
    bed.fail(client, web.ip())
    bed.fail(bed.nodes[0], web.ip())


@pytest.mark.parametrize("family", FAMILIES)
def test_rejected_when_no_endpoints_exist(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should be rejected when no endpoints exist (A14: by every frontend, for TCP and UDP, from everywhere)"""
    external, balancer = bed.new_ips(), bed.new_ips()
    web = service(type="LoadBalancer", ports=ports("http", "udp"), externalIPs=list(external.values()))
    web.ingress(*balancer.values())
    frontends = [
        (web.ip(family), 80, 80),
        (external[family], 80, 80),
        (balancer[family], 80, 80),
        (bed.node_ip(bed.nodes[0], family), web.node_port(), web.node_port("udp")),
    ]
    checks = [
        partial(bed.refuse, where, host, udp if is_udp else tcp, udp=is_udp)
        for where in (pods.clients[0].where, bed.nodes[0], CLIENT)
        for host, tcp, udp in frontends
        for is_udp in (False, True)
    ]
    bed.together(*checks)


def test_rejected_for_evicted_pods(bed: Testbed, pods: Pods, service: Make, start: Start) -> None:
    """should be rejected for evicted pods (no endpoints exist)"""
    web = service(selector={"app": "evicted"})
    pod = start(bed.nodes[1], labels={"app": "evicted"})
    bed.reach(pods.clients[0].where, [pod], web.ip())
    conditions = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
    status = {"phase": "Failed", "reason": "Evicted", "conditions": conditions}
    bed.patch("pod", pod.name, {"status": status}, subresource="status")
    for where in (pods.clients[0].where, bed.nodes[0]):
        bed.refuse(where, web.ip())


@pytest.mark.parametrize("family", FAMILIES)
def test_internal_traffic_policy_local_pod_to_pod(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should respect internalTrafficPolicy=Local Pod to Pod"""
    web = service(internalTrafficPolicy="Local").endpoints(pods.servers[0])
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip(family))
    bed.drop(pods.clients[1].where, web.ip(family))  # A12
    web.endpoints()
    bed.refuse(pods.clients[1].where, web.ip(family))


def test_internal_traffic_policy_local_host_network_to_pod(bed: Testbed, pods: Pods, service: Make) -> None:
    """should respect internalTrafficPolicy=Local Pod (hostNetwork: true) to Pod"""
    web = service(internalTrafficPolicy="Local").endpoints(pods.servers[0])
    bed.reach(pods.hosts[0].where, pods.servers[:1], web.ip())
    bed.drop(pods.hosts[1].where, web.ip())


def test_internal_traffic_policy_local_to_host_network(bed: Testbed, pods: Pods, service: Make) -> None:
    """should respect internalTrafficPolicy=Local Pod and Node, to Pod (hostNetwork: true)"""
    web = service(internalTrafficPolicy="Local", ports=[with_port(HTTP, targetPort=HOST_PORT)]).endpoints(pods.hosts[0])
    for where in (pods.clients[0].where, bed.nodes[0]):
        bed.reach(where, pods.hosts[:1], web.ip())
    for where in (pods.clients[1].where, bed.nodes[1]):
        bed.drop(where, web.ip())


def test_internal_policy_is_of_the_cluster_ip_alone(bed: Testbed, pods: Pods, service: Make) -> None:
    """A12, A13: each of the policies is about its own frontends."""
    ips, client = bed.new_ips(), pods.clients[1].where
    web = service(type="NodePort", internalTrafficPolicy="Local", externalIPs=[ips["ipv4"]]).endpoints(pods.servers[0])
    bed.drop(client, web.ip())
    bed.reach(client, pods.servers[:1], ips["ipv4"])
    bed.reach(CLIENT, pods.servers[:1], bed.node_ip(bed.nodes[1]), web.node_port())
    web.edit(internalTrafficPolicy="Cluster", externalTrafficPolicy="Local")
    bed.reach(client, pods.servers[:1], web.ip())
    bed.drop(CLIENT, bed.node_ip(bed.nodes[1]), web.node_port())
    web.edit(internalTrafficPolicy="Local")
    bed.drop(client, web.ip())
    bed.drop(CLIENT, bed.node_ip(bed.nodes[1]), web.node_port())
    bed.reach(CLIENT, pods.servers[:1], bed.node_ip(bed.nodes[0]), web.node_port())


@pytest.mark.parametrize("family", FAMILIES)
def test_external_traffic_policy_local_node_port(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """should support externalTrafficPolicy=Local for type=NodePort"""
    web = service(**LOCAL, ports=ports("http", "udp")).endpoints(pods.servers[0])
    for udp, name in ((False, "http"), (True, "udp")):
        here, there = bed.node_ip(bed.nodes[0], family), bed.node_ip(bed.nodes[1], family)
        bed.reach(CLIENT, pods.servers[:1], here, web.node_port(name), udp=udp, keeps_address=True)
        bed.drop(CLIENT, there, web.node_port(name), udp=udp)  # A10


def test_masquerade_of_external_traffic(bed: Testbed, pods: Pods, service: Make) -> None:
    """A9: with the policy Cluster it is always masqueraded."""
    web = service(type="NodePort").endpoints(pods.servers[0])
    for node, where in ((0, CLIENT), (1, CLIENT), (0, pods.clients[1].where)):
        bed.reach(where, pods.servers[:1], bed.node_ip(bed.nodes[node]), web.node_port(), is_masqueraded=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_masquerade_of_cluster_ip_traffic(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """A32: from outside the cluster it is masqueraded, from a pod it is not."""
    web = service().endpoints(pods.servers[1])
    with bed.route(web.ip(family), bed.nodes[0]):
        bed.reach(CLIENT, pods.servers[1:2], web.ip(family), is_masqueraded=True)
    bed.reach(pods.clients[0].where, pods.servers[1:2], web.ip(family), keeps_address=True)


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_fallback_to_terminating_endpoints_internal(bed: Testbed, pods: Pods, service: Make, policy: str) -> None:
    """should fallback to (local) terminating endpoints when there are no ready endpoints with internalTrafficPolicy"""
    web = service(internalTrafficPolicy=policy)
    web.endpoints(pods.servers[0], terminating(pods.servers[1]), unready(pods.servers[2]))
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip())
    if policy == "Local":  # A19: ready ones elsewhere do not matter
        bed.reach(pods.clients[1].where, pods.servers[1:2], web.ip())
    web.endpoints(terminating(pods.servers[0]), terminating(pods.second, serving=False), unready(pods.servers[2]))
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip())
    if policy == "Local":
        bed.drop(pods.clients[1].where, web.ip())
    else:
        bed.reach(pods.clients[1].where, pods.servers[:1], web.ip())
    web.endpoints(unready(pods.servers[0]))
    bed.refuse(pods.clients[0].where, web.ip())


@pytest.mark.parametrize("policy", ["Cluster", "Local"])
def test_fallback_to_terminating_endpoints_external(bed: Testbed, pods: Pods, service: Make, policy: str) -> None:
    """should fallback to (local) terminating endpoints when there are no ready endpoints with externalTrafficPolicy"""
    web = service(type="NodePort", externalTrafficPolicy=policy)
    web.endpoints(pods.servers[0], terminating(pods.servers[1]))
    here, there = (bed.node_ip(node) for node in bed.nodes[:2])
    bed.reach(CLIENT, pods.servers[:1], here, web.node_port())
    # A19: one node uses a terminating one for Local, and a ready one for Cluster.
    bed.reach(CLIENT, pods.servers[1:2] if policy == "Local" else pods.servers[:1], there, web.node_port())
    bed.reach(pods.clients[1].where, pods.servers[:1], web.ip())
    web.endpoints(terminating(pods.servers[0]), unready(pods.servers[2]))
    bed.reach(CLIENT, pods.servers[:1], here, web.node_port())
    if policy == "Local":
        bed.drop(CLIENT, there, web.node_port())
    else:
        bed.reach(CLIENT, pods.servers[:1], there, web.node_port())


def test_terminating_pod_goes_on_to_serve(bed: Testbed, pods: Pods, service: Make, start: Start) -> None:
    """The same with a pod that really terminates: no connection fails when the last pod is being deleted."""
    web = service(selector={"app": "last"})
    pod = start(bed.nodes[1], labels={"app": "last"}, terminationGracePeriodSeconds=30)
    bed.reach(pods.clients[0].where, [pod], web.ip())
    with bed.steady(pods.clients[0].where, web.ip()) as failures:
        bed.delete("pod", pod.name)
        time.sleep(0.5)
    assert failures == []


def test_blue_and_green(bed: Testbed, pods: Pods, service: Make, start: Start) -> None:
    """pod_lifecycle.go: should allow zero downtime when the selector is changed to pods that are ready already"""
    blue, green = (start(bed.nodes[0], labels={"color": color}) for color in ("blue", "green"))
    web = service(selector={"color": "blue"})
    bed.reach(pods.clients[0].where, [blue], web.ip())
    with bed.steady(pods.clients[0].where, web.ip()) as failures:
        web.edit(selector={"color": "green"})
        bed.reach(pods.clients[0].where, [green], web.ip())
    assert failures == []


def test_conditions_that_are_not_said(bed: Testbed, pods: Pods, service: Make) -> None:
    """A17: an endpoint without conditions is ready, and one that terminates serves until it is said not to."""
    web = service().endpoints(Endpoint(pods.servers[0], ready=None), unready(pods.servers[1]))
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip())
    web.endpoints(Endpoint(pods.servers[1], ready=False, terminating=True), unready(pods.servers[0]))
    bed.reach(pods.clients[0].where, pods.servers[1:2], web.ip())


@pytest.mark.parametrize(
    ("type_", "family"), [*(("ClusterIP", family) for family in FAMILIES), ("LoadBalancer", "ipv4")]
)
def test_same_port_and_different_protocols(bed: Testbed, pods: Pods, service: Make, type_: str, family: str) -> None:
    """should serve endpoints on same port and different protocols / for internal traffic on Type LoadBalancer"""
    web, client, ips = service(type=type_, ports=[HTTP, UDP]), pods.clients[0].where, bed.new_ips()
    hosts, of_tcp, of_udp = [web.ip(family)], pods.servers[:1], pods.servers[:1]
    if type_ == "ClusterIP":
        web.endpoints(*of_tcp, ports=[HTTP, UDP])
    else:
        web.ingress(*ips.values())
        hosts, of_udp = [*hosts, ips[family]], pods.servers[1:2]
        web.endpoints(*of_tcp, slice_name="tcp", ports=[HTTP])
        web.endpoints(*of_udp, slice_name="udp", ports=[UDP])
    for host in hosts:
        bed.reach(client, of_tcp, host)
        bed.reach(client, of_udp, host, udp=True)
    web.edit(ports=[UDP])
    for host in hosts:
        bed.reach(client, of_udp, host, udp=True)
        bed.fail(client, host)
    web.edit(ports=[HTTP])
    for host in hosts:
        bed.reach(client, of_tcp, host)
        bed.fail(client, host, udp=True)


def test_named_target_ports_of_different_numbers(bed: Testbed, pods: Pods, service: Make, start: Start) -> None:
    """should support named targetPorts that resolve to different ports on different endpoints"""
    web = service(selector={"app": "named"}, ports=[with_port(HTTP, targetPort="web")])

    def run(node: str, number: int) -> Pod:
        return start(node, labels={"app": "named"}, ports=[{"name": "web", "containerPort": number}])

    first = [run(bed.nodes[0], 8001), run(bed.nodes[1], 8002)]
    for ip in web.ips:
        bed.reach(pods.clients[0].where, first, ip)
    bed.delete_now(first[0])
    again = [run(bed.nodes[0], 8003), first[1]]
    bed.reach(pods.clients[0].where, again, web.ip())


def test_many_services_are_deleted_at_once(bed: Testbed, pods: Pods, service: Make) -> None:
    """should delete a collection of services"""
    mark = bed.new_name("doomed")
    doomed = [service(labels={"doomed": mark}) for _ in range(4)]
    stays = service()
    for each in (*doomed, stays):
        each.endpoints(*pods.servers)
    for each in (*doomed, stays):
        bed.reach(pods.clients[0].where, pods.servers, each.ip())
    with bed.steady(pods.clients[0].where, stays.ip()) as failures:
        bed.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/services?labelSelector=doomed={mark}")
        for each in doomed:
            bed.fail(pods.clients[0].where, each.ip())
    assert failures == []


def test_services_that_a_proxy_leaves_alone(bed: Testbed, pods: Pods, service: Make) -> None:
    """A3: a headless Service disturbs nobody, and its endpoints are reached as they are."""
    service(clusterIP="None").endpoints(pods.servers[0])
    other = service().endpoints(pods.servers[1])
    bed.reach(pods.clients[0].where, pods.servers[1:2], other.ip())
    bed.reach(pods.clients[0].where, pods.servers[:1], pods.servers[0].ips["ipv4"], keeps_address=True)


def test_wrong_port_of_a_service_ip(bed: Testbed, pods: Pods, service: Make) -> None:
    """A15: refused, not forwarded to wherever a default route leads."""
    if bed.proxy == "kube-proxy-iptables":
        pytest.skip("kube-proxy has no such rule in iptables mode")
    web = service().endpoints(pods.servers[0])
    for ip in web.ips:
        bed.reach(pods.clients[0].where, pods.servers[:1], ip)
        for where in (pods.clients[0].where, bed.nodes[0]):
            bed.refuse(where, ip, 4321)
            bed.refuse(where, ip, 4321, udp=True)


@pytest.mark.parametrize("ip", ["10.96.254.25", "fd00:96::fef"])
def test_unallocated_service_ip(bed: Testbed, pods: Pods, ip: str) -> None:
    """A16: kube-nftlb refuses connections to an address that no Service has, kube-proxy drops them."""
    # With the other engine it may run at the same time, and the host outside has both addresses.
    ip += str(engine.BOTH.index(engine.current()))
    if bed.proxy == "kube-proxy-iptables":
        pytest.skip("kube-proxy has no such rule in iptables mode")
    # Without a rule somebody outside would get them.
    with bed.outside_server(ip, 80, via=bed.nodes[0]):
        for where in (pods.clients[0].where, bed.nodes[0]):
            (bed.refuse if bed.proxy == "kube-nftlb" else bed.drop)(where, ip)


def test_existing_connections_outlive_changes(bed: Testbed, pods: Pods, service: Make) -> None:
    """A34: neither a change of rules nor the end of its endpoint breaks an open connection."""
    web, client = service(type="NodePort"), pods.clients[0].where
    web.endpoints(*pods.servers)
    bed.reach(client, pods.servers, web.ip())
    bed.reach(CLIENT, pods.servers, bed.node_ip(bed.nodes[1]), web.node_port())
    connections = [bed.connect(client, web.ip()) for _ in range(6)]
    connections += [bed.connect(CLIENT, bed.node_ip(bed.nodes[1]), web.node_port()) for _ in range(3)]
    before = [connection.ask() for connection in connections]
    web.endpoints(pods.second)
    bed.reach(client, [pods.second], web.ip())
    assert [connection.ask() for connection in connections] == before
    number = web.node_port()
    web.edit(type="ClusterIP", ports=[HTTP])
    bed.refuse(CLIENT, bed.node_ip(bed.nodes[1]), number)
    assert [connection.ask() for connection in connections] == before
    for connection in connections:
        connection.close()
