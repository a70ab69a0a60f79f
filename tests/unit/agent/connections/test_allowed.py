"""The connections of a farm that may go on, and the times at which others are looked for."""

import math
from typing import Any

import pytest

from kube_nftlb.agent.connections.allowed import GRACE_S, WATCH_S, AllowedConnections
from kube_nftlb.agent.model import NodeFarm, SentFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.values import Protocol
from kube_nftlb.netfilter.conntrack.entries import SCTP, TCP, UDP
from tests.builders import Grouped, farm, grouped_farm, raw_backend
from tests.fakes.conntrack import endpoint, entry

A, B = endpoint("10.244.1.2"), endpoint("10.244.1.3")
BOTH = [raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")]
VIP = endpoint("10.96.0.10", 80)


def udp(*ips: str, **spec: Any) -> NodeFarm:
    backends = [raw_backend(f"pod-{ip[-1]}", ip) for ip in ips]
    return node_farm(farm(**{"protocol": "UDP", "backends": backends, **spec}), NodeFacts("here"), None)


def cutting(**spec: Any) -> NodeFarm:
    return node_farm(farm(**{"onGone": "cut", "backends": BOTH, **spec}), NodeFacts("here"), None)


def served(*, protocol: Protocol = "UDP", scheduled: int = 1) -> SentFarm:
    return SentFarm("nftables", frozenset({Listener("10.96.0.10", protocol, 80)}), 1, scheduled)


@pytest.fixture
def known() -> AllowedConnections:
    """The farm was served for a while, with one endpoint."""
    allowed = AllowedConnections()
    allowed.changed("web", udp("10.244.1.2"), served(), 0)
    for now in range(WATCH_S + 1):
        assert allowed.take(now)
    assert allowed.next_due() == math.inf
    return allowed


# UDP.


def test_flows_of_a_backend_that_went_are_looked_for_now_and_a_moment_later(known: AllowedConnections) -> None:
    known.changed("web", udp("10.244.1.3"), served(), 100)
    for now in range(100, 100 + WATCH_S + 1):
        assert known.next_due() == now
        assert [(each.flows, each.untranslated) for each in known.take(now).values()] == [(frozenset({B}), True)]
        assert known.take(now + 0.5) == {}
    assert known.next_due() == math.inf


def test_nothing_is_looked_for_where_no_endpoint_changes(known: AllowedConnections) -> None:
    known.changed("web", udp("10.244.1.2", scheduler="weight"), served(), 100)
    assert known.next_due() == math.inf


def test_flows_from_before_anybody_served_them_may_not_go_on_for_a_while() -> None:
    for before in (None, served(scheduled=0), served()._replace(listeners=frozenset())):
        allowed = AllowedConnections()
        allowed.changed("web", udp("10.244.1.2"), before, 0)
        allowed.changed("web", udp("10.244.1.3"), served(), 1)
        assert [each.untranslated for now in range(1, 4) for each in allowed.take(now).values()] == [False] * 3
        allowed.check("web", 10)
        assert [each.untranslated for each in allowed.take(10).values()] == [True]


def test_where_nothing_is_translated_no_flow_waits_for_it() -> None:
    allowed = AllowedConnections()
    allowed.changed("web", udp(mode="local"), None, 0)
    assert all(each.untranslated for each in allowed.take(0).values())


NODE_IP = "192.0.2.1"
AT_NODE = [{"ip": NODE_IP, "ports": "8080"}]
NODE_PORT = [{"type": "NodePort", "ports": "8080"}]


@pytest.mark.parametrize(
    ("addresses", "was_there", "reason"),
    [
        pytest.param(AT_NODE, True, "BackendGone", id="it was there"),
        pytest.param(NODE_PORT, False, "BackendGone", id="it went before the agent began"),
        pytest.param(AT_NODE, False, None, id="none was there"),
    ],
)
def test_flows_that_stay_at_a_listener_end_with_the_endpoint_there(
    addresses: list[dict[str, Any]], was_there: bool, reason: str | None
) -> None:
    def seen(*ips: str) -> NodeFarm:
        backends = [raw_backend(f"pod-{ip[-1]}", ip) for ip in ips]
        facts = NodeFacts("here", port_ips={"ipv4": (NODE_IP,)})
        return node_farm(farm(protocol="UDP", addresses=addresses, backends=backends), facts, None)

    before = SentFarm("nftables", frozenset(seen().listeners), 1, 1)
    own = endpoint(NODE_IP)
    flow = entry(own, server=own, protocol=UDP, translated=False)
    allowed = AllowedConnections()
    if was_there:
        allowed.changed("web", seen(NODE_IP, "10.244.1.2"), None, 0)
        assert [each.reason(flow) for each in allowed.take(0).values()] == [None], "also of a farm that has begun"
        allowed.changed("web", seen(NODE_IP), before, 10)
        assert [each.reason(flow) for each in allowed.take(10).values()] == [None]
    for now, ips in ((20, ["10.244.1.2"]), (30, ["10.244.1.3"])):
        allowed.changed("web", seen(*ips), before, now)
        (each,) = allowed.take(now).values()
        assert (each.reason(flow), each.concerns_translated) == (reason, reason is None)


@pytest.mark.parametrize(
    ("addresses", "spec"),
    [
        pytest.param([{"ip": NODE_IP, "ports": "80", "type": "LoadBalancer"}], {}, id="an address that is no node's"),
        pytest.param(NODE_PORT, {"intraConnect": False}, id="a farm that is not for the node's own programs"),
    ],
)
def test_flows_that_are_not_for_endpoints_go_on(addresses: list[dict[str, Any]], spec: dict[str, Any]) -> None:
    facts = NodeFacts("here", port_ips={"ipv4": (NODE_IP,)})
    seen = node_farm(farm(protocol="UDP", addresses=addresses, backends=BOTH, **spec), facts, None)
    allowed = AllowedConnections()
    allowed.changed("web", seen, SentFarm("nftables", frozenset(seen.listeners), 1, 1), 0)
    (each,) = allowed.take(0).values()
    own = endpoint(NODE_IP)
    assert (each.reason(entry(own, server=own, protocol=UDP, translated=False)), each.concerns_translated) == (
        None,
        True,
    )


def test_looks_for_connections_to_cut_are_for_translated_ones_alone() -> None:
    facts = NodeFacts("here", port_ips={"ipv4": (NODE_IP,)})
    seen = node_farm(farm(onGone="cut", addresses=NODE_PORT, backends=BOTH), facts, None)
    allowed = AllowedConnections()
    allowed.changed("web", seen, None, 0)
    assert all(each.concerns_translated for each in allowed.take(0).values())


def test_flows_to_what_is_closed_may_not_go_on(known: AllowedConnections) -> None:
    known.changed("web", None, served(), 100)
    assert [(target, each.flows) for target, each in known.take(100).items()] == [((VIP[0], UDP, 80), frozenset())]


def test_of_a_listener_that_passes_to_another_farm_the_flows_to_its_endpoints_may_go_on() -> None:
    allowed = AllowedConnections()
    allowed.changed("heir", udp("10.244.1.2"), None, 0)
    allowed.changed("web", None, served(), 0)
    assert [each.flows for each in allowed.take(0).values()] == [{A}], "the later one counts"


@pytest.mark.parametrize("order", [("heir", "web"), ("web", "heir")])
def test_flows_to_the_endpoints_of_a_new_farm_go_on_whenever_it_changes(
    known: AllowedConnections, order: tuple[str, str]
) -> None:
    for name in order:
        known.changed(name, udp("10.244.1.2") if name == "heir" else None, served() if name == "web" else None, 100)
    known.take(100)
    known.changed("heir", udp("10.244.1.3"), served(), 100.5)
    known.take(100.5)
    assert known.next_due() == 101
    assert [each.flows for each in known.take(101).values()] == [{B}]


WHOLE: dict[str, Any] = {
    "protocol": "All",
    "addresses": [{"ip": "10.96.0.10"}],
    "backends": [raw_backend("a", "10.244.1.2", None)],
}
WHOLE_SERVED = served()._replace(listeners=frozenset({Listener("10.96.0.10", "All", 0)}))


@pytest.mark.parametrize(
    ("before", "spec"),
    [
        pytest.param(served(), {}, id="as before"),
        pytest.param(served(), WHOLE, id="the whole address of a port"),
        pytest.param(WHOLE_SERVED, {}, id="a port of a whole address"),
    ],
)
def test_flows_that_began_since_a_farm_was_made_anew_go_on(before: SentFarm, spec: dict[str, Any]) -> None:
    allowed = AllowedConnections()
    allowed.changed("web", None, before, 100)
    allowed.take(100)
    allowed.changed("web", udp("10.244.1.2", **spec), None, 100.7)
    for now in (100.7, 101, 101.7, 102, 102.7):
        assert allowed.next_due() <= now
        taken = allowed.take(now)
        decides = taken.get((VIP[0], UDP, 80)) or taken[VIP[0], UDP, 0]
        assert [decides.reason(entry(each, protocol=UDP)) for each in (A, B)] == [None, "BackendGone"]


@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        ({"forZones": ["b"]}, True),
        ({"priority": 9}, True),
        ({"nodeName": "elsewhere"}, True),
        ({"ready": False, "terminating": True}, True),
        ({"state": "drain"}, True),
        ({"ready": False, "terminating": True, "state": "drain"}, True),
        ({"ready": False, "serving": False}, False),
        ({"state": "off"}, False),
        ({"state": "down"}, False),
    ],
)
def test_flows_may_go_on_to_all_that_serve_also_without_new_ones(state: dict[str, Any], is_kept: bool) -> None:
    backends = [{**BOTH[0], "nodeName": "here", "forZones": ["a"]}, {**BOTH[1], "forZones": ["a"], **state}]
    made = farm(protocol="UDP", trafficPolicy="Local", backends=backends)
    allowed = AllowedConnections()
    allowed.changed("web", node_farm(made, NodeFacts("here", "a"), None), None, 0)
    assert [each.flows for each in allowed.take(0).values()] == [frozenset({A, B} if is_kept else {A})]


