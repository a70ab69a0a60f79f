"""The loop with farms that want one address: nobody gets an address before its owner has left it."""

from typing import Any

import pytest

from kube_nftlb.agent.engine.base import Applied, FarmChanges
from kube_nftlb.agent.model import Blocker, NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.api.conflicts import FarmKey
from tests.builders import farm
from tests.fakes.node import WEB, until
from tests.unit.agent.sync.conftest import Node
from tests.unit.agent.sync.test_reconciler import at


def key(name: str) -> FarmKey:
    return FarmKey("default", name)


def noted_calls(node: Node) -> list[list[str]]:
    """The names of the farms that change in each call of the engine from now on."""
    calls: list[list[str]] = []
    apply = node.engine.apply

    async def noted(changes: FarmChanges) -> Applied:
        calls.append(sorted(changes))
        return await apply(changes)

    node.engine.apply = noted  # type: ignore[method-assign]  # noted, and called
    return calls


async def test_of_two_farms_with_one_address_the_older_is_programmed(node: Node) -> None:
    older, younger = farm("old--http"), farm("young--http", created="2026-02-01T00:00:00Z")
    await node.program([younger, older], 20)
    assert list(node.engine.farms) == ["old--http"]
    assert node.reason("young--http") is None, "the operator reports it"
    node.remove(key("old--http"), 21)
    await node.settle(21)
    assert list(node.engine.farms) == ["young--http"]


async def test_a_farm_that_loses_its_addresses_is_not_among_the_failed_any_more(node: Node) -> None:
    node.engine.refused["young--http"] = "out of memory"
    await node.program([farm("young--http", created="2026-02-01T00:00:00Z")], 20)
    assert node.reason("young--http") == "Refused"
    await node.change(farm("old--http", version=21))
    assert node.reason("young--http") is None


async def test_a_farm_that_is_valid_again_has_no_problem_any_more(node: Node) -> None:
    await node.program([farm()], 20)
    node.put_unreadable(WEB, 21)
    await node.settle(21)
    assert node.reason() == "Invalid"
    await node.change(farm(generation=3, version=22))
    assert node.reason() is None


async def test_an_address_moves_in_one_call_of_the_engine(node: Node) -> None:
    await node.program([farm()], 20)
    calls = noted_calls(node)
    node.remove(WEB, 21)
    await node.change(farm("late--http", version=22))
    assert list(node.engine.farms) == ["late--http"]
    assert calls[0] == ["late--http", "web--http"]


async def test_an_address_is_always_served_though_what_gets_it_comes_batches_later_than_what_leaves_it(
    node: Node,
) -> None:
    """As when the externalTrafficPolicy of a Service becomes Local while others are created."""
    await node.program([farm(addresses=at("10.96.0.1") + at("10.96.0.2"))], 20)
    served: list[bool] = []
    apply = node.engine.apply

    async def noted(changes: FarmChanges) -> Applied:
        applied = await apply(changes)
        served.append(any(each.ip == "10.96.0.2" for farm in node.engine.farms.values() for each in farm.listeners))
        return applied

    node.engine.apply = noted  # type: ignore[method-assign]  # noted, and called
    new = [farm(f"new-{number}", addresses=at(f"10.97.0.{number}"), version=21 + number) for number in range(200)]
    external = farm("external", addresses=at("10.96.0.2"), created="2026-02-01T00:00:00Z", version=121)
    # The oldest and the newest get turns.
    node.put(*new[:100], external, *new[100:], farm(addresses=at("10.96.0.1"), generation=2, version=221))
    await node.settle(221)
    assert len(served) > 2
    assert all(served)
    assert [each.ip for each in node.engine.farms["external"].listeners] == ["10.96.0.2"]


async def test_ports_of_a_whole_address_that_is_given_up_are_served_by_others_at_once(node: Node) -> None:
    whole = farm(protocol="All", addresses=[{"ip": "10.96.0.10"}], backends=[{"name": "a", "ip": "10.244.1.2"}])
    late = {"created": "2026-02-01T00:00:00Z"}
    ports = [farm(f"port-{port}", addresses=[{"ip": "10.96.0.10", "ports": str(port)}], **late) for port in (80, 81)]
    await node.program([whole, *ports], 20)
    assert list(node.engine.farms) == ["web--http"]
    calls = noted_calls(node)
    for number in range(200):
        node.put(farm(f"new-{number}", addresses=at(f"10.97.0.{number}"), version=21 + number))
    node.remove(WEB, 221)
    await node.settle(221)
    (leaving,) = (each for each in calls if "web--http" in each)
    assert {"port-80", "port-81"} < set(leaving)


