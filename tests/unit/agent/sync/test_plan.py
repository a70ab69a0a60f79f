"""The plan of a batch: one decision for each farm, and the farms that come along because of an address."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from kube_nftlb.agent.engine.sent import SentFarms
from kube_nftlb.agent.model import Blocker, NodeFarm, SentFarm
from kube_nftlb.agent.sync.changes import Changes
from kube_nftlb.agent.sync.decide import Facts, Keep, Serve, Withdraw
from kube_nftlb.agent.sync.plan import Known, Plan, plan
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.table_text import Contents
from tests.builders import farm

HERE, THERE = Listener("10.96.0.10", "TCP", 80), Listener("10.96.0.11", "TCP", 80)


def at(listener: Listener, name: str, **spec: Any) -> Farm:
    return farm(name, addresses=[{"ip": listener.ip, "ports": str(listener.port)}], **spec)


class Node:
    """What is known on a node; counts the decisions on each farm."""

    def __init__(self, *farms: Farm, has: dict[str, Listener] | None = None) -> None:
        self.facts = {each.metadata.name: Facts(each) for each in farms}
        self.sent = SentFarms()
        for name, listener in (has or {}).items():
            self.sent.put(name, SentFarm("nftables", frozenset({listener}), 1, 1))
        self.unsupported: Callable[[NodeFarm], Blocker | None] = lambda _: None
        self.asked: list[str] = []

    def owners(self, listeners: Collection[Listener]) -> set[str]:
        return self.sent.owners(listeners)

    def plan(self, *names: str) -> Plan:
        def facts(key: FarmKey) -> Facts:
            self.asked.append(key.name)
            return self.facts.get(key.name, Facts(None))

        def key(name: str) -> FarmKey | None:
            return FarmKey("default", name) if name in self.facts else None

        def owners(listener: Listener) -> set[FarmKey]:
            farms = (each.farm for each in self.facts.values() if each.farm is not None)
            has = (each.metadata.name for each in farms if each.spec.addresses[0].ip == listener.ip)
            return {FarmKey("default", name) for name in has}

        known = Known(facts, key, owners, self, lambda _: Contents(), Changes(Policies()))
        return plan([FarmKey("default", name) for name in names], known)


def test_each_farm_is_decided_on_once() -> None:
    node = Node(at(HERE, "new"), at(THERE, "old"), has={"old": HERE})
    planned = node.plan("new", "old")
    assert sorted(node.asked) == ["new", "old"]
    assert [type(planned[name].decision) for name in ("new", "old")] == [Serve, Serve]


@pytest.mark.parametrize(
    ("old", "decision"),
    [
        (Facts(at(THERE, "old")), Serve),
        (Facts(None), Withdraw),
        (Facts(at(HERE, "old"), too_large="too large"), Withdraw),
    ],
)
def test_the_owner_of_an_address_comes_along(old: Facts, decision: type[object]) -> None:
    node = Node(at(HERE, "new"), has={"old": HERE})
    node.facts["old"] = old
    planned = node.plan("new")
    assert planned.keys() == {"new", "old"}
    assert isinstance(planned["old"].decision, decision)


@pytest.mark.parametrize("old", [Facts(at(THERE, "old")), Facts(None)], ids=["changed", "deleted"])
def test_what_is_to_get_an_address_comes_along_with_what_leaves_it(old: Facts) -> None:
    node = Node(at(HERE, "new"), at(THERE, "other"), has={"old": HERE})
    node.facts["old"] = old
    planned = node.plan("old")
    assert planned.keys() == {"old", "new"}
    assert isinstance(planned["new"].decision, Serve)


def test_the_owner_of_an_address_that_nobody_knows_is_withdrawn() -> None:
    planned = Node(at(HERE, "new"), has={"orphan": HERE}).plan("new")
    assert (planned["orphan"].key, planned["orphan"].change.is_withdrawal) == (None, True)


@pytest.mark.parametrize("old", [Facts(at(THERE, "old"), readable=False), Facts(at(THERE, "old"), refused="no")])
def test_an_owner_that_stays_keeps_its_address_and_is_left_alone(old: Facts) -> None:
    node = Node(at(HERE, "new"), has={"old": HERE})
    node.facts["old"] = old
    planned = node.plan("new")
    assert planned.keys() == {"new"}
    assert planned["new"].decision.problem is not None
    assert planned["new"].decision.problem.reason == "AddressInUse"


def test_a_farm_on_which_nobody_can_decide_stays_and_keeps_its_address() -> None:
    node = Node(at(HERE, "new"), at(THERE, "odd"), has={"odd": HERE})

    def broken(each: NodeFarm) -> Blocker | None:
        if each.key.name == "odd":
            raise RuntimeError("nobody thought of this")
        return None

    node.unsupported = broken
    planned = node.plan("new", "odd")
    assert isinstance(planned["odd"].decision, Keep)
    assert isinstance(planned["new"].decision, Withdraw)


def test_what_is_expected_of_a_farm_needs_no_farm() -> None:
    node = Node(at(HERE, "web"), at(HERE, "large"))
    node.facts["large"] = Facts(at(HERE, "large"), too_large="too large")
    planned = node.plan("web", "large", "gone")
    assert planned["web"].expected == (True, False, 1, None, (), None, False)
    assert planned["gone"].expected == (False, True, 0, None, (), None, False)
    large = planned["large"].expected
    assert large.problem is not None
    assert large.problem.reason == "TooManyElements"
