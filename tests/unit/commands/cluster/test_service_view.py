"""The view of each node in ``get SERVICE``: the decisions of its agent."""

from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from kube_nftlb.commands.cluster.service_tree import FarmView, ServiceView, tree
from kube_nftlb.commands.cluster.service_view import view
from kube_nftlb.commands.view import ClusterView
from tests.builders import (
    endpoint,
    raw_farm,
    raw_nftlb_node,
    raw_node,
    raw_policy,
    raw_route_farm,
    raw_service_farm,
    raw_slice,
    service,
)

Json = dict[str, Any]

NODES = [raw_node(f"n{number}", addresses={"InternalIP": f"172.31.0.{number}"}) for number in (1, 2, 3)]
SLICE = raw_slice(
    endpoint("10.244.1.2", "a", node="n1"),
    endpoint("10.244.2.2", "b", node="n2"),
    endpoint("10.244.2.3", "c", node="n2", ready=False),
)


def shown(*farms: Json, reports: Sequence[Json] = (), rivals: Sequence[Json] = (), **fields: Any) -> ServiceView:
    return view(service(**fields), ClusterView(farms, NODES, reports, [SLICE], [raw_policy("known")], rivals))


def farm(*, reports: Sequence[Json] = (), **spec: Any) -> FarmView:
    (only,) = shown(raw_service_farm(**spec), reports=reports).farms
    return only


def nodes(seen: FarmView) -> dict[tuple[str, ...], tuple[str, dict[str, str]]]:
    return {each.nodes: (each.does, {b.name: b.gets for b in each.backends}) for each in seen.nodes}


def test_nodes_with_the_same_answer_are_shown_together() -> None:
    seen = farm()
    assert nodes(seen) == {("n1", "n2", "n3"): ("serves", {"a": "connections", "b": "connections"})}
    assert [(each.name, each.gets) for each in seen.unused] == [("c", "not ready")]


@pytest.mark.parametrize(
    ("condition", "watermarks", "waited_for"),
    [
        (("Programmed", "Pending"), ("9", "90"), ("n2",)),
        (("EndpointsProgrammed", "EndpointsPending"), ("10", "69"), ("n2",)),
        (("EndpointsProgrammed", "EndpointsPending"), ("10", "70"), ()),
        (("EndpointsProgrammed", "AllNodes"), ("9", "69"), ()),
    ],
)
def test_nodes_that_are_waited_for_are_marked(
    condition: tuple[str, str], watermarks: tuple[str, str], waited_for: tuple[str, ...]
) -> None:
    kind, reason = condition
    conditions = [{"type": kind, "status": "True" if reason == "AllNodes" else "False", "reason": reason}]
    reports = [raw_nftlb_node(name, watermark="10", slice_watermark="90") for name in ("n1", "n3")]
    reports.append(raw_nftlb_node("n2", watermark=watermarks[0], slice_watermark=watermarks[1]))
    raw = raw_service_farm(status={"resourceVersion": "10", "conditions": conditions})
    endpoints = raw_slice(endpoint("10.244.1.2", "a", node="n1"), version=70)
    other = raw_slice(endpoint("10.244.1.2", "a", node="n1"), name="other-1", service="other", version=99)
    (seen,) = view(service(), ClusterView([raw], NODES, reports, [endpoints, other])).farms
    does = {name: each.does for each in seen.nodes for name in each.nodes}
    late = "serves, once it has programmed the last change"
    assert does == {name: late if name in waited_for else "serves" for name in ("n1", "n2", "n3")}


def test_with_the_policy_local_each_node_has_its_own_answer() -> None:
    seen = farm(addresses=[{"ip": "10.96.0.10", "ports": "80"}], trafficPolicy="Local")
    here, elsewhere = "connections", "only clients on this node"
    assert nodes(seen) == {
        ("n1",): ("serves", {"a": here, "b": elsewhere}),
        ("n2",): ("serves", {"a": elsewhere, "b": here}),
        ("n3",): ("drops connections from outside: no backend of its own", {"a": here, "b": here}),
    }


