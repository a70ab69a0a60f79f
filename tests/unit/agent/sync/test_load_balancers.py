"""What is announced follows from what the loop has planned, and has verified in the kernel."""

from typing import Any

import pytest

from kube_nftlb.agent.announcing.facts import Facts
from kube_nftlb.agent.announcing.nodes import NodeSeen
from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.agent.engine.base import Applied, FarmChanges
from kube_nftlb.agent.model import Blocker, Version
from kube_nftlb.agent.sync.load_balancers import InKernel, LoadBalancers, wanted
from kube_nftlb.announce.bgp.routes import GOING_S, Routes
from kube_nftlb.announce.ownership.gate import Blocker as Blocked
from kube_nftlb.announce.ownership.gate import Reason
from kube_nftlb.announce.ownership.interfaces import Interface
from kube_nftlb.announce.ownership.node import Address
from kube_nftlb.api.address_pool import AddressPool
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from tests.builders import Grouped, endpoint, endpoint_slice, farm, grouped_farm, raw_route_farm
from tests.fakes.node import WEB, until
from tests.unit.agent.sync.conftest import Node

VIP = "192.0.2.10"
ADDRESSES = [{"ip": "10.96.0.10", "ports": "80"}, {"type": "LoadBalancer", "ip": VIP, "ports": "80"}]
OF_WEB: dict[str, Any] = {
    "owner": "web",
    "addresses": ADDRESSES,
    "backends": [],
    "backendsFrom": [{"service": "web", "port": "http"}],
}
UID = "uid-default-web--http"


def in_kernel(node: Node) -> InKernel | None:
    return node.state.load_balancers.in_kernel.get(WEB)


def begin(node: Node, *endpoints: dict[str, Any], **spec: Any) -> None:
    node.put_slice(endpoint_slice(*endpoints), 9)
    node.list([farm(version=10, **OF_WEB, **spec)], 10)


async def has(node: Node, expected: InKernel | None) -> None:
    await until(lambda: in_kernel(node) == expected)


async def test_a_farm_is_in_the_kernel_once_it_is_verified(node: Node) -> None:
    begin(node, endpoint("10.244.1.2"), endpoint("10.244.2.2", node="n2"))
    await has(node, InKernel(Version(UID, 1), frozenset({VIP}), 2, 2))
    assert list(node.state.load_balancers.ips) == [VIP]
    assert set(node.state.load_balancers.farms.get(VIP)) == {WEB}
    node.put(farm(version=11, generation=2, **OF_WEB))
    await has(node, InKernel(Version(UID, 2), frozenset({VIP}), 2, 2))


async def test_what_a_change_takes_away_does_not_count_before_it_is_verified(node: Node) -> None:
    begin(node, endpoint("10.244.1.2"))
    await has(node, InKernel(Version(UID, 1), frozenset({VIP}), 1, 1))
    seen: list[InKernel | None] = []
    node.state.load_balancers.on_change = lambda: seen.append(in_kernel(node))
    node.put_slice(endpoint_slice(), 11)
    await node.settle_slices(11)
    assert seen[0] == InKernel(Version(UID, 1), frozenset({VIP}), 0, 0)
    node.put_slice(endpoint_slice(endpoint("10.244.1.3")), 12)
    await node.settle_slices(12)
    assert [each.reached for each in seen if each is not None] == [0, 0, 1], "planned, and only then verified"


async def test_a_farm_that_is_gone_is_gone_everywhere(node: Node) -> None:
    begin(node)
    await until(lambda: in_kernel(node) is not None)
    node.remove(WEB, 11)
    await node.settle(11)
    assert in_kernel(node) is None
    assert not node.state.load_balancers.ips


async def test_a_farm_that_the_kernel_refuses_is_not_in_it(node: Node) -> None:
    begin(node)
    await until(lambda: in_kernel(node) is not None)
    node.engine.refused["web--http"] = "no memory"
    node.put(farm(version=11, generation=2, **OF_WEB))
    await node.settle(11)
    found = in_kernel(node)
    assert found is None or found.version.generation == 1


