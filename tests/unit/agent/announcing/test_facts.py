"""Who may hold an address, by pools, nodes and endpoints; and whether this node may, by its kernel."""

from typing import Any

import pytest

from kube_nftlb.agent.announcing.facts import Facts
from kube_nftlb.agent.announcing.nodes import NodeSeen
from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.agent.model import Version
from kube_nftlb.agent.sync.load_balancers import InKernel, LoadBalancers
from kube_nftlb.announce.bgp.earlier_routes import EarlierRoutes
from kube_nftlb.announce.bgp.routes import GOING_S, Metric, Route, Routes
from kube_nftlb.announce.bgp.routes import Address as RoutedAddress
from kube_nftlb.announce.ownership.gate import EXCLUDED, Blocker, Reason
from kube_nftlb.announce.ownership.interfaces import Interface
from kube_nftlb.api.address_pool import AddressPool
from kube_nftlb.api.bgp_peer import BGPPeer
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from tests.builders import farm, raw_route_farm
from tests.builders.pools import raw_judged, raw_pool

ME, VIP, SIX = "node-1", "192.0.2.10", "2001:db8::10"
WEB = FarmKey("default", "web--http")
ETH = Interface("eth0", "02:00:00:00:00:01", ("192.0.2.1/24", "2001:db8::1/64"))
NODES = {name: NodeSeen({"name": name}) for name in ("node-1", "node-2", "node-3")}
OLDER, YOUNGER = "2025-12-01T00:00:00Z", "2026-02-01T00:00:00Z"
SERVED = InKernel(Version("uid", 1), frozenset({VIP}), 1, 1)


def pool(
    name: str = "pool", ranges: tuple[str, ...] = ("192.0.2.0/28", "2001:db8::/120"), **announce: Any
) -> AddressPool:
    return AddressPool.model_validate({"metadata": {"name": name}, "spec": {"ranges": ranges, "announce": announce}})


def local_farm(*nodes: str, ip: str = VIP, **fields: Any) -> Any:
    backends = [{"name": node, "ip": f"10.244.{n}.2", "nodeName": node} for n, node in enumerate(nodes, 1)]
    addresses = [{"type": "LoadBalancer", "ip": ip, "ports": "80"}]
    return farm(owner="web", addresses=addresses, backends=backends, trafficPolicy="Local", **fields)


def facts(*, in_kernel: InKernel | None = SERVED, wants: Any = None, **known: Any) -> Facts:
    """A node whose kernel has the one farm of an address."""
    balancers = LoadBalancers()
    address = {"type": "LoadBalancer", "ip": VIP, "ports": "80"}
    balancers.planned(WEB, wants or farm(owner="web", addresses=[address]))
    balancers.verified(WEB, in_kernel)
    return Facts(
        ME,
        balancers,
        lambda _: Version("uid", 1),
        **{"pools": Pools([pool()]), "nodes": NODES, "interfaces": (ETH,), **known},
    )


def reason(found: Facts) -> Reason | None:
    blocker = found.addresses({})[VIP].why_not_announce
    return blocker.reason if blocker is not None else None


def test_an_address_that_is_served_may_be_announced_by_any_node() -> None:
    (address,) = facts().addresses({}).values()
    assert (address.link, address.mac) == ("eth0", ETH.mac)
    assert set(address.candidates) == set(NODES)
    assert address.why_not_announce is None
    assert address.why_not_keep is None


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, None),
        ({"in_kernel": None}, Reason.NOT_PROGRAMMED),
        ({"in_kernel": SERVED._replace(version=Version("uid", 0))}, Reason.NOT_PROGRAMMED),
        ({"in_kernel": SERVED._replace(version=Version("another", 1))}, Reason.NOT_PROGRAMMED),
        ({"in_kernel": SERVED._replace(ips=frozenset())}, Reason.NOT_PROGRAMMED),
        ({"in_kernel": SERVED._replace(reached=0)}, Reason.NO_ENDPOINT),
        ({"in_kernel": SERVED._replace(reached=0, serving=0)}, None),
        (
            {
                "in_kernel": SERVED._replace(reached=0, serving=0),
                "pools": Pools([pool(whenEmpty="withdraw")]),
            },
            Reason.NO_ENDPOINT,
        ),
        ({"interfaces": ()}, Reason.NO_LINK),
        ({"pools": Pools([pool(l2={"interfaces": ["bond*"]})])}, Reason.NO_LINK),
        ({"nodes": {**NODES, ME: NodeSeen({EXCLUDED: ""})}}, Reason.NODE_EXCLUDED),
        ({"nodes": {**NODES, ME: NodeSeen({}, "it is not ready")}}, Reason.NODE_LEAVES),
        ({"nodes": {}}, Reason.NODE_LEAVES),
        (
            {"pools": Pools([pool(l2={"nodeSelector": {"matchLabels": {"name": "node-2"}}})])},
            Reason.NOT_SELECTED,
        ),
    ],
)
def test_why_this_node_may_not_announce_an_address(known: dict[str, Any], expected: Reason | None) -> None:
    assert reason(facts(**known)) == expected