def test_a_backend_that_drains_gets_no_new_clients() -> None:
    overrides = [{"pod": "a", "state": "drain"}, {"pod": "b", "state": "off"}]
    seen = farm(backendsFrom=[{"service": "web", "port": "http", "overrides": overrides}])
    assert nodes(seen) == {("n1", "n2", "n3"): ("refuses connections: no backend", {"a": "drains: no new clients"})}
    assert ("b", "state off") in [(each.name, each.gets) for each in seen.unused]


def test_standby_backends_say_so() -> None:
    overrides = [{"pod": "b", "priority": 5}]
    seen = farm(backendsFrom=[{"service": "web", "port": "http", "overrides": overrides}])
    assert ("b", "on standby: priority 5") in [(each.name, each.gets) for each in seen.unused]


def test_a_node_where_it_failed_says_why() -> None:
    failed = [{"namespace": "default", "name": "web--http", "reason": "Refused", "message": "nft says no"}]
    seen = farm(reports=[raw_nftlb_node("n2", failed=failed)])
    assert {names: does for names, (does, _) in nodes(seen).items()} == {
        ("n1", "n3"): "serves",
        ("n2",): "Refused: nft says no",
    }


@pytest.mark.parametrize(
    ("spec", "address", "who"),
    [
        ({}, {}, "all clients"),
        ({"sourceAddress": "10.0.0.9"}, {}, "all clients, as 10.0.0.9"),
        ({"mode": "dnat"}, {}, "nobody"),
        (
            {"mode": "dnat", "masquerade": "AsNeeded"},
            {},
            "all clients but the node's own pods, and pods that are their own backend",
        ),
        ({"mode": "dnat", "masquerade": "AsNeeded"}, {"type": "LoadBalancer"}, "all clients"),
        ({"mode": "dnat", "masquerade": "AsNeeded"}, {"type": "NodePort", "ip": "", "ports": "30080"}, "all clients"),
        (
            {"mode": "dnat", "masquerade": "AsNeeded", "trafficPolicy": "Local"},
            {"type": "ExternalIP"},
            "only the node's own processes, and pods that are their own backend",
        ),
    ],
)
def test_it_says_who_is_masqueraded(spec: Json, address: Json, who: str) -> None:
    seen = farm(**spec, addresses=[{"ip": "10.96.0.10", "ports": "80", **address}])
    assert [each.masqueraded for each in seen.addresses] == [who]


def test_it_says_who_is_admitted() -> None:
    ranges = [f"10.{number}.0.0/16" for number in range(5)]
    addresses = [{"ip": "10.96.0.10", "ports": "80", "sourceRanges": ranges, "policies": ["unknown"]}]
    (address,) = farm(addresses=addresses, policies=["known"]).addresses
    assert address.admitted == (
        "only 10.0.0.0/16, 10.1.0.0/16, 10.2.0.0/16 and 2 more ranges; "
        "policies known (denies 1 range), unknown (missing: nobody is admitted)"
    )


def test_farms_written_by_hand_that_refer_to_the_service_are_shown_too() -> None:
    by_hand = raw_farm("front", backends=[], backendsFrom=[{"service": "web", "port": "http"}])
    assert [each.name for each in shown(raw_service_farm(), by_hand, raw_farm("other")).farms] == ["front", "web--http"]


def test_a_farm_of_another_version_does_not_hide_the_rest() -> None:
    seen = shown(raw_service_farm(mode="quantum"), raw_service_farm("web--b"))
    assert [each.state.startswith("invalid: spec.mode") for each in seen.farms] == [False, True]


TWO_ADDRESSES = [{"ip": "10.96.0.10", "ports": "80"}, {"ip": "192.0.2.7", "ports": "80,443", "type": "ExternalIP"}]


def test_an_address_that_another_farm_has_is_not_served() -> None:
    thief = raw_farm("thief", owner="older", addresses=[{"ip": "192.0.2.7", "ports": "80,443"}])
    lost = {"type": "Accepted", "status": "True", "reason": "AddressConflict", "message": "default/thief has it"}
    (seen,) = shown(raw_service_farm(addresses=TWO_ADDRESSES, status={"conditions": [lost]}), thief).farms
    assert seen.state == "AddressConflict: default/thief has it"
    assert [(each.address, each.lost) for each in seen.addresses] == [
        ("10.96.0.10:80/TCP", ""),
        ("192.0.2.7:80,443/TCP", "default/thief has it"),
    ]
    assert {each.does for each in seen.nodes} == {"serves"}


