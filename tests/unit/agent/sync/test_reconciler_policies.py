"""The loop with policies: they keep clients out from the first moment to the last."""

from typing import Any

import pytest

from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.table import policy_references
from kube_nftlb.api.farm import Farm
from tests.builders import farm, raw_farm, raw_policy
from tests.fakes.node import WEB, until
from tests.unit.agent.sync.conftest import Node

OTHER = [{"ip": "10.96.0.11", "ports": "80"}]
DENIES = ["ip saddr @policy-default.list-ip drop"]


def guarded(version: int = 10, **changes: Any) -> Farm:
    return farm(version=version, **{"policies": ["list"], **changes})


def rules_met(node: Node, ip: str = "10.96.0.10") -> list[str]:
    """The rules that clients of a listener meet."""
    element = node.nft.sets.get("policy-ip", {}).get(f"tcp . {ip} . 80", "")
    return node.nft.chains.get(element.strip("{} ").rpartition(" ")[2], [])


async def test_a_listed_policy_is_enforced_with_the_first_farms(node: Node) -> None:
    await node.stop()
    node.start(policies=None)
    node.list([guarded()], 20)
    await node.passes(1)
    assert node.engine.farms == {}
    node.state.replace_policies([raw_policy()], 20)
    await node.settle(20)
    assert rules_met(node) == DENIES


async def test_a_missing_policy_is_reported_and_takes_effect_when_it_comes(node: Node) -> None:
    await node.program([guarded()], 20)
    assert rules_met(node) == ["drop"]
    assert node.reason() == "PolicyMissing"
    assert "NftlbPolicy 'list' not found" in node.loop.progress.problems[WEB].message
    node.state.put_policy(raw_policy(version=21))
    await until(lambda: node.loop.progress.policy_watermark == 21)
    assert rules_met(node) == DENIES
    await until(lambda: not node.loop.progress.problems)
    assert node.loop.progress.watermark == 20, "farms that were programmed stay so"
    node.state.remove_policy(raw_policy(version=22))
    await until(lambda: bool(node.loop.progress.problems))
    assert rules_met(node) == ["drop"]


async def test_an_invalid_policy_lets_nobody_in(node: Node) -> None:
    node.state.put_policy(raw_policy(type="what", version=11))
    await node.program([guarded()], 20)
    assert rules_met(node) == ["drop"]
    assert node.reason() == "PolicyInvalid"


async def test_the_ranges_of_a_policy_change_without_a_look_at_its_farms(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([guarded()], 20)
    await node.passes(1)
    changes, compared = len(node.engine.changes), len(node.engine.compared)
    node.state.put_policy(raw_policy(version=21, generation=2, cidrs=["10.1.0.0/16", "10.3.0.0/16"]))
    await until(lambda: node.loop.progress.policy_watermark == 21)
    assert list(node.nft.sets["policy-default.list-ip"]) == ["10.1.0.0-10.1.255.255", "10.3.0.0-10.3.255.255"]
    assert (len(node.engine.changes), len(node.engine.compared)) == (changes, compared)


async def test_a_policy_that_turns_from_deny_to_allow_changes_the_rules(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([guarded()], 20)
    node.state.put_policy(raw_policy(version=21, generation=2, type="allow"))
    await until(lambda: node.loop.progress.policy_watermark == 21)
    assert rules_met(node) == ["ip saddr @policy-default.list-ip return", "drop"]


async def test_a_farm_keeps_its_policies_at_an_address_until_it_has_left_it(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([guarded()], 20)
    met: list[list[str]] = []
    apply = node.engine._apply  # noqa: SLF001 - a fake

    def noted(name: str, farm: NodeFarm | None) -> bool:
        met.extend([rules_met(node), rules_met(node, "10.96.0.11")])
        return apply(name, farm)

    node.engine._apply = noted  # type: ignore[method-assign]  # noqa: SLF001 - noted, and called
    await node.change(guarded(generation=2, version=21, addresses=[{"ip": "10.96.0.11", "ports": "80"}]))
    assert met[:2] == [DENIES, DENIES]
    assert (rules_met(node), rules_met(node, "10.96.0.11")) == ([], DENIES)


@pytest.mark.parametrize("spec", [{"addresses": [{"sourceRanges": ["10.0.0.0/8"]}]}, {"limits": {"new": "5/second"}}])
async def test_a_restarted_agent_refuses_clients_whose_rules_it_cannot_read(node: Node, spec: dict[str, Any]) -> None:
    await node.program([farm()], 20)
    await node.restart_agent()
    raw = {"metadata": {"namespace": "default", "name": "web--http"}, "spec": {"mode": "newer", **spec}}
    node.list([], 21)
    node.put_unreadable(WEB, 21, refers=policy_references.raw_references(raw))
    await node.settle(21)
    assert "web--http" in node.engine.farms
    assert node.nft.sets["no-endpoints-ip"]


async def test_a_restarted_agent_enforces_the_policies_of_a_farm_it_cannot_read(node: Node) -> None:
    node.state.put_policy(raw_policy())
    await node.program([guarded()], 20)
    await node.restart_agent([raw_policy()])
    node.list([], 21)
    node.put_unreadable(WEB, 21, refers=policy_references.raw_references(raw_farm(policies=["list"])))
    await node.settle(21)
    assert list(node.engine.farms) == ["web--http"]
    assert rules_met(node) == DENIES
    assert not node.nft.sets["no-endpoints-ip"]


async def test_limits_that_the_kernel_refuses_with_a_policy_are_reported_and_retried(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([farm(limits={"new": "3/second"}), guarded(name="other--http", addresses=OTHER)], 20)
    await node.passes(3)
    limited = dict(node.nft.sets["connections-ip"])
    assert limited
    node.nft.lacks = ("limit rate over 3/",)
    node.nft.damage()
    node.state.remove_policy(raw_policy(version=30))
    await until(lambda: node.reason() == "Refused")
    node.nft.lacks = ()
    await until(lambda: node.nft.sets["connections-ip"] == limited and not node.reason())