def test_nodes_that_leave_or_are_excluded_or_not_selected_are_no_candidates() -> None:
    nodes = {**NODES, "node-2": NodeSeen({}, "it drains"), "node-4": NodeSeen({EXCLUDED: ""})}
    assert set(facts(nodes=nodes).addresses({})[VIP].candidates) == {"node-1", "node-3"}
    selector = {"matchExpressions": [{"key": "name", "operator": "In", "values": ["node-2", "node-3"]}]}
    chosen = facts(pools=Pools([pool(l2={"nodeSelector": selector})]))
    assert set(chosen.addresses({})[VIP].candidates) == {"node-2", "node-3"}


def test_preferred_nodes_come_first() -> None:
    preferring = facts(pools=Pools([pool(l2={"prefer": {"matchLabels": {"name": "node-3"}}})]))
    assert preferring.addresses({})[VIP].candidates[0] == "node-3"
    assert preferring.addresses({VIP: "node-1"})[VIP].candidates[0] == "node-3"


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [(("node-2",), {"node-2"}), ((), set(NODES)), (("node-4",), set(NODES))],
    ids=["where it has endpoints", "anywhere without any", "anywhere if no node may"],
)
def test_with_traffic_policy_local_nodes_with_endpoints_are_candidates(
    endpoints: tuple[str, ...], expected: set[str]
) -> None:
    assert set(facts(wants=local_farm(*endpoints)).addresses({})[VIP].candidates) == expected


@pytest.mark.parametrize(
    ("namespace", "created", "endpoints", "expected"),
    [
        ("aaa", YOUNGER, ("node-3",), {"node-1", "node-2"}),
        ("aaa", YOUNGER, ("node-1",), {"node-1", "node-2"}),
        ("zzz", OLDER, ("node-3",), {"node-3"}),
        ("zzz", OLDER, ("node-4",), {"node-1", "node-2"}),
        ("zzz", OLDER, (), {"node-1", "node-2"}),
        ("default", YOUNGER, ("node-2", "node-3"), {"node-2"}),
        ("default", YOUNGER, ("node-3",), {"node-1", "node-2"}),
    ],
)
def test_with_traffic_policy_local_the_oldest_farm_of_an_address_decides_and_its_namespace(
    namespace: str, created: str, endpoints: tuple[str, ...], expected: set[str]
) -> None:
    found = facts(wants=local_farm("node-1", "node-2"), pools=Pools([pool(l2={}, bgp={})]))
    other = local_farm(*endpoints, namespace=namespace, created=created)
    found.load_balancers.planned(FarmKey(namespace, "a--http"), other)
    assert set(found.addresses({})[VIP].candidates) == expected
    assert routed(found).nodes == expected


@pytest.mark.parametrize(
    ("in_kernel", "expected"), [(SERVED, None), (None, Reason.NOT_PROGRAMMED)], ids=["the other is", "no other is"]
)
def test_a_farm_that_is_not_going_to_be_served_keeps_nobody_from_the_others_of_its_address(
    in_kernel: InKernel | None, expected: Reason | None
) -> None:
    found = facts(in_kernel=in_kernel)
    address = {"type": "LoadBalancer", "ip": VIP, "ports": "443"}
    other = farm("other--https", owner="other", addresses=[address])
    found.load_balancers.planned(FarmKey("default", "other--https"), other, served=False)
    assert reason(found) == expected
    found.load_balancers.planned(FarmKey("default", "other--https"), other)
    assert reason(found) is Reason.NOT_PROGRAMMED


