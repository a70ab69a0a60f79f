"""The loop when others change nftables, or the data plane loses its state."""

import asyncio

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.sync.timing import Timing
from tests.builders import farm, raw_backend
from tests.fakes.node import until
from tests.unit.agent.sync.conftest import Node
from tests.unit.agent.sync.test_reconciler import at


@pytest.fixture
async def quiet(node: Node) -> Node:
    """A node whose farm was programmed and compared."""
    await node.program([farm()], 20)
    await until(lambda: node.loop.settled)
    await node.passes(1)
    assert node.loop.progress.drift_repaired == 0
    node.engine.compared.clear()
    return node


async def test_a_farm_that_others_have_changed_is_repaired(quiet: Node) -> None:
    quiet.engine.deviations["web--http"] = "another backend"
    quiet.reader.foreign_changes += 1
    await until(lambda: quiet.loop.progress.drift_repaired == 1)
    assert quiet.engine.repaired == ["web--http"]
    assert quiet.loop.progress.problems == {}


async def test_what_all_farms_share_is_repaired(quiet: Node) -> None:
    quiet.engine.deviations[None] = "the base chain is gone"
    quiet.reader.foreign_changes += 1
    await until(lambda: quiet.loop.progress.drift_repaired == 1)
    assert quiet.engine.repaired == [None]


async def test_clients_wait_while_an_engine_has_nothing_and_are_refused_again_then(quiet: Node) -> None:
    verdicts: list[str] = []
    run, repair = quiet.nft.run, quiet.nftables.repair

    async def noted(commands: str) -> None:
        await run(commands)
        rules = (rule for rules in quiet.nft.chains.values() for rule in rules if "@service-ranges-ip " in rule)
        verdicts.extend({rule for rule in rules if rule not in verdicts[-1:]})

    async def repaired(name: str | None = None) -> None:
        assert verdicts == ["ip daddr @service-ranges-ip meta nfproto vmap { ipv4 : drop }"]
        await repair(name)

    quiet.nft.run = noted  # type: ignore[method-assign]  # noted, and called
    quiet.nftables.repair = repaired  # type: ignore[method-assign]  # the same
    quiet.nftables.missing = True
    quiet.nftables.deviations[None] = "the table was deleted"
    quiet.nft.damage()
    quiet.reader.foreign_changes += 1
    await until(lambda: not quiet.nftables.missing)
    await until(lambda: len(verdicts) == 2)
    vmaps = [f"meta nfproto vmap {{ ipv4 : {verdict} }}" for verdict in ("drop", "goto refuse")]
    assert verdicts == [f"ip daddr @service-ranges-ip {each}" for each in vmaps]
    drift_repaired = quiet.loop.progress.drift_repaired
    await quiet.passes(2 * Timing().audit_every_s)
    assert quiet.loop.progress.drift_repaired == drift_repaired


async def test_all_farms_are_programmed_at_once_when_an_agent_starts(node: Node) -> None:
    farms = [farm(f"f{n}", addresses=at(f"10.96.0.{n}"), engine="nftables") for n in range(1, 100)]
    await node.program([*farms, farm("other")], 20)
    assert node.nftables.begun == [99]


async def test_a_farm_that_stays_different_is_programmed_anew(quiet: Node) -> None:
    quiet.engine.deviations["web--http"] = "another backend"
    quiet.engine.irreparable.add("web--http")
    quiet.reader.foreign_changes += 1
    await until(lambda: quiet.reason() == "Refused")
    assert quiet.engine.farms == {}


async def test_drift_is_repaired_without_a_foreign_transaction_by_the_audit(quiet: Node) -> None:
    """Others may do the same beside transactions of our own, so that every farm is compared some time after them."""
    quiet.put(farm(generation=2, version=21, scheduler="weight"))
    await quiet.settle(21)
    quiet.engine.deviations["web--http"] = "another backend"
    began = quiet.clock.now()
    await until(lambda: quiet.loop.progress.drift_repaired == 1)
    assert quiet.clock.now() - began == pytest.approx(Timing().audit_every_s, abs=3)


async def test_the_audit_compares_every_farm(node: Node) -> None:
    farms = [farm(f"f{n}", addresses=at(f"10.96.0.{n}")) for n in range(1, 2 * Timing().audit_batch + 2)]
    node.list(farms, 20)
    await until(lambda: node.loop.settled)
    await node.passes(3)
    node.engine.compared.clear()
    await node.change(farm("f1", addresses=at("10.96.0.99"), generation=2, version=21))
    await node.passes(Timing().audit_every_s + 3)
    assert {name for name in node.engine.compared if name} == {each.metadata.name for each in farms}
    node.engine.compared.clear()
    await node.passes(2 * Timing().audit_every_s)
    assert node.engine.compared == [], "nothing has changed since"


async def test_own_transactions_are_no_drift(quiet: Node) -> None:
    for version in range(21, 31):
        # A farm without backends has elements in the agent table.
        backends = [] if version % 2 else [raw_backend("a", "10.244.1.2")]
        quiet.put(farm(backends=backends, generation=version, version=version))
        await quiet.settle(version)
        await quiet.passes(1)
    assert None not in quiet.engine.compared
    assert quiet.loop.progress.drift_repaired == 0


async def test_drift_just_before_a_change_of_our_own_is_detected(quiet: Node) -> None:
    quiet.engine.deviations["web--http"] = "another backend"
    quiet.reader.foreign_changes += 1
    began = quiet.clock.now()
    quiet.put(farm("b--http", addresses=at("10.96.0.11"), version=21))
    await until(lambda: quiet.loop.progress.drift_repaired == 1)
    assert quiet.clock.now() - began < Timing().audit_every_s


