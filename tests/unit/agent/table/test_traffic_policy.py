"""A farm's elements in the agent's own table. The functional suite has where packets go by it."""

from ipaddress import ip_address
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftables.placement import place
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.netfilter.table_text import Contents
from kube_nftlb.nftlb import objects
from tests import views
from tests.builders import farm, raw_backend
from tests.views import View

HERE = NodeFacts("here", port_ips={"ipv4": ("172.31.0.11",)})
OWN = raw_backend("own", "10.244.1.2", nodeName="here")
OTHER = raw_backend("other", "10.244.2.2", nodeName="there", weight=2)
CLUSTER_IP = {"type": "ClusterIP", "ip": "10.96.0.10", "ports": "80"}
EXTERNAL = {"type": "ExternalIP", "ip": "203.0.113.9", "ports": "80"}
NODE_PORT = {"type": "NodePort", "ip": "", "ports": "30080"}


def view(present: objects.Farm | None = None, **changes: Any) -> View:
    return views.view(farm(**changes), present, HERE)


def verdicts(contents: Contents, name: str = "no-endpoints-ip") -> dict[str, str]:
    return {entry.key: entry.value for entry in contents.elements if entry.set == name}


def rules(contents: Contents, chain: str) -> tuple[str, ...]:
    return {each.name: each.rules for each in contents.chains}[chain]


def states(seen: View) -> dict[str, str]:
    return {backend.name: backend.state for backend in seen.farm.backends.values()}


def test_a_node_port_is_listened_on_at_the_nodes_own_addresses() -> None:
    seen = view(addresses=[CLUSTER_IP, NODE_PORT])
    listened = {(address.ip, address.ports) for address in seen.farm.addresses.values()}
    assert listened == {("10.96.0.10", "80"), ("172.31.0.11", "30080")}


@pytest.mark.parametrize(
    ("changes", "sets"),
    [
        pytest.param({}, set(), id="served for all"),
        pytest.param({"intraConnect": False}, {"not-from-node-ip"}, id="not for the node itself"),
        pytest.param({"mode": "local"}, {"not-from-node-ip", "answered-here-ip"}, id="the node answers"),
    ],
)
def test_where_untranslated_connections_are_let_through(changes: dict[str, Any], sets: set[str]) -> None:
    seen = view(**changes)
    assert {entry.set for entry in seen.after.elements} == {"listeners-ip", *sets}


@pytest.mark.parametrize(
    ("changes", "exempt"),
    [
        pytest.param({"backends": [OTHER, raw_backend("a", "172.31.0.11", 30080)]}, "172.31.0.11 . 30080", id="itself"),
        pytest.param({"backends": [raw_backend("a", "172.31.0.11", None)]}, "172.31.0.11 . 30080", id="all ports"),
        pytest.param({"backends": [raw_backend("a", "172.31.0.11", 30081)]}, "", id="another port"),
        pytest.param({"backends": [raw_backend("a", "172.31.0.11", 30080, ready=False)]}, "", id="not used"),
    ],
)
def test_at_an_endpoint_nobody_waits_for_a_translation(changes: dict[str, Any], exempt: str) -> None:
    seen = view(addresses=[CLUSTER_IP, NODE_PORT], **changes)
    both = {"tcp . 10.96.0.10 . 80", "tcp . 172.31.0.11 . 30080"}
    assert both - verdicts(seen.after, "listeners-ip").keys() == ({f"tcp . {exempt}"} if exempt else set())


def test_at_a_whole_address_that_is_an_endpoint_nobody_does_either() -> None:
    backends = [raw_backend("a", "172.31.0.11", None)]
    seen = view(protocol="All", addresses=[{"ip": "172.31.0.11"}], backends=backends)
    assert not verdicts(seen.after, "listeners-all-ip")


def test_without_a_backend_everything_is_refused() -> None:
    seen = view(addresses=[CLUSTER_IP, NODE_PORT], backends=[], trafficPolicy="Local")
    assert verdicts(seen.after) == {"tcp . 10.96.0.10 . 80": "goto refuse", "tcp . 172.31.0.11 . 30080": "goto refuse"}


def test_the_policy_local_leads_the_nodes_own_clients_to_all_backends() -> None:
    seen = view(addresses=[EXTERNAL], backends=[OWN, OTHER], trafficPolicy="Local")
    assert states(seen) == {"own": "up", "other": "off"}
    assert verdicts(seen.after) == {"tcp . 203.0.113.9 . 80": "goto local-clients-web--http"}
    assert rules(seen.after, "local-clients-web--http") == (
        "ip saddr @local-pods-ip goto schedule-web--http",
        "fib saddr type local goto schedule-web--http",
    )
    own, other = (seen.farm.backends[name].mark | 0x80000000 for name in ("own", "other"))
    slots = {rule for rule in rules(seen.after, "schedule-web--http") if "mod 3" in rule}
    assert slots
    assert all(f"{own:#x}" in rule and rule.count(f"{other:#x}") == 2 for rule in slots)


@pytest.mark.parametrize(
    ("weights", "numbers"), [((100, 100), 2), ((100, 50), 3), ((100, 99), 199), ((100,) * 1500, 1500)]
)
def test_weights_cost_the_rule_of_the_nodes_own_clients_few_numbers(weights: tuple[int, ...], numbers: int) -> None:
    own = raw_backend("own", "10.244.1.2", nodeName="here")
    others = [
        raw_backend(f"b{number}", f"10.245.{number // 250}.{number % 250 + 1}", nodeName="there", weight=weight)
        for number, weight in enumerate(weights[1:])
    ]
    seen = view(addresses=[EXTERNAL], backends=[own | {"weight": weights[0]}, *others], trafficPolicy="Local")
    (schedule,) = [rule for rule in rules(seen.after, "schedule-web--http") if "numgen" in rule]
    assert f"mod {numbers} " in schedule