async def test_a_farm_whose_listeners_another_one_has_is_not_going_to_be_served(node: Node) -> None:
    other = FarmKey("default", "young--http")
    young = farm("young--http", owner="young", addresses=ADDRESSES, created="2026-02-01T00:00:00Z", version=11)
    begin(node)
    await until(lambda: in_kernel(node) is not None)
    node.put(young)
    await node.settle(11)
    assert node.state.load_balancers.wanted[WEB].served
    assert not node.state.load_balancers.wanted[other].served
    node.remove(WEB, 12)
    await node.settle(12)
    assert node.state.load_balancers.wanted[other].served


@pytest.mark.parametrize("why", ["a missing feature", "a refusal", "nothing"])
async def test_a_route_that_the_kernel_cannot_serve_stays_until_it_changes(node: Node, why: str) -> None:
    begin(node)
    await until(lambda: in_kernel(node) is not None)
    key = FarmKey("default", "other")
    spec: dict[str, Any] = {"queue": 3, "addresses": [{**ADDRESSES[1], "ports": "443"}]}
    node.nft.lacks = ("queue num",) if why == "a missing feature" else ()
    node.engine.refused.update({"other": "no memory"} if why == "a refusal" else {})
    node.put(Farm.model_validate(raw_route_farm("other", version=11, **spec)))
    await node.settle(11)
    assert node.state.load_balancers.wanted[key].stays is (why != "nothing")
    assert node.state.load_balancers.wanted[WEB].stays is False
    node.nft.lacks = ()
    node.engine.refused.clear()
    node.put(Farm.model_validate(raw_route_farm("other", version=12, generation=2, **spec)))
    await until(lambda: not node.state.load_balancers.wanted[key].stays, 90)


@pytest.mark.parametrize(
    ("endpoints", "reached", "serving", "nodes"),
    [
        ([endpoint("10.244.1.2", node="node-1")], 1, 1, {"node-1"}),
        ([endpoint("10.244.2.2", node="n2")], 0, 1, {"n2"}),
        ([], 0, 0, set()),
        (
            [endpoint("10.244.1.2", node="node-1", ready=False, serving=True, terminating=True)],
            1,
            1,
            {"node-1"},
        ),
        (
            [
                endpoint("10.244.1.2", node="node-1", ready=False, serving=True, terminating=True),
                endpoint("10.244.2.2", node="n2"),
            ],
            1,
            1,
            {"n2"},
        ),
    ],
)
async def test_with_traffic_policy_local_a_node_reaches_its_own(
    node: Node, endpoints: list[dict[str, Any]], reached: int, serving: int, nodes: set[str]
) -> None:
    begin(node, *endpoints, trafficPolicy="Local")
    await has(node, InKernel(Version(UID, 1), frozenset({VIP}), reached, serving))
    assert node.state.load_balancers.wanted[WEB].nodes == frozenset(nodes)


def test_only_farms_of_services_have_addresses_that_are_announced() -> None:
    assert wanted(farm(addresses=ADDRESSES)) is None
    assert wanted(farm(owner="web")) is None
    assert wanted(None) is None
    found = wanted(farm(owner="web", addresses=ADDRESSES))
    assert found is not None
    assert found.ips == {VIP}


def test_nodes_whose_endpoints_get_no_connections_do_not_announce() -> None:
    groups = {"web": Grouped(1, [endpoint("10.244.2.2", node="n2")]), "next": Grouped(0, [endpoint("10.244.1.2")])}
    found = wanted(grouped_farm(groups=groups, owner="web", addresses=ADDRESSES, trafficPolicy="Local"))
    assert found is not None
    assert found.nodes == frozenset({"n2"})


def facts_of(node: Node, **announce: Any) -> Facts:
    """What the announcers are told, with such a pool."""
    spec = {"ranges": ["192.0.2.0/28"], "announce": {"l2": {}, "bgp": {}, **announce}}
    pool = AddressPool.model_validate({"metadata": {"name": "pool"}, "spec": spec})

    def newest(key: FarmKey) -> Version | None:
        seen = node.state.index.get(key)
        return Version.of(seen) if seen is not None else None

    facts = Facts("node-1", node.state.load_balancers, newest, Pools([pool]), {"node-1": NodeSeen({})})
    facts.interfaces = (Interface("eth0", "02:00:00:00:00:01", ("192.0.2.1/24",)),)
    return facts


def address_of(node: Node, **announce: Any) -> Address:
    return facts_of(node, **announce).addresses({VIP: "node-1"})[VIP]