async def test_addresses_are_exchanged_in_one_call_of_the_engine(node: Node) -> None:
    await node.program([farm("a--http", addresses=at("10.96.0.1")), farm("b--http", addresses=at("10.96.0.2"))], 20)
    node.put(
        farm("a--http", addresses=at("10.96.0.2"), generation=2, version=21),
        farm("b--http", addresses=at("10.96.0.1"), generation=2, version=22),
    )
    await node.settle(22)
    listened = {name: [each.ip for each in farm.listeners] for name, farm in node.engine.farms.items()}
    assert listened == {"a--http": ["10.96.0.2"], "b--http": ["10.96.0.1"]}


async def test_a_farm_that_no_service_controls_any_more_loses_its_rank(node: Node) -> None:
    forged = farm("forged", owner="web", created="2025-01-01T00:00:00Z", version=5)
    await node.program([forged, farm(owner="web", version=6)], 6)
    assert list(node.engine.farms) == ["forged"]
    await node.change(farm("forged", created="2025-01-01T00:00:00Z", version=7))
    assert list(node.engine.farms) == ["web--http"]


async def test_nobody_gets_the_address_of_a_farm_that_is_not_understood(node: Node) -> None:
    await node.program([farm()], 19)
    await node.restart_agent()
    node.list([farm("thief")], 20)
    node.put_unreadable(WEB, 20)
    await node.settle(20)
    assert list(node.engine.farms) == ["web--http"]
    assert node.reason("thief") == "AddressInUse"


async def test_a_node_port_is_not_given_to_who_names_the_nodes_address(node: Node) -> None:
    node.state.set_node(NodeFacts("node-1", port_ips={"ipv4": ("172.31.0.11",)}), {})
    port = farm("port--http", addresses=[{"type": "NodePort", "ports": "30080"}])
    squatter = farm("a-squatter", addresses=[{"type": "ExternalIP", "ip": "172.31.0.11", "ports": "30000-30100"}])
    await node.program([squatter, port], 20)
    (taken,) = node.engine.farms["port--http"].listeners
    others = set(node.engine.farms["a-squatter"].listeners)
    assert {port for port in range(30000, 30101) if taken._replace(port=port) not in others} == {30080}
    problem = node.loop.progress.problems[key("a-squatter")]
    assert (problem.reason, "default/port--http" in problem.message) == ("AddressInUse", True)
    node.remove(key("port--http"), 21)
    await node.settle(21)
    assert list(node.engine.farms) == ["a-squatter"]
    assert taken in node.engine.farms["a-squatter"].listeners
    assert not node.loop.progress.problems


async def test_a_farm_waits_without_a_problem_for_the_node_port_of_another_farm_of_its_service(node: Node) -> None:
    """externalTrafficPolicy changes: the operator writes the new farm first, then the one that gives up the port."""
    node.state.set_node(NodeFacts("node-1", port_ips={"ipv4": ("172.31.0.11",)}), {})
    port = [{"type": "NodePort", "ports": "30080"}]
    await node.program([farm("web--http", owner="web", addresses=[*at("10.96.0.10"), *port])], 20)
    external = farm("web--http--external", owner="web", addresses=port, version=21)
    await node.change(external, farm("younger", owner="younger", addresses=port, version=22))
    assert node.reason("web--http--external") is None
    assert not node.state.has_failed(key("web--http--external")), "its health check port would say so"
    assert node.reason("younger") == "AddressInUse"
    await node.change(farm("web--http", owner="web", addresses=at("10.96.0.10"), generation=2, version=23))
    assert {each.port for each in node.engine.farms["web--http--external"].listeners} == {30080}


async def test_a_node_port_is_not_given_to_who_names_the_address_of_another_node(node: Node) -> None:
    there = "172.31.0.12"
    port = farm("port--http", addresses=[{"type": "NodePort", "ports": "30080"}])
    named = [{"type": "ExternalIP", "ip": there, "ports": "30080"}, {"type": "ExternalIP", "ip": there, "ports": "80"}]
    await node.program([farm("squatter", addresses=named), port], 20)
    assert {each.port for each in node.engine.farms["squatter"].listeners} == {80, 30080}, "it may be anybody's address"
    node.state.set_node_ips([there])
    await until(lambda: {each.port for each in node.engine.farms["squatter"].listeners} == {80})
    assert node.reason("squatter") is None, "the operator reports it"


async def test_a_lost_listener_moves_alone_and_comes_back(node: Node) -> None:
    two = farm("late--http", created="2026-02-01T00:00:00Z", addresses=[*at("10.96.0.10"), *at("10.96.0.11")])
    await node.program([two], 19)
    await node.change(farm("old--http", addresses=at("10.96.0.10"), version=20))
    assert {each.ip for each in node.engine.farms["late--http"].listeners} == {"10.96.0.11"}
    assert {each.ip for each in node.engine.farms["old--http"].listeners} == {"10.96.0.10"}
    node.remove(key("old--http"), 21)
    await node.settle(21)
    assert {each.ip for each in node.engine.farms["late--http"].listeners} == {"10.96.0.10", "10.96.0.11"}


