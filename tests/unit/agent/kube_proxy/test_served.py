"""What kube-proxy's rules serve is compared, address by address, with what the agent does."""

from collections.abc import Iterable
from typing import Any

import pytest

from kube_nftlb.agent.kube_proxy.served import Ours, Served, served, unserved
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.endpointslices.slices import ServiceKey, Slice, SliceEndpoint, SlicePort
from kube_nftlb.netfilter.destinations import Destination
from tests.builders.farms import raw_service_farm

WEB = ServiceKey("default", "web")
CHAIN = "service-ULMVA6XW-default/web/tcp/http"
VIP = Served("ipv4", "10.96.0.10", "TCP", 80, WEB)
NODE_PORT = Served("ipv4", None, "TCP", 30080, WEB)
NODE_IPS = ("192.0.2.1", "192.0.2.2")


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        (Destination("10.96.0.10", "TCP", 80, CHAIN), VIP),
        (Destination(None, "TCP", 30080, CHAIN.replace("service", "external")), NODE_PORT),
        (Destination("10.96.0.10", "TCP", 80, CHAIN.replace("service", "local")), VIP),
        (Destination("10.96.0.10", "TCP", 80, "KUBE-SVC-X", "default/web:http cluster IP"), VIP),
        (Destination("10.96.0.10", "TCP", 80, "KUBE-SVC-X", "default/web external IP"), VIP),
        (Destination(None, "TCP", 30080, "KUBE-EXT-X", "default/web"), NODE_PORT),
        (Destination("10.96.0.10", "TCP", 80, "KUBE-SVC-X"), VIP._replace(service=None)),
    ],
)
def test_rules_name_their_service(destination: Destination, expected: Served) -> None:
    assert list(served("ipv4", [destination])) == [expected]


def slices(*, ready: bool = True, serving: bool = True, terminating: bool = False) -> list[Slice]:
    found = SliceEndpoint("10.244.1.2", "pod-a", "node-1", ready, serving, terminating)
    return [Slice("default", "web-1", "web", "ipv4", (SlicePort("http", "TCP", 8080),), (found,), ())]


def farm(ip: str = "10.96.0.10", **spec: Any) -> Farm:
    return Farm.model_validate(raw_service_farm(addresses=[{"ip": ip, "ports": "80"}], **spec))


def with_node_port() -> Farm:
    return Farm.model_validate(raw_service_farm(addresses=[{"type": "NodePort", "ports": "30080"}]))


@pytest.mark.parametrize(
    ("why", "each", "listeners", "endpoints", "farms", "missing"),
    [
        ("no farm yet: an empty list proves nothing", VIP, [], slices(), [], True),
        ("an engine has it", VIP, [Listener("10.96.0.10", "TCP", 80)], slices(), [farm()], False),
        ("the farm is known, and not programmed", VIP, [], slices(), [farm()], True),
        ("the Service is gone", VIP, [], [], [], False),
        ("it has no endpoints that answer", VIP, [], slices(ready=False, serving=False), [], False),
        ("its last endpoint terminates", VIP, [], slices(ready=False, terminating=True), [], True),
        ("its farms do not ask for it", VIP, [], slices(), [farm("10.96.0.99")], False),
        ("only its farms of IPv6 are there", VIP, [], slices(), [farm("fd00::1", family="ipv6")], True),
        ("no Service is named", VIP._replace(service=None), [], [], [], True),
        ("the rule cannot be read", VIP._replace(port=0), [], [], [], False),
        ("the rule, and its Service, cannot be read", VIP._replace(port=0, service=None), [], [], [], True),
        ("a node port", NODE_PORT, [Listener(ip, "TCP", 30080) for ip in NODE_IPS], slices(), [], False),
        ("a node port on one address", NODE_PORT, [Listener(NODE_IPS[0], "TCP", 30080)], slices(), [], True),
        ("a node port that no farm asks for", NODE_PORT, [], slices(), [farm()], False),
        ("a node port that waits", NODE_PORT, [], slices(), [with_node_port()], True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rules_are_needed_until_something_else_serves(
    why: str, each: Served, listeners: list[Listener], endpoints: list[Slice], farms: Iterable[Farm], missing: bool
) -> None:
    ours = Ours(listeners.__contains__, {"ipv4": NODE_IPS}, lambda _: endpoints, lambda _: farms)
    assert unserved([each], ours) == [each] * missing, why


def test_node_ports_of_a_family_without_addresses_are_nobodys() -> None:
    of_ipv6 = [each._replace(family="ipv6") for each in slices()]
    served_there = NODE_PORT._replace(family="ipv6")
    farms = [Farm.model_validate(raw_service_farm(family="ipv6", addresses=[{"type": "NodePort", "ports": "30080"}]))]
    ours = Ours(lambda _: False, {"ipv4": NODE_IPS, "ipv6": ()}, lambda _: of_ipv6, lambda _: farms)
    assert unserved([served_there], ours) == []
