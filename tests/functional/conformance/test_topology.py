"""The requirements of Kubernetes' topology_hints.go and traffic_distribution.go. Zone a has nodes 1 and 2, b has 3."""

from collections.abc import Callable

import pytest

from tests.functional.cluster import eventually
from tests.functional.conformance.conftest import Pods
from tests.functional.conformance.testbed import CLIENT, FAMILIES, Endpoint, Pod, Service, Testbed, terminating, unready

Make = Callable[..., Service]
Start = Callable[..., Pod]

ZONES = ("a", "a", "b")


def hinted(pod: Pod, *zones: str) -> Endpoint:
    return Endpoint(pod, zones=zones)


def at_home(pods: Pods, *indexes: int) -> list[Endpoint]:
    """Endpoints that are hinted to their own zone."""
    return [hinted(pods.servers[index], ZONES[index]) for index in indexes]


def has_hints(bed: Testbed, service: Service) -> bool:
    slices = bed.get("endpointslice", labelSelector=f"kubernetes.io/service-name={service.name}")["items"]
    endpoints = [endpoint for each in slices for endpoint in each.get("endpoints") or []]
    return bool(endpoints) and all("hints" in endpoint for endpoint in endpoints)


def test_auto_hints(bed: Testbed, pods: Pods, service: Make, start: Start) -> None:
    """should distribute endpoints evenly (hints of the EndpointSlice controller, mode auto)"""
    web = service(selector={"app": "auto"})
    made = [start(node, labels={"app": "auto"}) for node in bed.nodes]
    bed.reach(pods.clients[0].where, made, web.ip())
    bed.patch("service", web.name, {"metadata": {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}}})
    eventually(lambda: has_hints(bed, web), "the controller gives hints")
    for family in FAMILIES:
        bed.reach(pods.clients[0].where, made[:2], web.ip(family))
        bed.reach(pods.clients[2].where, made[2:], web.ip(family))


@pytest.mark.parametrize("distribution", ["PreferClose", "PreferSameZone"])
def test_same_zone(bed: Testbed, pods: Pods, service: Make, start: Start, distribution: str) -> None:
    """should route traffic to an endpoint in the same zone when using PreferClose / PreferSameZone"""
    web = service(selector={"app": distribution.lower()}, trafficDistribution=distribution)
    one, three = (start(bed.nodes[index], labels={"app": distribution.lower()}) for index in (0, 2))
    eventually(lambda: has_hints(bed, web), "the controller gives hints")
    for family in FAMILIES:
        for client in pods.clients[:2]:  # on the endpoint's node, and on another node of the zone
            bed.reach(client.where, [one], web.ip(family))
        bed.reach(pods.clients[2].where, [three], web.ip(family))
    bed.reach(bed.nodes[1], [one], web.ip())


@pytest.mark.parametrize("family", FAMILIES)
def test_zone_without_endpoints(bed: Testbed, pods: Pods, service: Make, family: str) -> None:
    """... client in an endpoint-free zone reaches all"""
    web = service(trafficDistribution="PreferClose").endpoints(*at_home(pods, 0, 1))
    bed.reach(pods.clients[2].where, pods.servers[:2], web.ip(family))
    web.endpoints(*at_home(pods, 0, 2))
    bed.reach(pods.clients[2].where, pods.servers[2:], web.ip(family))
    bed.reach(pods.clients[1].where, pods.servers[:1], web.ip(family))


def test_hints_are_all_or_nothing(bed: Testbed, pods: Pods, service: Make) -> None:
    """A23: one ready endpoint without a hint and all hints are ignored; those of unready endpoints do not count."""
    web, client = service(), pods.clients[0].where
    web.endpoints(hinted(pods.servers[0], "a"), Endpoint(pods.servers[1]), hinted(pods.servers[2], "b"))
    bed.reach(client, pods.servers, web.ip())
    web.endpoints(hinted(pods.servers[0], "a"), unready(pods.servers[1]), hinted(pods.servers[2], "b"))
    bed.reach(client, pods.servers[:1], web.ip())
    gone = Endpoint(pods.servers[0], ready=False, serving=True, terminating=True, zones=("a",))
    web.endpoints(gone, hinted(pods.servers[1], "b"), hinted(pods.servers[2], "b"))
    bed.reach(client, pods.servers[1:], web.ip())
    web.endpoints(hinted(pods.servers[0], "b"), hinted(pods.servers[1], "a", "b"), hinted(pods.servers[2], "a"))
    bed.reach(client, pods.servers[1:], web.ip())


def test_hints_are_ignored_by_the_fallback(bed: Testbed, pods: Pods, service: Make) -> None:
    """A18: terminating endpoints are used wherever they are."""
    web = service()
    last = [terminating(pods.servers[0]), Endpoint(pods.servers[2], False, True, True, zones=("b",))]
    web.endpoints(*last)
    bed.reach(pods.clients[0].where, [pods.servers[0], pods.servers[2]], web.ip())


@pytest.mark.parametrize("family", FAMILIES)
def test_same_node(bed: Testbed, pods: Pods, service: Make, start: Start, family: str) -> None:
    """should route traffic to an endpoint on the same node or fall back to same zone when using PreferSameNode"""
    app = {"app": f"samenode-{family}"}
    web = service(selector=app, trafficDistribution="PreferSameNode")
    one, three = (start(bed.nodes[index], labels=app) for index in (0, 2))
    eventually(lambda: has_hints(bed, web), "the controller gives hints")
    bed.reach(pods.clients[0].where, [one], web.ip(family))
    bed.reach(pods.clients[1].where, [one], web.ip(family))
    bed.reach(pods.clients[2].where, [three], web.ip(family))
    two = start(bed.nodes[1], labels=app)
    bed.reach(pods.clients[1].where, [two], web.ip(family))
    bed.reach(pods.clients[0].where, [one], web.ip(family))


def test_same_node_failover(bed: Testbed, pods: Pods, service: Make) -> None:
    """should route traffic to an endpoint on another node when the local one dies, and back when it is there again"""
    web = service(trafficDistribution="PreferSameNode")

    def on_node(index: int) -> Endpoint:
        pod = pods.servers[index]
        return Endpoint(pod, zones=(ZONES[index],), nodes=(pod.node,))

    web.endpoints(on_node(0), on_node(1), on_node(2))
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip())
    web.endpoints(unready(pods.servers[0]), on_node(1), on_node(2))
    bed.reach(pods.clients[0].where, pods.servers[1:2], web.ip())
    web.endpoints(on_node(0), on_node(1), on_node(2))
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip())


def test_hints_and_policies(bed: Testbed, pods: Pods, service: Make) -> None:
    """A25: hints are for the policy Cluster, external traffic included; Local has only its own node."""
    web = service(type="NodePort", internalTrafficPolicy="Local")
    web.endpoints(hinted(pods.servers[0], "b"), hinted(pods.servers[2], "a"))
    bed.reach(pods.clients[0].where, pods.servers[:1], web.ip())
    number = web.node_port()
    bed.reach(CLIENT, pods.servers[2:], bed.node_ip(bed.nodes[0]), number)
    web.edit(externalTrafficPolicy="Local")
    bed.reach(CLIENT, pods.servers[:1], bed.node_ip(bed.nodes[0]), number)