async def test_an_agent_table_removed_just_before_a_change_is_whole_again(quiet: Node) -> None:
    quiet.nft.damage()
    quiet.reader.foreign_changes += 1
    quiet.put(farm("b--http", addresses=at("10.96.0.11"), version=21))
    await quiet.settle(21)
    assert {"refuse", "unserved"} <= quiet.nft.chains.keys()
    assert set(quiet.nft.sets["listeners-ip"]) == {"tcp . 10.96.0.10 . 80", "tcp . 10.96.0.11 . 80"}
    assert quiet.loop.progress.last_error is None


async def test_an_agent_table_that_was_removed_is_created_anew(quiet: Node) -> None:
    chains, sets = dict(quiet.nft.chains), dict(quiet.nft.sets)
    quiet.nft.damage()
    quiet.reader.foreign_changes += 1
    await until(lambda: quiet.loop.progress.drift_repaired == 1)
    assert (quiet.nft.chains, quiet.nft.sets) == (chains, sets)


async def test_the_agent_table_is_created_anew_while_the_engine_is_away(quiet: Node) -> None:
    chains, sets = dict(quiet.nft.chains), dict(quiet.nft.sets)
    quiet.engine.reachable = False
    quiet.reader.foreign_changes += 1
    await until(lambda: quiet.loop.progress.engine_error is not None)
    quiet.nft.damage()
    quiet.reader.foreign_changes += 1
    await until(lambda: (quiet.nft.chains, quiet.nft.sets) == (chains, sets))
    assert quiet.loop.progress.engine_error is not None


async def test_the_agent_table_is_created_anew_while_changes_come_without_pause(quiet: Node) -> None:
    async def change() -> None:
        for version in range(21, 10_000):
            backends = [raw_backend("pod-a", f"10.244.{version // 250}.{version % 250 + 1}")]
            quiet.put(farm(backends=backends, generation=version, version=version))
            await quiet.passes(1)

    changing = asyncio.create_task(change())
    await until(lambda: quiet.loop.progress.watermark > 25)
    quiet.nft.damage()
    quiet.reader.foreign_changes += 1
    await until(lambda: quiet.nft.chains.keys() >= {"refuse", "unserved"})
    assert not changing.done()
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)


async def test_damage_to_what_all_farms_share_is_found_however_many_changes_come(quiet: Node) -> None:
    async def change() -> None:
        for version in range(21, 100_000):
            for number in range(1, 13):
                backends = [raw_backend("pod-a", f"10.{version // 62500}.{version // 250 % 250}.{version % 250 + 1}")]
                where = at(f"10.96.1.{number}")
                quiet.put(farm(f"f{number}", addresses=where, backends=backends, generation=version, version=version))
            quiet.clock.time += 0.02
            await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    await until(lambda: "f1" in quiet.engine.farms)
    quiet.engine.deviations[None] = "there are no chains"
    quiet.reader.foreign_changes += 1
    began = quiet.clock.now()
    await until(lambda: None in quiet.engine.repaired)
    assert quiet.clock.now() - began < 2 * (Timing().put_off_s + Timing().maintain_every_s)
    assert not changing.done()
    changing.cancel()
    await asyncio.gather(changing, return_exceptions=True)


class Comparison:
    """Compares what all farms share: fails ``until`` a time, and never ends then."""

    def __init__(self, node: Node, until: float) -> None:
        self._clock, self._until, self._drift = node.clock, until, node.engine.drift
        self.begun = False

    async def drift(self, name: str | None = None) -> str | None:
        if name is not None:
            return await self._drift(name)
        if self._clock.now() < self._until:
            raise errors.KernelError("busy")
        self.begun = True
        await asyncio.Event().wait()
        return None


async def test_a_comparison_that_has_failed_for_a_while_keeps_no_change_waiting(
    quiet: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = Comparison(quiet, quiet.clock.now() + 2 * Timing().put_off_s)
    monkeypatch.setattr(quiet.engine, "drift", comparison.drift)
    quiet.reader.foreign_changes += 1
    await until(lambda: comparison.begun)
    quiet.put(farm("new--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}], version=21))
    await until(lambda: "new--http" in quiet.engine.farms, seconds=5)


async def test_nothing_is_compared_after_the_loop_was_cancelled(quiet: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = Comparison(quiet, 0)
    monkeypatch.setattr(quiet.engine, "drift", comparison.drift)
    quiet.reader.foreign_changes += 1
    await until(lambda: comparison.begun)
    await quiet.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_all_farms_are_compared_while_others_change_nftables(node: Node) -> None:
    node.list([farm(name, addresses=at(f"10.96.0.{number}")) for number, name in enumerate("abcdef", 1)], 20)
    await until(lambda: node.loop.settled)
    await node.passes(1)
    node.engine.compared.clear()

    async def meddle() -> None:
        while True:
            node.reader.foreign_changes += 1
            await node.passes(1)

    meddling = asyncio.create_task(meddle())
    await until(lambda: len([name for name in node.engine.compared if name]) >= 18)
    meddling.cancel()
    await asyncio.gather(meddling, return_exceptions=True)
    assert {name for name in node.engine.compared if name} == set("abcdef")


async def test_farms_that_the_engine_has_lost_are_programmed_again(quiet: Node) -> None:
    quiet.engine.farms.clear()
    quiet.engine.deviations[None] = "there are no chains"
    quiet.reader.foreign_changes += 1
    await until(lambda: "web--http" in quiet.engine.farms)


async def test_a_restarted_engine_is_adopted_anew(quiet: Node) -> None:
    quiet.engine.was_restarted = True
    await until(lambda: not quiet.engine.was_restarted)
    await until(lambda: "web--http" in quiet.engine.farms)
    await until(lambda: quiet.loop.settled)
    assert quiet.loop.progress.watermark == 20