@pytest.mark.parametrize("generation", [0, 1], ids=["a new one", "at an older generation"])
def test_a_route_that_a_node_leaves_as_it_is_keeps_it_from_no_address_that_other_routes_have(generation: int) -> None:
    found, other = facts(), FarmKey("aaa", "a--http")
    found.newest = lambda key: Version("uid", 2 if key == other else 1)
    spec: dict[str, Any] = {"namespace": "aaa", "addresses": [{"type": "LoadBalancer", "ip": VIP, "ports": "443"}]}
    route, service = Farm.model_validate(raw_route_farm("a--http", **spec)), farm("a--http", owner="a", **spec)
    for each, stays, expected in (
        (route, False, Reason.NOT_PROGRAMMED),
        (route, True, None),
        (service, True, Reason.NOT_PROGRAMMED),
    ):
        found.load_balancers.planned(other, each, stays=stays)
        found.load_balancers.verified(other, SERVED._replace(version=Version("uid", generation)))
        if not generation:
            found.load_balancers.changes({other: None})
        assert reason(found) == expected
    found.load_balancers.planned(other, route, stays=True)
    found.load_balancers.planned(WEB, route, stays=True)
    found.load_balancers.changes({WEB: None})
    assert (reason(found) is None) is bool(generation), "nothing but what the kernel has is announced"


def test_an_address_whose_only_farm_is_not_going_to_be_served_is_not_announced() -> None:
    found = facts(in_kernel=None)
    only = farm(owner="web", addresses=[{"type": "LoadBalancer", "ip": VIP, "ports": "80"}])
    found.load_balancers.planned(WEB, only, served=False)
    assert reason(found) is Reason.NOT_PROGRAMMED


def test_an_address_of_a_node_is_never_announced_nor_one_of_no_pool() -> None:
    assert facts(node_ips={VIP}).addresses({}) == {}
    assert facts(pools=Pools([pool(ranges=("198.51.100.0/24",))])).addresses({}) == {}


def test_an_address_that_an_interface_has_is_not_announced_on_a_segment_though_the_node_object_lacks_it() -> None:
    second = Interface("eth1", "02:00:00:00:00:02", (f"{VIP}/24",))
    (address,) = facts(interfaces=(ETH, second)).addresses({VIP: ME}).values()
    expected = Blocker(Reason.ADDRESS_IN_USE, "the interface eth1 of this node has the address")
    assert (address.why_not_announce, address.why_not_keep) == (expected, expected)
    assert routed(facts(pools=Pools([pool(bgp={})]), interfaces=(ETH, second))).why_not_announce is None


def test_nor_is_one_that_an_interface_has_on_which_nothing_is_announced() -> None:
    (address,) = facts(interfaces=(ETH, Interface("lo", "", (f"{VIP}/32",)))).addresses({VIP: ME}).values()
    expected = Blocker(Reason.ADDRESS_IN_USE, "the interface lo of this node has the address")
    assert (address.why_not_announce, address.why_not_keep) == (expected, expected)


def test_pools_have_ranges_of_both_kinds_and_families() -> None:
    found = Pools([pool("a", ("192.0.2.1-192.0.2.9",)), pool("b", ("192.0.2.0/24", "2001:db8::/64"))])
    names = {ip: each.metadata.name for ip in ("192.0.2.9", VIP, SIX) if (each := found.of(ip)) is not None}
    assert names == {"192.0.2.9": "a", VIP: "b", SIX: "b"}
    assert found.of("198.51.100.1") is None


def judged(generation: int = 1, seen: int = 1, status: str = "True", **spec: Any) -> AddressPool:
    """A pool that was judged when its generation was the one ``seen``."""
    raw = raw_pool("a", **{"ranges": ["192.0.2.0/28"], **spec})
    raw["metadata"]["generation"] = generation
    return AddressPool.model_validate(raw_judged(raw, seen, status))


def assignable(*states: AddressPool) -> list[str]:
    """What only Services can have after a pool has had these states."""
    pools = Pools()
    for each in states:
        pools = Pools([each], pools)
    return list(map(str, pools.assignable))


def test_only_services_can_have_the_addresses_of_accepted_pools_that_are_not_reserved() -> None:
    ranges = ["192.0.2.0/28", "2001:db8::1-2001:db8::1", "192.0.2.99-192.0.2.90"]
    accepted = judged(ranges=ranges, reserved=["192.0.2.7-192.0.2.7"])
    assert assignable(accepted) == ["192.0.2.0-192.0.2.6", "192.0.2.8-192.0.2.15", "2001:db8::1"]
    assert assignable(judged(status="False")) == []
    assert assignable(judged(2, 1)) == [], "nobody knows what was accepted"