def test_a_port_that_a_farm_of_another_namespace_has_is_not_served() -> None:
    rival = raw_farm("thief", namespace="shop", owner="older", addresses=[{"ip": "192.0.2.7", "ports": "443"}])
    raw = raw_service_farm(addresses=TWO_ADDRESSES)
    conflicting = ClusterView(nodes=NODES).may_conflict([raw])
    assert conflicting(rival)
    assert not conflicting(raw_farm("other", addresses=[{"ip": "192.0.2.8", "ports": "443"}]))
    (seen,) = shown(raw, rivals=[rival]).farms
    assert [(each.admitted, each.lost) for each in seen.addresses] == [
        ("all clients", ""),
        ("all clients", "shop/thief has port 443"),
    ]


def test_a_node_port_is_lost_where_its_address_is() -> None:
    thief = raw_farm("thief", owner="older", addresses=[{"ip": "172.31.0.2", "ports": "30080"}])
    node_port = raw_service_farm(addresses=[{"type": "NodePort", "ports": "30080"}], created="2026-06-01T00:00:00Z")
    (seen,) = shown(node_port, thief).farms
    assert [each.lost for each in seen.addresses] == ["default/thief has it on n2"]
    assert {each.nodes: each.does for each in seen.nodes} == {
        ("n1", "n3"): "serves",
        ("n2",): "does not serve it: other farms have its addresses",
    }


def test_the_tree_has_all_of_it() -> None:
    console = Console(width=160, no_color=True)
    with console.capture() as captured:
        console.print(tree(shown(raw_service_farm(trafficPolicy="Local"))))
    text = captured.get()
    assert "Service default/web  ClusterIP 10.96.0.10 http:80/TCP" in text
    assert "b 10.244.2.2:8080 on n2: connections" in text
    assert "not used by any node" in text
    assert "c 10.244.2.3:8080 on n2: not ready" in text


def test_names_are_not_taken_for_markup() -> None:
    console = Console(width=160, no_color=True)
    with console.capture() as captured:
        console.print(tree(ServiceView("a[red]b", "", "", (FarmView("f", "[bold]x", "no"),))))
    assert "a[red]b" in captured.get()
    assert "[bold]x" in captured.get()


def test_groups_are_shown_with_their_weights_and_backends() -> None:
    groups: list[Json] = [
        {"service": "web", "port": "http", "weight": 6},
        {"service": "gone", "port": "http", "weight": 3},
        {"refuse": True, "weight": 1},
    ]
    (seen,) = shown(raw_farm("front", backends=[], backendsFrom=groups)).farms
    assert "groups web 0.6, gone 0.3, refused 0.1" in seen.summary
    (everywhere,) = seen.nodes
    assert everywhere.does == "serves, and refuses 0.4 of connections: no backend in their group"
    assert [(each.group, each.name) for each in everywhere.backends] == [("web", "a"), ("web", "b")]
    assert [(each.group, each.name, each.gets) for each in seen.unused] == [("web", "c", "not ready")]
    groups[0]["weight"] = 0
    (seen,) = shown(raw_farm("front", backends=[], backendsFrom=groups)).farms
    assert {each.gets for each in seen.unused} == {"the weight of its group is 0"}


def test_farms_of_another_namespace_that_refer_to_a_service_are_shown_with_it() -> None:
    groups = [{"namespace": "default", "service": "web", "port": "http"}, {"service": "web", "port": "http"}]
    made = raw_route_farm("route--gate--tcp", namespace="edge", backendsFrom=groups)
    (seen,) = shown(made).farms
    assert seen.name == "edge/route--gate--tcp"
    assert "groups default/web 0.5, web 0.5" in seen.summary
    assert {each.group for each in seen.nodes[0].backends} == {"default/web"}
    assert not shown(raw_route_farm(namespace="edge")).farms
