"""The farms that the loop programs, and the watermark that it reports."""

import asyncio

from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.status.gauges import farm_states
from kube_nftlb.agent.sync.timing import Timing
from tests.builders import farm, raw_backend, raw_policy
from tests.fakes.node import WEB, until
from tests.unit.agent.sync.conftest import Node


def at(ip: str) -> list[dict[str, str]]:
    return [{"ip": ip, "ports": "80"}]


async def left_over(node: Node) -> None:
    """An earlier agent has left a farm, of which this one knows nothing."""
    await node.program([farm("left-over", addresses=at("10.96.0.99"))], 10)
    await node.restart_agent()


async def test_nothing_is_programmed_before_farms_are_listed(node: Node) -> None:
    await left_over(node)
    node.state.put(farm())
    await node.passes(3)
    assert list(node.engine.farms) == ["left-over"]
    assert node.loop.progress.lag.done_at is None


async def test_nothing_is_programmed_before_policies_are_listed(node: Node) -> None:
    await left_over(node)
    await node.stop()
    node.start(policies=None)
    node.list([farm()], 20)
    await node.passes(3)
    assert list(node.engine.farms) == ["left-over"]
    node.state.replace_policies([], 20)
    await node.settle(20)
    assert list(node.engine.farms) == ["web--http"]


async def test_the_engine_gets_the_listed_farms_and_no_others(node: Node) -> None:
    await left_over(node)
    await node.program([farm("a--http")], 20)
    assert list(node.engine.farms) == ["a--http"]
    assert [(name, farm is None) for name, farm in node.engine.changes] == [("left-over", True), ("a--http", False)]


async def test_a_restarted_agent_touches_nothing_that_has_not_changed(node: Node) -> None:
    farms = [farm(), farm("empty--http", addresses=at("10.96.0.11"), backends=[], policies=["list"])]
    node.state.put_policy(raw_policy(version=11))
    await node.program(farms, 20)
    chains, sets = dict(node.nft.chains), dict(node.nft.sets)
    commands = len(node.nft.commands)
    await node.restart_agent([raw_policy(version=11)])
    await node.program(farms, 21)
    await node.passes(3)
    assert (node.engine.changes, node.engine.repaired) == ([], [])
    assert node.nft.commands[commands:] == []
    assert (node.nft.chains, node.nft.sets) == (chains, sets)


async def test_everything_is_compared_once_after_the_start(node: Node) -> None:
    node.list([farm(), farm("b--http", addresses=at("10.96.0.11"))], 20)
    await until(lambda: node.loop.settled)
    node.engine.compared.clear()
    await node.restart_agent()
    node.list([farm(), farm("b--http", addresses=at("10.96.0.11"))], 21)
    await until(lambda: {None, "web--http", "b--http"} <= set(node.engine.compared))
    assert node.loop.progress.drift_repaired == 0


async def test_a_farm_without_a_new_generation_is_no_work(node: Node) -> None:
    await node.program([farm(generation=3, version=10)], 20)
    await node.passes(3)
    changes, compared = len(node.engine.changes), node.engine.compared.count("web--http")
    await node.change(farm(generation=3, version=30))
    assert len(node.engine.changes) == changes
    assert node.engine.compared.count("web--http") == compared


async def test_a_farm_that_changes_and_goes_is_followed(node: Node) -> None:
    await node.program([farm()], 20)
    await node.change(farm(backends=[raw_backend("b", "10.244.1.9")], generation=2, version=21))
    assert [each.backend.name for each in node.engine.farms["web--http"].endpoints] == ["b"]
    node.remove(WEB, 22)
    await node.settle(22)
    assert node.engine.farms == {}


async def test_all_farms_are_looked_at_again_if_the_node_changes(node: Node) -> None:
    port = farm("port--http", addresses=[{"type": "NodePort", "ports": "30080"}])
    await node.program([port], 20)
    assert list(node.engine.farms["port--http"].listeners) == []
    node.state.set_node(NodeFacts("node-1", port_ips={"ipv4": ("172.31.0.11",)}), {})
    await until(lambda: [each.ip for each in node.engine.farms["port--http"].listeners] == ["172.31.0.11"])


async def test_a_farm_that_is_not_understood_stays_until_it_is_gone(node: Node) -> None:
    await node.program([farm()], 20)
    node.put_unreadable(WEB, 21)
    await node.settle(21)
    assert list(node.engine.farms) == ["web--http"]
    assert node.reason() == "Invalid"
    await node.program([], 22)
    assert node.engine.farms == {}
    assert node.loop.progress.problems == {}