@pytest.mark.parametrize(("state", "is_kept"), [("up", True), ("drain", True), ("off", False), ("down", False)])
def test_the_state_of_a_farm_and_a_group_without_weight_end_flows(state: str, is_kept: bool) -> None:
    made = grouped_farm(
        groups={"a": Grouped(1, ["10.244.1.2"]), "b": Grouped(0, ["10.244.1.3"])}, protocol="UDP", state=state
    )
    allowed = AllowedConnections()
    allowed.changed("web", node_farm(made, NodeFacts("here"), None), None, 0)
    assert {each.flows for each in allowed.take(0).values()} == {frozenset({A} if is_kept else ())}


def test_only_known_farms_can_be_looked_at_once_more(known: AllowedConnections) -> None:
    known.check("other", 100)
    assert known.next_due() == math.inf
    known.check("web", 100)
    assert [each.flows for each in known.take(100).values()] == [{A}]
    assert known.next_due() == math.inf


# Backends that are down.


def test_connections_of_tcp_go_on_but_to_backends_that_are_down() -> None:
    allowed = AllowedConnections()
    allowed.changed("web", udp("10.244.1.2", protocol="TCP"), None, 0)
    assert allowed.next_due() == math.inf
    down = [{**BOTH[0], "state": "down"}, BOTH[1]]
    allowed.changed("web", udp(protocol="TCP", backends=down), served(protocol="TCP"), 0)
    taken = allowed.take(0)
    assert taken.keys() == {(VIP[0], protocol, 80) for protocol in (TCP,)}
    assert [taken[VIP[0], TCP, 80].reason(entry(each)) for each in (A, B)] == ["BackendDown", None]


