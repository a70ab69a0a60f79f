"""The loop with policies: they keep clients out from the first moment to the last."""

import re
from typing import Any, NamedTuple

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.model import Blocker, NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import policy_references
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.policy import PolicyKey
from tests.builders import farm, raw_policy
from tests.fakes import nft
from tests.fakes.node import WEB, until
from tests.unit.agent.sync.conftest import Node

OTHER = [{"ip": "10.96.0.11", "ports": "80"}]
DENIES = ["ip saddr @denied-default.list-ip drop"]


def guarded(version: int = 10, **changes: Any) -> Farm:
    return farm(version=version, **{"policies": ["list"], **changes})


def rules_met(node: Node, ip: str = "10.96.0.10", port: int = 80) -> list[str]:
    """The rules that clients of a listener meet."""
    key = f"tcp . {ip} . {port}"
    # The command that added it may have added others too.
    added = node.nft.sets.get("policy-ip", {}).get(key, "").partition(f"{key} : jump ")[2]
    return nft.rules_met(added.partition(",")[0].strip("} "), node.nft.chains, node.nft.sets)


async def test_a_listed_policy_is_enforced_with_the_first_farms(node: Node) -> None:
    await node.stop()
    node.start(policies=None)
    node.list([guarded()], 20)
    await node.passes(1)
    assert node.engine.farms == {}
    node.state.replace_policies([raw_policy()], 20)
    await node.settle(20)
    assert rules_met(node) == DENIES