def test_a_pool_that_has_changed_since_it_was_judged_keeps_of_its_addresses_what_was_accepted() -> None:
    wider = judged(2, 1, ranges=["192.0.2.0/27"])
    assert assignable(judged(), wider) == ["192.0.2.0-192.0.2.15"]
    assert assignable(judged(), wider, judged(3, 1, ranges=["192.0.2.8/29"])) == ["192.0.2.8-192.0.2.15"]
    assert assignable(judged(), judged(2, 1, reserved=["192.0.2.8/29"])) == ["192.0.2.0-192.0.2.7"]
    assert assignable(judged(), wider, judged(2, 2, ranges=["192.0.2.0/27"])) == ["192.0.2.0-192.0.2.31"]
    assert assignable(judged(), wider, judged(2, 2, "False", ranges=["192.0.2.0/27"])) == []


def test_a_node_goes_on_announcing_what_it_holds_when_the_pool_is_gone() -> None:
    found = facts(pools=Pools())
    assert found.addresses({}) == {}
    (address,) = found.addresses({VIP: "node-2"}).values()
    assert set(address.candidates) == set(NODES)
    assert address.why_not_keep is None


def test_of_pools_that_overlap_the_oldest_says_who_announces() -> None:
    created = {"younger": "2026-01-02T00:00:00Z", "a-younger": "2026-01-03T00:00:00Z", "older": "2026-01-01T00:00:00Z"}
    pools = [
        AddressPool.model_validate(
            {"metadata": {"name": name, "creationTimestamp": at}, "spec": {"ranges": ["192.0.2.0/28"]}}
        )
        for name, at in created.items()
    ]
    found = Pools(pools).of(VIP)
    assert found is not None
    assert found.metadata.name == "older"


def test_a_refused_pool_does_not_say_how_addresses_of_an_accepted_one_are_announced() -> None:
    old = {"ranges": ["192.0.2.0/24"], "announce": {"l2": {"interfaces": ["eth9"]}}}
    office = {"ranges": ["192.0.2.0/28"], "announce": {"bgp": {"aggregationLength": 28}}}
    refused = raw_judged(raw_pool("old", created="2026-01-01T00:00:00Z", **old), status="False")
    accepted = raw_judged(raw_pool("office", created="2026-01-02T00:00:00Z", **office))
    found = facts(pools=Pools(map(AddressPool.model_validate, (refused, accepted))))
    assert routed(found).prefix == "192.0.2.0/28"
    assert found.addresses({}) == {}
    changed = raw_judged(accepted, 0)
    assert routed(facts(pools=Pools(map(AddressPool.model_validate, (refused, changed))))).prefix == "192.0.2.0/28"
    alone = facts(pools=Pools([AddressPool.model_validate(refused)]))
    assert reason(alone) is Reason.NO_LINK, "Services keep the addresses of a pool that is refused"


def routed(found: Facts, announced: tuple[str, ...] = ()) -> RoutedAddress:
    return found.routes(announced)[VIP]


@pytest.mark.parametrize(
    ("announce", "on_segment", "by_bgp"),
    [({}, True, False), ({"l2": {}}, True, False), ({"bgp": {}}, False, True), ({"l2": {}, "bgp": {}}, True, True)],
)
def test_a_pool_says_how_its_addresses_are_announced(announce: Any, on_segment: bool, by_bgp: bool) -> None:
    found = facts(pools=Pools([pool(**announce)]))
    assert (VIP in found.addresses({}), VIP in found.routes(())) == (on_segment, by_bgp)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, None),
        ({"interfaces": ()}, None),
        ({"in_kernel": None}, Reason.NOT_PROGRAMMED),
        ({"in_kernel": SERVED._replace(reached=0)}, Reason.NO_ENDPOINT),
        ({"nodes": {**NODES, ME: NodeSeen({EXCLUDED: ""})}}, Reason.NODE_EXCLUDED),
        ({"nodes": {**NODES, ME: NodeSeen({}, "it is not ready")}}, Reason.NODE_LEAVES),
        (
            {"pools": Pools([pool(bgp={"nodeSelector": {"matchLabels": {"name": "node-2"}}})])},
            Reason.NOT_SELECTED,
        ),
    ],
)
def test_an_address_is_announced_by_bgp_under_the_same_conditions_but_a_link(
    known: dict[str, Any], expected: Reason | None
) -> None:
    blocker = routed(facts(**{"pools": Pools([pool(bgp={})]), **known})).why_not_announce
    assert (blocker.reason if blocker is not None else None) == expected
    assert blocker is None or "l2" not in blocker.message