# onGone: cut.


@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        ({}, True),
        ({"ready": False}, True),
        ({"ready": False, "terminating": True}, True),
        ({"state": "off"}, True),
        ({"priority": 9}, True),
        ({"nodeName": "elsewhere"}, True),
        ({"ready": False, "serving": False}, False),
        ({"ready": False, "serving": False, "terminating": True}, False),
    ],
)
def test_connections_may_go_on_to_what_is_ready_or_serving(state: dict[str, Any], is_kept: bool) -> None:
    allowed = AllowedConnections()
    allowed.changed("web", cutting(trafficPolicy="Local", backends=[BOTH[0], {**BOTH[1], **state}]), None, 0)
    (each,) = allowed.take(GRACE_S).values()
    assert each.connections == frozenset({A, B} if is_kept else {A})


@pytest.mark.parametrize(("protocol", "is_cut"), [("TCP", True), ("UDP", False), ("SCTP", False), ("All", True)])
def test_only_connections_over_tcp_are_cut(protocol: Protocol, is_cut: bool) -> None:
    allowed = AllowedConnections()
    ports = {} if protocol == "All" else {"ports": "80"}
    wanted = cutting(protocol=protocol, addresses=[{"ip": "10.96.0.10", **ports}], backends=[])
    allowed.changed("web", wanted, None, 0)
    taken = allowed.take(GRACE_S)
    reasons = {
        number: each.reason(entry(A, protocol=number))
        for number in (TCP, UDP, SCTP)
        for each in [taken.get((VIP[0], number, (ports and 80) or 0))]
        if each is not None
    }
    assert (reasons.get(TCP) == "EndpointGone") == is_cut
    assert reasons.get(SCTP) is None


