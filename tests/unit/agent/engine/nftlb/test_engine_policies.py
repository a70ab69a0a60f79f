"""nftlb never listens at an address of a farm with policies unless these are enforced there."""

from typing import Any

import pytest

from kube_nftlb.agent.table import policy_references
from kube_nftlb.api.farm import Farm
from kube_nftlb.nftlb import objects
from tests.builders import farm, raw_farm, raw_policy
from tests.fakes import nft
from tests.fakes.node import WEB, until
from tests.unit.agent.engine.nftlb.conftest import Node

DENIES = ["ip saddr @denied-default.list-ip drop"]


def guarded(version: int = 10, ip: str = "10.96.0.10", **changes: Any) -> Farm:
    return farm(version=version, addresses=[{"ip": ip, "ports": "80"}], **{"policies": ["list"], **changes})


@pytest.fixture
def openings(node: Node, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The listeners that nftlb had without a guard, after any request to it and any command to nft."""
    found: set[str] = set()

    def look() -> None:
        for present in objects.parse({"farms": [node.nftlb._shown(f) for f in node.nftlb.farms.values()]}).values():  # noqa: SLF001 - a fake
            listened = {f"tcp . {port.ip} . {port.port}" for port in present.bound_ports() if present.backends}
            found.update(listened - node.nft.sets.get("policy-ip", {}).keys())

    answer, run = node.nftlb.answer, node.nft.run

    def answer_and_look(method: str, path: str, body: bytes) -> tuple[int, str]:
        answered = answer(method, path, body)
        look()
        return answered

    async def run_and_look(commands: str) -> None:
        await run(commands)
        look()

    monkeypatch.setattr(node.nftlb, "answer", answer_and_look)
    monkeypatch.setattr(node.nft, "run", run_and_look)
    return found


def rules_met(node: Node, ip: str = "10.96.0.10") -> list[str]:
    element = node.nft.sets.get("policy-ip", {}).get(f"tcp . {ip} . 80", "")
    return nft.rules_met(element.strip("{} ").rpartition(" ")[2], node.nft.chains, node.nft.sets)


async def test_a_farm_with_policies_is_never_open(node: Node, openings: set[str]) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([guarded()], 20)
    assert rules_met(node) == DENIES
    await node.change(guarded(generation=2, version=21, ip="10.96.0.11"))
    assert (rules_met(node), rules_met(node, "10.96.0.11")) == ([], DENIES)
    await node.restart_agent([raw_policy(version=11)])
    await node.program([guarded(generation=3, version=22)], 22)
    assert rules_met(node) == DENIES
    node.nft.damage()
    node.reader.foreign_changes += 1
    await until(lambda: rules_met(node) == DENIES)
    await node.restart_agent([])
    await node.program([], 23)
    assert node.nft.sets["policy-ip"] == {}
    assert openings == set()


async def test_policies_and_farms_go_at_once_in_any_order(node: Node, openings: set[str]) -> None:
    version = 30
    node.list([], 20)
    for goes in ("farm first", "policy first", "reference first"):
        node.state.put_policy(raw_policy(version=version, generation=version))
        node.put(guarded(generation=version, version=version))
        await node.settle(version)
        assert rules_met(node) == DENIES
        if goes == "farm first":
            node.remove(WEB, version + 1)
            node.state.remove_policy(raw_policy(version=version + 2))
        elif goes == "policy first":
            node.state.remove_policy(raw_policy(version=version + 1))
            node.remove(WEB, version + 2)
        else:
            node.state.put_policy(raw_policy("other", version=version, generation=version))
            node.put(guarded(generation=version + 1, version=version + 1, policies=["other"]))
            node.state.remove_policy(raw_policy(version=version + 2))
        node.state.seen(version + 2)
        await node.settle(version + 2)
        assert node.loop.progress.last_error is None
        version += 10
    assert openings == set()


async def test_a_new_agent_enforces_the_policies_of_a_farm_it_cannot_read(node: Node, openings: set[str]) -> None:
    node.state.put_policy(raw_policy())
    await node.program([guarded()], 20)
    await node.restart_agent([raw_policy()])
    refers = policy_references.raw_references(raw_farm(policies=["list"]))
    node.list([], 21)
    node.put_unreadable(WEB, 21, refers=refers)
    await node.settle(21)
    assert list(node.nftlb.farms) == ["web--http"]
    assert rules_met(node) == DENIES
    assert not node.nft.sets["no-endpoints-ip"]
    assert openings == set()


async def test_a_farm_deleted_while_nftlb_was_away_is_never_open(node: Node, openings: set[str]) -> None:
    node.state.put_policy(raw_policy(version=11))
    node.list([guarded(), farm("other", addresses=[{"ip": "10.96.0.20", "ports": "80"}], policies=["list"])], 20)
    await node.settle(20)
    node.nftlb.reachable = False
    await until(lambda: bool(node.loop.progress.engine_error))
    node.remove(WEB, 21)
    node.nftlb.reachable = True
    await node.settle(21)
    assert list(node.nftlb.farms) == ["other"]
    assert openings == set()
