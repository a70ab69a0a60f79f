"""Decisions become changes: what a farm has in the agent table while and after it is applied."""

import pytest

from kube_nftlb.agent.model import SentFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.changes import Changes, FarmChange
from kube_nftlb.agent.sync.decide import Decision, Facts, Keep, Serve, Withdraw
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table import layout, policy_references, policy_sets, source_ranges
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.api.conflicts import Conflict, FarmKey, Loss
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.table_text import Contents
from tests.builders import farm, raw_policy
from tests.fakes.node import WEB

NAME = "web--http"
OLD, NEW = Listener("10.96.0.9", "TCP", 80), Listener("10.96.0.10", "TCP", 80)
LIMITED = farm(policies=["list"], limits={"new": "5/second"})
SERVE = Serve(node_farm(LIMITED, NodeFacts(), None))
OWNED = layout.refused([OLD])
SERVING = SentFarm("nftlb", frozenset({OLD}), 1, 1)
REFUSING = SentFarm("nftlb", frozenset({OLD}), 1, 0)


@pytest.fixture
def changes() -> Changes:
    known = Policies()
    known.put(raw_policy())
    known.put_all({key: policy_sets.policy(raw) for key, raw in known.take().items() if raw is not None})
    known.refer(WEB, policy_references.references(LIMITED))
    return Changes(known)


def make(
    changes: Changes,
    decision: Decision,
    sent: SentFarm | None = SERVING,
    facts: Facts = Facts(LIMITED),  # noqa: B008 - immutable
    *,
    known: bool = True,
) -> FarmChange:
    owned = OWNED if known else Contents()
    return changes.make(WEB, NAME, decision, facts, sent, owned=owned)


def keys(contents: Contents | None, set_: str) -> set[str]:
    return {entry.key for entry in contents.elements if entry.set == set_} if contents is not None else set()


def test_a_farm_that_is_served_has_policies_where_it_was_and_will_be(changes: Changes) -> None:
    change = make(changes, SERVE)
    assert (change.farm, change.keep) == (SERVE.farm, False)
    assert keys(change.policies, "policy-ip") == {"tcp . 10.96.0.9 . 80", "tcp . 10.96.0.10 . 80"}
    assert keys(change.policies_after, "policy-ip") == {"tcp . 10.96.0.10 . 80"}
    assert change.overlay is not None
    assert "connections-web--http" in [chain.name for chain in change.overlay.chains]


@pytest.mark.parametrize("decision", [Withdraw(), Keep()])
def test_a_farm_that_is_not_in_the_engine_has_nothing(changes: Changes, decision: Decision) -> None:
    assert make(changes, decision, None) == FarmChange(NAME)


def test_a_farm_that_is_withdrawn_has_policies_until_it_is_gone(changes: Changes) -> None:
    change = make(changes, Withdraw())
    assert (change.farm, change.keep, change.overlay, change.policies_after) == (None, False, Contents(), Contents())
    assert keys(change.policies, "policy-ip") == {"tcp . 10.96.0.9 . 80"}


def test_a_farm_that_is_kept_keeps_what_the_agent_table_has(changes: Changes) -> None:
    change = make(changes, Keep())
    assert (change.farm, change.keep, change.overlay) == (None, True, None)
    assert change.policies == change.policies_after
    assert keys(change.policies, "policy-ip") == {"tcp . 10.96.0.9 . 80"}


@pytest.mark.parametrize(
    ("facts", "sent", "refused"),
    [
        (Facts(None, readable=False), SERVING, False),
        (Facts(None, readable=False, restricted=True), SERVING, True),
        (Facts(None, readable=False), REFUSING, True),
        (Facts(LIMITED, rules_refused="no"), SERVING, True),
        (Facts(LIMITED), SERVING, False),
        (Facts(LIMITED), REFUSING, True),
    ],
)
def test_a_new_agent_refuses_clients_of_a_farm_that_is_kept_if_in_doubt(
    changes: Changes, facts: Facts, sent: SentFarm, refused: object
) -> None:
    change = make(changes, Keep(), sent, facts, known=False)
    assert change.keep
    assert ("tcp . 10.96.0.9 . 80" in keys(change.overlay, "no-endpoints-ip")) is refused
    assert keys(change.policies, "policy-ip") == {"tcp . 10.96.0.9 . 80"}