def test_an_endpoint_is_gone_after_a_second_and_not_if_it_comes_back() -> None:
    allowed = AllowedConnections()
    allowed.changed("web", cutting(), None, 0)
    assert len(allowed.take(GRACE_S)) == 1
    assert allowed.next_due() == math.inf
    allowed.changed("web", cutting(backends=BOTH[:1]), served(protocol="TCP"), 10)
    allowed.changed("web", cutting(backends=BOTH[1:]), served(protocol="TCP"), 10.9)
    assert allowed.next_due() == 10 + GRACE_S
    assert allowed.take(10.5) == {}
    # The one is back, and the other has just left.
    assert [each.connections for each in allowed.take(11.0).values()] == [frozenset({A, B})]
    assert [each.connections for each in allowed.take(allowed.next_due()).values()] == [frozenset({B})]
    assert allowed.next_due() == math.inf


def test_what_changes_nothing_about_endpoints_or_listeners_needs_no_look() -> None:
    allowed, before = AllowedConnections(), served(protocol="TCP")
    allowed.changed("web", cutting(), None, 0)
    allowed.take(GRACE_S)
    allowed.changed("web", cutting(scheduler="weight"), before, 5)
    allowed.changed("web", cutting(backends=[*BOTH, raw_backend("c", "10.244.1.4")]), before, 5)
    assert allowed.next_due() == math.inf
    allowed.changed("web", cutting(addresses=[{"ip": "10.96.0.10", "ports": "80,81"}]), before, 5)
    assert allowed.next_due() == 5 + GRACE_S


@pytest.mark.parametrize("farm_", [None, cutting(onGone="keep")])
def test_a_farm_that_goes_or_keeps_connections_is_not_looked_at(farm_: NodeFarm | None) -> None:
    allowed = AllowedConnections()
    allowed.changed("web", cutting(), None, 0)
    allowed.changed("web", farm_, served(protocol="TCP"), 0)
    assert (allowed.next_due(), allowed.take(60)) == (math.inf, {})


def test_what_could_not_be_done_is_done_again() -> None:
    allowed = AllowedConnections()
    allowed.changed("web", cutting(), None, 0)
    allowed.take(GRACE_S)
    allowed.again({"web", "gone"}, 7)
    assert allowed.next_due() == 7
    assert len(allowed.take(7)) == 1
    assert allowed.next_due() == math.inf


def test_also_the_last_look_for_what_is_closed_is_done_again(known: AllowedConnections) -> None:
    known.changed("web", None, served(), 100)
    for now in (100, 101, 102):
        known.take(now)
    assert known.next_due() == math.inf
    known.again({"web"}, 103)
    assert known.next_due() == 103
    assert known.take(103).keys() == {(VIP[0], UDP, 80)}
    assert (known.next_due(), known.take(104)) == (math.inf, {})
    known.again({"web"}, 105)
    assert known.next_due() == math.inf, "it is forgotten once another look has begun"


def test_flows_from_before_anybody_served_them_may_not_go_on_if_the_last_look_is_done_again() -> None:
    allowed = AllowedConnections()
    allowed.changed("web", udp("10.244.1.2"), None, 0)
    for now in range(WATCH_S + 1):
        allowed.take(now)
    allowed.again({"web"}, 7)
    assert [each.untranslated for each in allowed.take(7).values()] == [False]
    allowed.changed("web", udp("10.244.1.3"), served(), 100)
    assert [each.untranslated for each in allowed.take(100).values()] == [True]