def test_a_backend_that_nftlb_does_not_have_yet_is_chosen_only_afterwards() -> None:
    before = view(addresses=[EXTERNAL], backends=[OWN], trafficPolicy="Local").farm
    seen = view(before, addresses=[EXTERNAL], backends=[OWN, OTHER], trafficPolicy="Local")
    assert "mod 1 " in rules(seen.before, "schedule-web--http")[1]
    assert "mod 3 " in rules(seen.after, "schedule-web--http")[1]
    assert rules(seen.after, "schedule-web--http")[0] == "ct status dnat return", (
        "a flow without an answer keeps its mark"
    )


def test_local_without_a_backend_here_drops_clients_from_elsewhere() -> None:
    seen = view(addresses=[CLUSTER_IP, EXTERNAL], backends=[OTHER], trafficPolicy="Local")
    assert states(seen) == {"other": "up"}
    assert verdicts(seen.after) == {
        "tcp . 10.96.0.10 . 80": "drop",
        "tcp . 203.0.113.9 . 80": "goto local-clients-web--http",
    }
    assert rules(seen.after, "local-clients-web--http")[-1] == "drop"
    assert rules(seen.after, "local-clients-web--http")[0].endswith("return")


def test_with_persistence_a_client_keeps_the_backend_that_was_picked() -> None:
    seen = view(addresses=[EXTERNAL], backends=[OWN, OTHER], trafficPolicy="Local", persistence="srcip", persistTTL=7)
    (sticky,) = seen.after.sets
    assert (sticky.name, "flags dynamic" in sticky.declaration) == ("sticky-7-web--http", True)
    assert rules(seen.after, "schedule-web--http")[-1] == "update @sticky-7-web--http { ip saddr : ct mark }"


@pytest.mark.parametrize(
    ("changes", "who"),
    [
        pytest.param({"mode": "snat"}, {}, id="nftlb does it itself"),
        pytest.param({"masquerade": "Never"}, {}, id="never means never"),
        pytest.param({}, {"10.96.0.10 . 80": "from-outside", "203.0.113.9 . 80": "always"}, id="as kube-proxy"),
        pytest.param(
            {"trafficPolicy": "Local"},
            {"10.96.0.10 . 80": "from-outside", "203.0.113.9 . 80": "from-itself"},
            id="clients from outside are seen as they are",
        ),
    ],
)
def test_who_is_masqueraded(changes: dict[str, Any], who: dict[str, str]) -> None:
    asked = {"mode": "dnat", "masquerade": "AsNeeded", "addresses": [CLUSTER_IP, EXTERNAL], "backends": [OWN, OTHER]}
    seen = view(**{**asked, **changes})
    found = verdicts(seen.after, "masquerade-ip")
    told = {key.removeprefix("tcp . "): value.removeprefix("goto masquerade-") for key, value in found.items()}
    assert told == who
    assert [*verdicts(seen.after, "hairpin-ip")] == (["10.244.1.2 . 10.244.1.2"] if who else [])


@pytest.mark.parametrize(
    ("ranges", "allowed"),
    [
        ([], None),
        (["10.0.0.0/8", "10.1.0.0/16"], "10.0.0.0/8"),
        (["172.31.0.0/24"], "172.31.0.0/24, 198.51.100.7/32"),
    ],
)
def test_source_ranges_guard_their_address_alone(ranges: list[str], allowed: str | None) -> None:
    balancer = {"type": "LoadBalancer", "ip": "198.51.100.7", "ports": "80", "sourceRanges": ranges}
    seen = view(addresses=[CLUSTER_IP, balancer])
    if allowed is None:
        assert {entry.set for entry in seen.after.elements} == {"listeners-ip"}
        return
    chain = next(chain.name for chain in seen.after.chains if chain.name.startswith("source-ranges-"))
    assert chain.endswith("-web--http")
    assert verdicts(seen.after, "source-ranges-ip") == {"tcp . 198.51.100.7 . 80": f"jump {chain}"}
    assert rules(seen.after, chain) == (f"ip saddr {{ {allowed} }} return", "drop")


@pytest.mark.parametrize(
    ("backend", "reaches_itself"),
    [
        pytest.param({}, True, id="it may be on this node"),
        pytest.param({"nodeName": "there"}, False, id="it is on another"),
        pytest.param({"ready": False}, False, id="it is not used"),
    ],
)
def test_a_backend_whose_node_nobody_names_reaches_itself(backend: dict[str, Any], reaches_itself: bool) -> None:
    wanted = farm(mode="dnat", masquerade="AsNeeded", backends=[OWN, raw_backend("a", "10.244.3.2", **backend)])
    seen = views.view(wanted, facts=HERE)
    ips = ["10.244.1.2", "10.244.3.2"] if reaches_itself else ["10.244.1.2"]
    assert sorted(verdicts(seen.after, "hairpin-ip")) == [f"{ip} . {ip}" for ip in ips]
    assert place(node_farm(wanted, HERE, None), None, 1).hairpin == tuple(ip_address(ip).packed for ip in ips)


def test_a_pod_that_terminates_as_the_last_resort_reaches_itself() -> None:
    leaving = {**OWN, "ready": False, "serving": True, "terminating": True}
    asked: dict[str, Any] = {"mode": "dnat", "masquerade": "AsNeeded", "addresses": [CLUSTER_IP]}
    alone = view(**asked, backends=[leaving])
    assert [*verdicts(alone.after, "hairpin-ip")] == ["10.244.1.2 . 10.244.1.2"]
    beside = view(**asked, backends=[leaving, OTHER])
    assert [*verdicts(beside.after, "hairpin-ip")] == []