def test_a_new_agent_gives_a_kept_farm_the_options_every_kernel_has(changes: Changes) -> None:
    impossible = farm(limits={"new": "5/second"}, queue=3, helper="ftp")
    change = make(changes, Keep(), facts=Facts(impossible), known=False)
    assert change.farm is not None
    assert change.overlay is not None
    assert "connections-web--http" in [chain.name for chain in change.overlay.chains]
    assert not [rule for chain in change.overlay.chains for rule in chain.rules if "queue" in rule or "helper" in rule]


def test_a_farm_of_no_key_has_no_policies(changes: Changes) -> None:
    change = changes.make(None, NAME, Withdraw(), Facts(None), SERVING, owned=OWNED)
    assert change == FarmChange(NAME)


def test_a_farm_whose_engine_is_away_gets_its_source_ranges_and_policies(changes: Changes) -> None:
    away = Keep(Problem("NftlbUnreachable", "it does not answer"))
    limited = farm(policies=["list"], addresses=[{"ip": NEW.ip, "ports": "80", "sourceRanges": ["192.0.2.0/24"]}])
    change = make(changes, away, facts=Facts(limited))
    assert change.keep
    assert keys(change.overlay, "no-endpoints-ip") == {"tcp . 10.96.0.9 . 80"}, "the rest is as it was"
    assert keys(change.overlay, "source-ranges-ip") == {"tcp . 10.96.0.10 . 80"}
    assert keys(change.policies, "policy-ip") == {"tcp . 10.96.0.9 . 80", "tcp . 10.96.0.10 . 80"}
    assert change.policies == change.policies_after


AWAY = Keep(Problem("NftlbUnreachable", "it does not answer"))
RANGES = ["192.0.2.0/24"]


@pytest.mark.parametrize("known", [True, False])
def test_a_farm_whose_engine_is_away_restricts_no_listener_that_another_has(changes: Changes, *, known: bool) -> None:
    limited = farm(policies=["list"], addresses=[{"ip": NEW.ip, "ports": "80,81", "sourceRanges": RANGES}])
    loss = Loss((Conflict(FarmKey("other", "web--http"), NEW, NEW),), everything=False)
    change = make(changes, AWAY, facts=Facts(limited, loss=loss), known=known)
    served = {listener.port for listener in change.farm.listeners} if change.farm is not None else {81}
    assert served == {81}
    assert keys(change.overlay, "source-ranges-ip") == ({"tcp . 10.96.0.10 . 81"} if known else set())
    assert keys(change.policies, "policy-ip") == {"tcp . 10.96.0.9 . 80", "tcp . 10.96.0.10 . 81"}


def test_a_new_agent_whose_engine_is_away_gives_its_farms_all_that_they_need(changes: Changes) -> None:
    wanted = farm(limits={"new": "5/second"}, addresses=[{"ip": NEW.ip, "ports": "80", "sourceRanges": RANGES}])
    change = make(changes, AWAY, None, Facts(wanted), known=False)
    assert change.keep
    assert change.farm is not None, "what its engine needs in the table"
    assert change.overlay == make(changes, Serve(node_farm(wanted, NodeFacts(), None))).overlay


def test_source_ranges_are_replaced_at_the_listeners_of_the_farm_alone() -> None:
    def contents(ip: str, *ranges: str) -> Contents:
        addresses = [{"ip": ip, "ports": "80", **({"sourceRanges": list(ranges)} if ranges else {})}]
        return source_ranges.contents(node_farm(farm(addresses=addresses), NodeFacts(), None))

    here, there = contents(NEW.ip, "192.0.2.0/24"), contents(OLD.ip, "192.0.2.0/24")
    open_ = node_farm(farm(addresses=[{"ip": NEW.ip, "ports": "80"}]), NodeFacts(), None)
    assert not source_ranges.renewed(here, open_).elements
    assert source_ranges.renewed(there, open_) == there
    narrow = node_farm(
        farm(addresses=[{"ip": NEW.ip, "ports": "80", "sourceRanges": ["10.0.0.0/8"]}]), NodeFacts(), None
    )
    assert source_ranges.renewed(here, narrow) == contents(NEW.ip, "10.0.0.0/8")
    both = source_ranges.renewed(there, narrow)
    assert both == there | contents(NEW.ip, "10.0.0.0/8"), "each listener has its own ranges"
    assert len(both.chains) == 2
    assert source_ranges.renewed(both, open_) == there, "a chain that nothing jumps to is gone"