def test_all_nodes_with_endpoints_for_clients_announce_by_bgp() -> None:
    by_bgp = Pools([pool(bgp={})])
    assert routed(facts(pools=by_bgp)).nodes == set(NODES)
    assert routed(facts(pools=by_bgp, wants=local_farm("node-2", "node-3"))).nodes == {"node-2", "node-3"}


@pytest.mark.parametrize(
    ("leaving", "endpoints", "later"),
    [
        ({ME}, (ME,), {Metric.GOES}),
        ({ME, "node-2"}, (ME, "node-2"), {Metric.GOES}),
        ({ME}, (ME, "node-2"), set()),
        ({ME}, (), set()),
    ],
    ids=["of no other", "of others that leave, too", "of others", "of none"],
)
def test_a_node_that_leaves_keeps_its_route_while_no_other_has_endpoints(
    leaving: set[str], endpoints: tuple[str, ...], later: set[Metric]
) -> None:
    routes, found = Routes(ME), facts(pools=Pools([pool(bgp={})]), wants=local_farm(*endpoints))
    routes.decide(found.routes(()), 0.0)
    found.nodes = {name: NodeSeen({}, "it drains" if name in leaving else None) for name in NODES}
    known = found.routes(routes.routed)
    assert {route.metric for route in routes.decide(known, 1.0)[0]} == {Metric.GOES}
    assert {route.metric for route in routes.decide(known, 1.0 + GOING_S)[0]} == later


def peer(address: str = "172.31.0.1", **labels: str) -> BGPPeer:
    spec = {"address": address, "asn": 65000, "myAsn": 65001, "nodeSelector": {"matchLabels": labels}}
    return BGPPeer.model_validate({"metadata": {"name": "router"}, "spec": spec})


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        (None, set(NODES)),
        ((), {ME}),
        ((peer(name="node-2"),), {ME, "node-2"}),
        ((peer("fd00::1"), peer(name="node-3")), {ME, "node-3"}),
        ((peer(), peer(name="node-3")), set(NODES)),
    ],
    ids=["of another daemon", "none", "of a node", "of the other family", "of all"],
)
def test_a_node_that_has_no_router_for_an_address_does_not_replace_others(
    peers: tuple[BGPPeer, ...] | None, expected: set[str]
) -> None:
    assert routed(facts(pools=Pools([pool(bgp={})]), peers=peers)).nodes == expected


@pytest.mark.parametrize(
    ("length", "expected"),
    [(32, f"{VIP}/32"), (28, "192.0.2.0/28"), (24, f"{VIP}/32")],
    ids=["alone", "with all addresses of the pool", "with addresses of others"],
)
def test_a_prefix_has_addresses_of_the_pool_only(length: int, expected: str) -> None:
    assert routed(facts(pools=Pools([pool(bgp={"aggregationLength": length})]))).prefix == expected


def test_a_node_goes_on_announcing_by_bgp_when_the_pool_is_gone() -> None:
    found = facts(pools=Pools())
    assert found.routes(()) == {}
    assert routed(found, (VIP,)).prefix == f"{VIP}/32"


def test_an_agent_that_begins_goes_on_announcing_by_bgp_though_the_pool_is_gone() -> None:
    found = facts(pools=Pools())
    known = found.routes(EarlierRoutes([Route("192.0.2.0/28", Metric.SERVES)]))
    assert known[VIP].prefix == f"{VIP}/32"


@pytest.mark.parametrize("served", [True, False])
def test_whether_a_node_is_going_to_serve_a_routed_address_is_known(served: bool) -> None:
    found = facts(pools=Pools([pool(bgp={})]))
    only = farm(owner="web", addresses=[{"type": "LoadBalancer", "ip": VIP, "ports": "80"}])
    found.load_balancers.planned(WEB, only, served=served)
    assert routed(found).is_served is served