OWN, OTHERS = endpoint("10.244.1.2", "a", node="node-1"), endpoint("10.244.2.2", "b", node="n2")
DRAIN_OWN = [{"service": "web", "port": "http", "overrides": [{"pod": "a", "state": "drain"}]}]


@pytest.mark.parametrize("when_empty", ["announce", "withdraw"])
@pytest.mark.parametrize(
    ("endpoints", "spec", "expected"),
    [
        ([OWN, OTHERS], {"state": "drain"}, None),
        ([OTHERS], {"state": "drain"}, None),
        ([OWN, OTHERS], {"state": "drain", "trafficPolicy": "Local"}, None),
        ([OTHERS], {"state": "drain", "trafficPolicy": "Local"}, Reason.NO_ENDPOINT),
        ([OWN], {"backendsFrom": DRAIN_OWN}, None),
        ([OWN], {"backendsFrom": DRAIN_OWN, "trafficPolicy": "Local"}, None),
        ([OWN, OTHERS], {"backendsFrom": DRAIN_OWN, "trafficPolicy": "Local"}, None),
    ],
)
async def test_what_drains_is_announced_where_connections_go_on(
    node: Node, endpoints: list[dict[str, Any]], spec: dict[str, Any], expected: Reason | None, when_empty: str
) -> None:
    routes = Routes("node-1")
    begin(node, *endpoints)
    await until(lambda: in_kernel(node) is not None)
    routes.decide(facts_of(node, whenEmpty=when_empty).routes(()), 0.0)
    node.put(farm(version=11, generation=2, **{**OF_WEB, **spec}))
    await node.settle(11)
    address = address_of(node, whenEmpty=when_empty)
    assert (address.why_not_announce.reason if address.why_not_announce else None) == expected
    assert address.why_not_keep is None
    for now in (10.0, 10.0 + GOING_S):
        found, _ = routes.decide(facts_of(node, whenEmpty=when_empty).routes(routes.routed), now)
    assert bool(found) is (expected is None), "by BGP, too"


async def test_a_node_that_cannot_serve_a_farm_does_not_say_that_its_policy_is_local(node: Node) -> None:
    node.engine.blockers["web--http"] = Blocker("Unsupported", "no such mode here", refuse_clients=True)
    begin(node, OWN)
    await until(lambda: in_kernel(node) is not None)
    assert address_of(node).why_not_announce == Blocked(
        Reason.NO_ENDPOINT, "this node refuses connections to the farm default/web--http"
    )


@pytest.mark.parametrize("refused", [False, True])
async def test_an_address_stays_while_another_farm_takes_the_place_of_its_only_one(
    node: Node, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = FarmKey("default", "web--named")
    begin(node, endpoint("10.244.1.2"))
    await until(lambda: in_kernel(node) is not None)
    if refused:
        node.engine.refused["web--named"] = "no memory"
    # Its port gets a name: the operator makes the new farm, then deletes the one before.
    node.put(farm("web--named", version=11, created="2026-02-01T00:00:00Z", **OF_WEB))
    await node.settle(11)
    seen: list[Address] = []
    apply = node.engine.apply

    async def applied(changes: FarmChanges) -> Applied:
        """Look at what is known while the kernel changes, and before anything is verified."""
        seen.append(address_of(node))
        result = await apply(changes)
        seen.append(address_of(node))
        return result

    monkeypatch.setattr(node.engine, "apply", applied)
    node.remove(WEB, 12)
    await until(lambda: renamed not in node.state.queue and not node.state.has_work)
    assert [each.why_not_announce.reason for each in seen if each.why_not_announce] == [Reason.NOT_PROGRAMMED] * 2
    assert [each.why_not_keep for each in seen] == [None] * 2, "the kernel has it all the time"
    assert (address_of(node).why_not_keep is not None) is refused


def test_a_farm_that_no_engine_has_any_more_is_forgotten() -> None:
    known, other = LoadBalancers(), FarmKey("default", "other--http")
    for key in (WEB, other):
        known.planned(key, farm(key.name, owner="web", addresses=ADDRESSES))
        known.verified(key, InKernel(Version("uid", 1), frozenset({VIP}), 1, 1))
    known.keep(lambda key: key == WEB)
    assert known.in_kernel.get(WEB) is not None
    assert known.in_kernel.get(other) is None
    assert set(known.farms.get(VIP)) == {WEB, other}, "it is still wanted"