async def test_a_list_counts_as_programmed_only_as_a_whole(node: Node) -> None:
    """A status written later moves a farm's resourceVersion past the one at which the operator saw its generation."""
    farms = [farm(f"f{n:03}--http", addresses=at(f"10.97.0.{n}"), version=150 + n) for n in range(1, 101)]
    await node.program(farms, 500)
    assert {watermark for watermark, there in node.reports if there < 100} <= {0}


async def test_the_watermark_waits_for_the_farm_that_is_not_verified(node: Node) -> None:
    node.timing = Timing(verify_after_s=1000, verify_within_s=2000)
    await node.restart_agent()
    node.list([farm()], 20)
    await until(lambda: bool(node.engine.farms))
    assert node.loop.progress.watermark == 0
    assert node.engine.compared.count("web--http") == 0
    await node.settle(20)
    assert "web--http" in node.engine.compared


async def test_what_was_applied_is_verified_in_time_while_changes_go_on(node: Node) -> None:
    await node.program([farm()], 20)
    compared, version = node.engine.compared.count("b--http"), 21
    node.put(farm("b--http", addresses=at("10.96.0.11"), version=version))
    while node.engine.compared.count("b--http") == compared:
        version += 1
        backends = [raw_backend("a", f"10.244.{version // 250}.{version % 250 + 1}")]
        node.put(farm(backends=backends, generation=version, version=version))
        node.clock.time += 0.1
        await asyncio.sleep(0)
    assert version < 21 + 50


async def test_changes_without_pause_are_counted_as_done_again_and_again(node: Node) -> None:
    await node.program([farm()], 20)
    began, version = set[float | None](), 20
    async with asyncio.timeout(20):
        while len(began - {None}) < 5:
            version += 1
            node.put(
                farm(generation=version, version=version, backends=[raw_backend("a", f"10.244.1.{version % 200}")])
            )
            began.add(node.loop.progress.lag.waiting_since)
            node.clock.time += 0.1
            await asyncio.sleep(0)


async def test_what_has_an_address_that_nodes_announce_is_verified_at_once_while_changes_go_on(node: Node) -> None:
    others = [farm(f"other-{number}--http", addresses=at(f"10.96.1.{number}")) for number in range(20)]
    await node.program(others, 20)
    version, balanced = 21, [{"type": "LoadBalancer", "ip": "192.0.2.10", "ports": "80"}]
    node.put(farm(owner="web", addresses=balanced, version=version))
    while node.state.load_balancers.in_kernel.get(WEB) is None:
        version += 1
        backends = [raw_backend("a", f"10.244.{version // 250}.{version % 250 + 1}")]
        name, ip = f"other-{version % 20}--http", f"10.96.1.{version % 20}"
        node.put(farm(name, addresses=at(ip), backends=backends, generation=version, version=version))
        node.clock.time += 0.1
        await asyncio.sleep(0)
    assert version < 21 + 10


async def test_it_ends_with_the_pass_in_progress_and_verifies_it(node: Node) -> None:
    node.list([farm(name, addresses=at(f"10.96.0.{n}")) for n, name in enumerate("ab", 1)], 20)
    await until(lambda: bool(node.engine.farms))
    node.loop.stop()
    await asyncio.wait_for(node.task, 5)
    assert list(node.engine.farms) == ["a", "b"]
    assert {"a", "b"} <= set(node.engine.compared)
    assert node.loop.progress.watermark == 20
    assert node.engine.closed


async def test_it_ends_although_the_engine_is_unreachable(node: Node) -> None:
    await node.program([farm()], 20)
    node.engine.reachable = False
    await until(lambda: bool(node.loop.progress.engine_error))
    node.loop.stop()
    await asyncio.wait_for(node.task, 5)
    assert node.engine.closed


async def test_farms_are_counted_by_state(node: Node) -> None:
    node.engine.refused["bad--http"] = "no"
    young = farm("young--http", created="2026-02-01T00:00:00Z")
    await node.program([farm(), young, farm("bad--http", addresses=at("10.96.0.11"))], 20)
    assert farm_states(node.state) == {"programmed": 1, "pending": 0, "refused": 1, "failed": 1}
    node.engine.reachable = False
    node.put(farm(generation=2, version=21, scheduler="weight"))
    assert farm_states(node.state) == {"programmed": 0, "pending": 1, "refused": 1, "failed": 1}


async def test_the_options_of_a_farm_come_and_go_with_it(node: Node) -> None:
    await node.program([farm(limits={"new": "5/second"}, helper="ftp", log="input")], 10)
    assert any('ct helper set "helper-' in rule for rule in node.nft.chains["connections-web--http"])
    node.remove(WEB, 11)
    await node.settle(11)
    assert not [name for name in (*node.nft.chains, *node.nft.sets) if "web--http" in name]
