"""The requirements of Kubernetes' dual_stack.go; its granular checks are those of test_networking.py with ipv6."""

from collections.abc import Callable

import pytest

from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.testbed import CLIENT, Service, Testbed

Make = Callable[..., Service]


@pytest.mark.parametrize(
    ("policy", "families"),
    [
        ("SingleStack", None),
        ("SingleStack", ["IPv4"]),
        ("SingleStack", ["IPv6"]),
        ("RequireDualStack", ["IPv4", "IPv6"]),
        ("RequireDualStack", ["IPv6", "IPv4"]),
    ],
    ids=["cluster-default", "ipv4", "ipv6", "ipv4-ipv6", "ipv6-ipv4"],
)
def test_families(bed: Testbed, pods: Pods, service: Make, policy: str, families: list[str] | None) -> None:
    """should create service with cluster ip from primary service range / ipv4 / ipv6 / ipv4,v6 / ipv6,v4"""
    chosen = {"ipFamilies": families} if families else {}
    web = service(type="NodePort", ipFamilyPolicy=policy, **chosen).endpoints(*pods.servers)
    wanted = families or ["IPv4"]
    assert ["IPv6" if ":" in ip else "IPv4" for ip in web.ips] == wanted
    for family in ("IPv4", "IPv6"):
        node_ip = bed.node_ip(bed.nodes[0], family.lower())
        if family in wanted:
            for where in (pods.clients[0].where, bed.nodes[0]):
                bed.reach(where, pods.servers, web.ip(family.lower()))
            bed.reach(CLIENT, pods.servers, node_ip, web.node_port())
        else:
            bed.refuse(CLIENT, node_ip, web.node_port())  # by the node itself: nobody listens there


def test_second_family_comes_and_goes(bed: Testbed, pods: Pods, service: Make) -> None:
    """A39: an upgrade to two families and back leaves the first one undisturbed."""
    web, client = service(ipFamilyPolicy="SingleStack"), pods.clients[0].where
    web.endpoints(*pods.servers)
    bed.reach(client, pods.servers, web.ip())
    with bed.steady(client, web.ip()) as failures:
        web.edit(ipFamilyPolicy="PreferDualStack")
        second = web.ip("ipv6")
        bed.reach(client, pods.servers, second)
        web.edit(ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"], clusterIPs=[web.ip()])
        bed.fail(client, second)
    assert failures == []


def test_external_ips_follow_the_families(bed: Testbed, pods: Pods, service: Make) -> None:
    """A39: no address of a family that the Service does not have, by externalIPs or load balancer."""
    external, balancer = bed.new_ips(), bed.new_ips()
    web = service(
        type="LoadBalancer", ipFamilyPolicy="SingleStack", ipFamilies=["IPv6"], externalIPs=list(external.values())
    )
    web.ingress(*balancer.values())
    web.endpoints(*pods.servers)
    for ips in (external, balancer):
        bed.reach(pods.clients[0].where, pods.servers, ips["ipv6"])
        bed.fail(pods.clients[0].where, ips["ipv4"])