@pytest.mark.parametrize("type_", ["allow", "deny"])
async def test_a_changed_policy_keeps_clients_out_of_a_farm_of_which_only_an_nftlb_knows_that_is_away(
    node: Node, monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    other = farm("other--http", engine="nftables", addresses=OTHER)
    node.state.put_policy(raw_policy())
    await node.program([guarded(), other], 20)
    await node.stop()
    node.start([raw_policy()])
    node.engine.farms.clear()
    node.engine.reachable, node.engine.hangs = False, True
    node.list([guarded(), other], 20)
    await node.settle(20)
    assert rules_met(node) == DENIES
    met, run = [], node.nft.run

    async def noted(commands: str) -> None:
        await run(commands)
        met.append(rules_met(node))

    monkeypatch.setattr(node.nft, "run", noted)
    node.state.put_policy(raw_policy(version=21, generation=2, type=type_, cidrs=["10.9.0.0/16"]))
    await until(lambda: node.loop.progress.policy_watermark == 21)
    await node.passes(1)
    assert met
    assert all(met)
    assert rules_met(node) == (DENIES if type_ == "deny" else ["ip saddr @allowed-default.list-ip return", "drop"])


async def test_nobody_is_served_at_an_address_that_a_farm_leaves_with_its_engine_while_nftlb_hangs(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nftlb goes on serving the farm there, and only the agent table can keep clients out."""
    left = "tcp . 10.96.0.11 . 80"
    addresses = [{"ip": "10.96.0.10", "ports": "80"}, {**OTHER[0], "sourceRanges": ["10.0.0.0/8"]}]
    node.state.put_policy(raw_policy())
    # With another farm of the engine nftables the loop goes on without nftlb.
    other = farm("other--http", engine="nftables", addresses=[{"ip": "10.96.0.12", "ports": "80"}])
    await node.program([guarded(addresses=addresses), other], 20)
    assert rules_met(node, "10.96.0.11") == DENIES
    known = dict(node.engine.farms)
    open_, run = [], node.nft.run

    async def noted(commands: str) -> None:
        await run(commands)
        kept_out = left in node.nft.sets["given-up-ip"] or bool(rules_met(node, "10.96.0.11"))
        if WEB.name in node.engine.farms and not kept_out and "taking--http" not in node.nftables.farms:
            open_.append(commands)

    monkeypatch.setattr(node.nft, "run", noted)
    node.engine.reachable, node.engine.hangs = False, True
    moved = guarded(generation=2, version=21, engine="nftables", addresses=addresses[:1])
    await node.change(moved)
    assert left in node.nft.sets["given-up-ip"]
    assert rules_met(node) == DENIES
    await node.change(guarded(generation=3, version=22, engine="nftables", addresses=addresses[:1], scheduler="weight"))
    assert left in node.nft.sets["given-up-ip"]

    taking = farm("taking--http", engine="nftables", addresses=OTHER, version=23)
    node.nftables.deviations[taking.metadata.name], node.nftables.irreparable = "it is not there", {"taking--http"}
    await node.change(taking)
    assert (node.reason(taking.metadata.name), "taking--http" in node.nftables.farms) == ("Refused", False)
    assert left in node.nft.sets["given-up-ip"], "what is withdrawn after it was verified brings back no other farm"
    node.remove(WEB._replace(name="taking--http"), 24)
    await node.settle(24)

    waiting = farm("waiting--http", addresses=OTHER)
    for _ in range(2):
        await node.stop()
        node.start([raw_policy()])
        node.engine.farms.clear()
        node.engine.reachable, node.engine.hangs = False, True
        node.list([moved, other, waiting], 25)
        await node.settle(25)
        assert node.reason(waiting.metadata.name) == "NftlbUnreachable"
        assert left in node.nft.sets["given-up-ip"], "an agent that starts knows it from the table alone"

    node.engine.farms.update(known)
    node.engine.reachable = True
    await until(lambda: list(node.engine.farms) == ["waiting--http"] and not node.nft.sets["given-up-ip"])
    assert not open_


@pytest.mark.parametrize("engine", ["nftlb", "nftables", None])
async def test_nobody_is_let_in_where_only_an_nftlb_that_hangs_may_have_a_farm_that_has_left(
    node: Node, engine: str | None
) -> None:
    left, other = "tcp . 10.96.0.10 . 80", farm("other--http", engine="nftables", addresses=OTHER)
    node.state.put_policy(raw_policy())
    await node.program([guarded(), other], 20)
    known = dict(node.engine.farms)
    await node.restart_agent([raw_policy()])
    node.engine.farms.clear()
    node.engine.reachable, node.engine.hangs = False, True
    await node.program([guarded(), other], 20)
    moved = [{"ip": "10.96.0.12", "ports": "80"}]
    if engine is None:
        node.remove(WEB, 21)
    else:
        node.put(guarded(generation=2, version=21, engine=engine, addresses=moved))
    await node.settle(21)
    kept_out = (DENIES, []) if engine == "nftlb" else ([], [left])
    assert (rules_met(node), list(node.nft.sets["given-up-ip"])) == kept_out

    node.nftables.error = errors.KernelError("the pass fails, and the loop begins again")
    await node.change(
        farm("third--http", engine="nftables", addresses=[{"ip": "10.96.0.13", "ports": "80"}], version=22)
    )
    assert (rules_met(node), list(node.nft.sets["given-up-ip"])) == kept_out
    await node.change(farm("taking--http", engine="nftables", version=23))
    if engine == "nftlb":
        await node.change(guarded(generation=3, version=24, addresses=moved, scheduler="weight"))
    assert (rules_met(node), list(node.nft.sets["given-up-ip"])) == ([], [left]), "its rules would be for both"
    node.engine.farms.update(known)
    node.engine.reachable = True
    await until(lambda: node.engine.farms != known and not node.nft.sets["given-up-ip"])
    assert not rules_met(node)


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
    assert list(node.nft.sets["denied-default.list-ip"]) == ["10.1.0.0-10.1.255.255", "10.3.0.0-10.3.255.255"]
    assert (len(node.engine.changes), len(node.engine.compared)) == (changes, compared)


async def test_a_node_port_has_its_own_policies_at_the_addresses_of_the_node(node: Node) -> None:
    node.state.set_node(NodeFacts("node-1", port_ips={"ipv4": ("172.31.0.11",)}), {})
    node.state.put_policy(raw_policy(version=11))
    addresses = [*OTHER, {"type": "NodePort", "ip": "", "ports": "30080", "policies": ["list"]}]
    await node.program([farm(addresses=addresses)], 20)
    assert (rules_met(node, "172.31.0.11", 30080), rules_met(node, "10.96.0.11")) == (DENIES, [])


async def test_a_policy_that_turns_from_deny_to_allow_changes_the_rules(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([guarded()], 20)
    node.state.put_policy(raw_policy(version=21, generation=2, type="allow"))
    await until(lambda: node.loop.progress.policy_watermark == 21)
    assert rules_met(node) == ["ip saddr @allowed-default.list-ip return", "drop"]


CROWD = {f"web-{number}": f"10.96.1.{number}" for number in range(100)}


class Transaction(NamedTuple):
    """A change of the agent table, and what is so once it is made."""

    written: int
    """The number of farms whose rules it has."""
    met: list[list[str]]
    """The rules that clients of the crowd meet."""
    by_another: list[str]
    """Those that clients of the farm of another namespace meet."""
    watermark: int


async def with_crowd(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[Transaction]:
    """Program a hundred farms with a policy, and one of another namespace. Return each transaction from now on."""
    of_crowd = [guarded(name=name, addresses=[{"ip": ip, "ports": "80"}]) for name, ip in CROWD.items()]
    node.state.put_policy(raw_policy(version=11))
    await node.program([*of_crowd, guarded(namespace="shop", addresses=OTHER)], 20)
    await node.passes(1)
    found, run = list[Transaction](), node.nft.run

    async def noted(commands: str) -> None:
        await run(commands)
        written = set(re.findall(r"chain inet kube-nftlb policy-(web-\d+)-", commands))
        met = [rules_met(node, ip) for ip in CROWD.values()]
        found.append(Transaction(len(written), met, rules_met(node, "10.96.0.11"), node.state.policies.watermark))

    monkeypatch.setattr(node.nft, "run", noted)
    return found


async def test_a_policy_changes_its_type_at_once_and_none_of_its_farms(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = await with_crowd(node, monkeypatch)
    changes = len(node.engine.changes)
    node.state.put_policy(raw_policy(version=21, generation=2, type="allow"))
    await until(lambda: node.loop.progress.policy_watermark == 21)
    await node.passes(1)
    assert [(each.written, each.met) for each in transactions] == [
        (0, [["ip saddr @allowed-default.list-ip return", "drop"]] * 100)
    ]
    assert len(node.engine.changes) == changes


async def test_a_policy_that_goes_and_comes_back_lets_nobody_in_and_its_farms_take_turns_with_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = await with_crowd(node, monkeypatch)
    sets = {f"{kind}-default.list-{family}" for kind in ("denied", "allowed") for family in ("ip", "ip6")}
    assert sets <= node.nft.sets.keys()
    node.state.remove_policy(raw_policy(version=21))
    await until(lambda: not sets & node.nft.sets.keys())
    assert all(each.met == [["drop"]] * 100 for each in transactions), "at once"

    node.state.put_policy(raw_policy(version=22))
    node.state.put_policy(raw_policy(version=23, namespace="shop"))
    await until(lambda: node.loop.progress.policy_watermark == 23)
    assert transactions[-1].met == [DENIES] * 100
    assert all(rules in (["drop"], DENIES) for each in transactions for rules in each.met)
    by_another = next(each for each in transactions if each.by_another != ["drop"])
    assert by_another.met.count(["drop"]) >= 50, "the farm of another namespace does not wait for all of these"
    assert by_another.watermark < 22, "the policy is not programmed where farms do not have it"
    assert max(each.written for each in transactions) <= 32


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


async def test_an_address_that_the_engine_does_not_leave_keeps_the_policies_that_it_alone_had(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    own = {"ip": "10.96.0.10", "ports": "80", "policies": ["list"]}
    await node.program([farm(addresses=[own, *OTHER])], 20)
    node.engine.refused["web--http"] = "out of memory"
    await node.change(farm(generation=2, version=21, addresses=OTHER))
    assert node.reason() == "Refused"
    node.state.set_node(NodeFacts("node-2"), {})
    await node.change(farm(generation=3, version=22, addresses=OTHER, priority=2))
    assert rules_met(node) == DENIES, "however often it is changed and decided on"
    node.engine.refused.clear()
    await until(lambda: not node.reason())
    assert rules_met(node) == []


async def test_a_policy_for_the_whole_farm_also_counts_at_an_address_that_the_engine_does_not_leave(node: Node) -> None:
    for number, name in enumerate(("list", "ban")):
        node.state.put_policy(raw_policy(name=name, version=11 + number))
    both = [{"ip": "10.96.0.10", "ports": "80"}, *OTHER]
    await node.program([farm(addresses=both, policies=["list"])], 20)
    node.engine.reachable, node.engine.hangs = False, True
    await node.change(farm(generation=2, version=21, addresses=OTHER, policies=["list", "ban"]))
    assert node.reason() == "NftlbUnreachable"
    denied = [rule for rule in rules_met(node) if rule.endswith("drop")]
    assert [name for name in ("list", "ban") if any(f".{name}-" in rule for rule in denied)] == ["list", "ban"]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("unsupported", "Unsupported"),
        ("refused", "Refused"),
        ("in part another's", "AddressInUse"),
        ("another's", "AddressInUse"),
        ("waits", "NftlbUnreachable"),
        ("changes before it is verified", "PolicyMissing"),
        ("changes before it is programmed", "PolicyMissing"),
    ],
)
async def test_what_is_remembered_of_a_farm_that_changes_again_and_again_is_bounded(
    node: Node, what: str, reason: str
) -> None:
    taken = [{**OTHER[0], "ports": "80-120"}]
    owner = farm("old--http", engine="nftables", created="2020-01-01T00:00:00Z", addresses=taken)
    node.state.set_node(NodeFacts("node-1", port_ips={"ipv4": ("10.96.0.11",)}), {})
    await node.program([guarded(), owner], 20)
    node.state.put_policy(raw_policy())
    if what == "unsupported":
        node.engine.blockers["web--http"] = Blocker("Unsupported", "no")
    node.engine.refused = {"web--http": "no"} if what == "refused" else {}
    node.engine.reachable, node.engine.hangs = what != "waits", True
    await node.passes(2)
    drift, remembered = node.engine.drift, list[list[int]]()

    def change(number: int) -> None:
        ip = "10.96.0.11" if what == "another's" else "10.96.1.1"
        own = {"ip": ip, "ports": str(80 + number), "policies": [f"p{number}"]}
        addresses = [own, *OTHER] if what == "in part another's" else [own]
        node.put(farm(version=30 + number, generation=1 + number, addresses=addresses))
        keys = {number: PolicyKey("default", f"p{number}") for number in range(1, 31)}
        remembered.append([number for number, key in keys.items() if node.state.policies.referring(key)])

    async def changes_first(name: str | None = None) -> str | None:
        if name == "web--http" and len(remembered) < 30:
            change(len(remembered) + 1)
        return await drift(name)

    if what == "changes before it is verified":
        node.engine.drift = changes_first  # type: ignore[method-assign]  # noted, and called
        change(1)
    else:
        for number in range(1, 31):
            change(number)
            if what != "changes before it is programmed":
                await node.settle(30 + number)
    await node.settle(60)
    assert node.reason() == reason
    assert max(map(len, remembered)) <= 3, "what the engine has, what it was asked for, and what it is to have now"
    stays = what in ("unsupported", "refused", "waits")
    assert rules_met(node) == (DENIES if stays else []), "it is guarded where it is, and nowhere else"


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


@pytest.mark.parametrize("type_", ["allow", "deny"])
async def test_a_policy_whose_ranges_the_kernel_refuses_is_told_and_tried_again_and_holds_nobody_else(
    node: Node, type_: str
) -> None:
    listed = "denied" if type_ == "deny" else "allowed"
    node.state.put_policy(raw_policy(version=11, type=type_))
    node.state.put_policy(raw_policy(name="fine", version=12, type=type_))
    others = guarded(name="other--http", addresses=OTHER, policies=["fine"])
    await node.program([guarded(), others], 20)
    admitted = rules_met(node)
    node.nft.lacks = ("10.3.0.0",)
    node.state.put_policy(raw_policy(version=21, generation=2, type=type_, cidrs=["10.3.0.0/16"]))
    node.state.put_policy(raw_policy(name="fine", version=22, generation=2, type=type_, cidrs=["10.4.0.0/16"]))
    await until(lambda: node.reason() == "Refused")
    assert rules_met(node) == ["drop"], "nobody knows whom it would admit"
    assert "NftlbPolicy 'list'" in node.loop.progress.problems[WEB].message
    assert len(node.loop.progress.problems) == 1
    assert list(node.nft.sets[f"{listed}-default.fine-ip"]) == ["10.4.0.0-10.4.255.255"]
    await node.change(farm(name="third--http", addresses=[{"ip": "10.96.0.12", "ports": "80"}], version=30))
    assert node.loop.progress.last_error is None
    node.nft.lacks = ()
    await until(lambda: rules_met(node) == admitted and not node.reason())
    assert list(node.nft.sets[f"{listed}-default.list-ip"]) == ["10.3.0.0-10.3.255.255"]


async def test_a_policy_that_the_kernel_refuses_as_the_table_is_made_anew_admits_nobody(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11, cidrs=["10.3.0.0/16"]))
    await node.program([guarded()], 20)
    node.nft.lacks = ("10.3.0.0",)
    node.nft.damage()
    node.reader.foreign_changes += 1
    await until(lambda: node.reason() == "Refused")
    assert rules_met(node) == ["drop"]
    node.nft.lacks = ()
    await until(lambda: rules_met(node) == DENIES and not node.reason())


async def test_rules_for_policies_that_the_kernel_refuses_leave_their_farm_as_it_was(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([guarded()], 20)
    node.nft.lacks = ("tcp . 10.96.0.11 . 80",)
    node.state.put(guarded(generation=2, version=21, addresses=OTHER))
    node.state.put(farm(name="third--http", addresses=[{"ip": "10.96.0.12", "ports": "80"}], version=22))
    await until(lambda: node.reason() == "Refused" and "third--http" in node.engine.farms)
    assert rules_met(node) == DENIES
    assert node.loop.progress.last_error is None
    node.nft.lacks = ()
    await until(lambda: rules_met(node, "10.96.0.11") == DENIES and not node.reason())


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