async def test_a_farm_gets_an_address_once_its_stuck_owner_has_left_it(node: Node) -> None:
    await node.program([farm()], 20)
    node.engine.blockers["web--http"] = Blocker("Unsupported", "no")
    late = farm("late--http", addresses=[*at("10.96.0.10"), *at("10.96.0.99")], version=22)
    node.put(farm(addresses=at("10.96.0.11"), generation=2, version=21), late)
    await node.settle(22)
    assert {each.ip for each in node.engine.farms["late--http"].listeners} == {"10.96.0.99"}
    assert node.reason("late--http") == "AddressInUse"
    node.engine.blockers.clear()
    await until(lambda: {each.ip for each in node.engine.farms["late--http"].listeners} == {"10.96.0.10", "10.96.0.99"})


async def test_a_farm_that_is_to_move_to_an_absent_nftlb_keeps_its_address_in_nftables(node: Node) -> None:
    await node.program([farm(engine="nftables")], 20)
    node.engine.blockers["web--http"] = Blocker("NftlbUnreachable", "connection refused")
    moved = farm(engine="nftlb", addresses=at("10.96.0.11"), generation=2, version=21)
    await node.change(moved, farm("late--http", engine="nftables", version=22))
    assert list(node.nftables.farms) == ["web--http"]
    assert node.reason("late--http") == "AddressInUse"
    node.engine.blockers.clear()
    node.put(moved.model_copy(update={"metadata": moved.metadata.model_copy(update={"generation": 3})}))
    await until(lambda: (list(node.engine.farms), list(node.nftables.farms)) == (["web--http"], ["late--http"]))


async def test_an_address_is_not_given_away_before_its_owner_was_probed(node: Node) -> None:
    first = farm("a--http", addresses=at("10.96.0.12"))
    await node.program([first, farm()], 20)
    node.nft.lacks = ("queue num",)
    # A pass has two, the new one and the first: that which has the address comes along because of it.
    node.put(
        farm("a--http", addresses=at("10.96.0.13"), generation=2, version=21),
        farm(addresses=at("10.96.0.11"), queue=3, generation=2, version=22),
        farm("late--http", version=23),
    )
    await node.settle(23)
    assert sorted(node.engine.farms) == ["a--http", "web--http"]
    assert "late--http" not in [name for name, _ in node.engine.changes], "for a moment two farms had one address"
    assert (node.reason("late--http"), node.reason()) == ("AddressInUse", "KernelFeatureMissing")


@pytest.mark.parametrize("impossible", ["KernelFeatureMissing", "Unsupported"])
async def test_an_address_is_not_given_away_while_its_owner_is_stuck(node: Node, impossible: str) -> None:
    other = at("10.96.0.11")
    queue: dict[str, Any] = {"queue": 3} if impossible == "KernelFeatureMissing" else {}
    await node.program([farm()], 20)
    node.nft.lacks = ("queue num",)
    if impossible == "Unsupported":
        node.engine.blockers["web--http"] = Blocker("Unsupported", "no")
    await node.change(farm(addresses=other, **queue, generation=2, version=21), farm("late--http", version=22))
    assert list(node.engine.farms) == ["web--http"]
    assert (node.reason("late--http"), node.reason()) == ("AddressInUse", impossible)
    node.engine.blockers.clear()
    node.put(farm(addresses=other, generation=3, version=23))
    await until(lambda: set(node.engine.farms) == {"web--http", "late--http"})
    await until(lambda: not node.loop.progress.problems)


async def test_an_address_is_not_given_away_if_the_owners_rules_are_refused(node: Node) -> None:
    await node.program([farm()], 20)
    node.nft.lacks = ("limit rate over 3/",)
    node.put(
        farm(addresses=at("10.96.0.11"), limits={"new": "3/second"}, generation=2, version=21),
        farm("late--http", version=22),
    )
    await node.settle(22)
    assert list(node.engine.farms) == ["web--http"]
    assert (node.reason("late--http"), node.reason()) == ("AddressInUse", "Refused")


async def test_an_owner_that_cannot_be_decided_keeps_its_address(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.program([farm("owner")], 20)
    real = node.engine.unsupported

    def broken(given: NodeFarm) -> Blocker | None:
        if given.key.name == "owner":
            raise RuntimeError("nobody thought of this")
        return real(given)

    monkeypatch.setattr(node.engine, "unsupported", broken)
    node.put(farm("owner", generation=2, version=21, addresses=[{"ip": "10.96.0.99", "ports": "80"}]))
    await node.change(farm("late", version=22))
    assert (node.reason("owner"), node.reason("late")) == ("Unsupported", "AddressInUse")
    assert set(node.engine.farms) == {"owner"}
