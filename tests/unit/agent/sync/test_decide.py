"""The decision about a farm on a node, for everything that may be known of it."""

from typing import Any

import pytest

from kube_nftlb.agent.model import Blocker, NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.decide import Decision, Facts, Keep, Serve, Withdraw, avoid, decide, stays
from kube_nftlb.api.conflicts import Conflict, FarmKey, Loss
from kube_nftlb.api.farm.engines import Engine
from kube_nftlb.api.listeners import Listener
from tests.builders import farm, raw_backend

NODE = NodeFacts("node-1", port_ips={"ipv4": ("172.31.0.11",)})
WEB = farm(generation=7)
DSR = farm(generation=7, mode="dsr", backends=[raw_backend("pod-a", "10.244.1.2", 80)])
DSR_WITH_QUEUE = farm(generation=7, mode="dsr", queue=3)
TWO = farm(
    generation=7, addresses=[{"ip": "10.96.0.10", "ports": "80,8000-8003"}, {"ip": "203.0.113.9", "ports": "80"}]
)
MINE = Listener("10.96.0.10", "TCP", 80)


def lost(*listeners: Listener, everything: bool = True) -> Loss:
    old = FarmKey("default", "old")
    return Loss(tuple(Conflict(old, listener, listener) for listener in listeners), everything)


CLUSTER_IP = lost(MINE)
NODE_IP = lost(Listener("172.31.0.11", "TCP", 30080))
WHOLE_NODE_IP = lost(Listener("172.31.0.11", "TCP", 0))
KEEPS = Blocker("Unsupported", "too many backends")
REFUSES_CLIENTS = Blocker("NftlbDefect", "not in this mode", refuse_clients=True)


def decided(facts: Facts, blocker: Blocker | None = None, stuck_owner: str | None = None) -> Decision:
    decision = decide(facts._replace(node=NODE), lambda _: blocker)
    if not isinstance(decision, Serve):
        return decision
    return avoid(decision, dict.fromkeys(decision.farm.listeners, stuck_owner) if stuck_owner else {})


CASES: dict[str, tuple[Facts, dict[str, Any], type[Decision], str | None]] = {
    "served": (Facts(WEB), {}, Serve, None),
    "gone": (Facts(None), {}, Withdraw, None),
    "never understood": (Facts(None, readable=False), {}, Keep, None),
    "no longer understood": (Facts(WEB, readable=False), {}, Keep, None),
    "no longer understood, and loses": (Facts(WEB, readable=False, loss=CLUSTER_IP), {}, Keep, None),
    "loses, as the operator reports": (Facts(WEB, loss=CLUSTER_IP), {}, Withdraw, None),
    "loses an address of this node": (Facts(WEB, loss=NODE_IP), {}, Withdraw, "AddressInUse"),
    "gets it when the other farm of its Service is written": (
        Facts(WEB, loss=NODE_IP, of_same_service=frozenset({FarmKey("default", "old")})),
        {},
        Withdraw,
        None,
    ),
    "loses all ports of the node": (Facts(WEB, loss=WHOLE_NODE_IP), {}, Withdraw, "AddressInUse"),
    "rules refused": (Facts(WEB, rules_refused="no"), {}, Keep, "Refused"),
    "rules refused, and loses": (Facts(WEB, rules_refused="no", loss=CLUSTER_IP), {}, Withdraw, None),
    "rules refused a moment ago": (Facts(WEB, rules_refused="no", backing_off=True), {}, Keep, "Refused"),
    "backing off": (Facts(WEB, backing_off=True), {}, Withdraw, None),
    "feature missing": (Facts(WEB, missing_feature="no queue"), {}, Keep, "KernelFeatureMissing"),
    "feature missing, backing off": (Facts(WEB, missing_feature="no queue", backing_off=True), {}, Withdraw, None),
    "stays as it was": (Facts(WEB), {"blocker": KEEPS}, Keep, "Unsupported"),
    "refuses clients": (Facts(WEB), {"blocker": REFUSES_CLIENTS}, Serve, "NftlbDefect"),
    "settings need connection tracking": (Facts(DSR_WITH_QUEUE), {"blocker": KEEPS}, Serve, "Unsupported"),
    "dsr without a pod here": (Facts(DSR), {}, Serve, "NoLocalBackend"),
    "dsr that the engine cannot serve": (Facts(DSR), {"blocker": KEEPS}, Keep, "Unsupported"),
    "owner is stuck": (Facts(WEB), {"stuck_owner": "old"}, Withdraw, "AddressInUse"),
    "refuses clients, but the owner is stuck": (
        Facts(WEB),
        {"blocker": REFUSES_CLIENTS, "stuck_owner": "old"},
        Withdraw,
        "AddressInUse",
    ),
    "stays as it was, wherever the owner is stuck": (
        Facts(WEB),
        {"blocker": KEEPS, "stuck_owner": "old"},
        Keep,
        "Unsupported",
    ),
}


@pytest.mark.parametrize(("facts", "engine", "kind", "reason"), CASES.values(), ids=CASES)
def test_decision(facts: Facts, engine: dict[str, Any], kind: type[Decision], reason: str | None) -> None:
    decision = decided(facts, **engine)
    assert type(decision) is kind
    assert (decision.problem.reason if decision.problem else None) == reason
    assert decision.problem is None or decision.problem.generation == 7


@pytest.mark.parametrize("backing_off", [False, True])
def test_only_a_farm_whose_address_is_stuck_is_retried(backing_off: bool) -> None:
    decision = decided(Facts(WEB, backing_off=backing_off), stuck_owner="old")
    assert isinstance(decision, Withdraw)
    assert decision.retry is not backing_off


def test_a_farm_is_served_as_the_node_sees_it() -> None:
    decision = decided(Facts(WEB))
    assert isinstance(decision, Serve)
    assert (decision.farm.key, decision.farm.version.generation) == (FarmKey("default", "web--http"), 7)
    assert list(decision.farm.listeners) == [Listener("10.96.0.10", "TCP", 80)]
    assert [endpoint.backend.name for endpoint in decision.farm.endpoints] == ["pod-a"]
    assert not decision.farm.refuses


def test_a_farm_that_refuses_clients_listens_without_endpoints() -> None:
    decision = decided(Facts(WEB), blocker=REFUSES_CLIENTS)
    assert isinstance(decision, Serve)
    assert list(decision.farm.listeners) == [Listener("10.96.0.10", "TCP", 80)]
    assert (decision.farm.endpoints, decision.farm.direct) == ((), None)
    assert decision.farm.suspended
    assert decision.farm.refuses


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (NODE_IP, "farm default/old has 172.31.0.11 port 30080 TCP, an address of this node"),
        (WHOLE_NODE_IP, "farm default/old has 172.31.0.11, an address of this node"),
    ],
)
def test_a_lost_address_of_the_node_is_named(loss: Loss, message: str) -> None:
    problem = decided(Facts(WEB, loss=loss)).problem
    assert problem is not None
    assert problem.message == message


def test_the_stuck_owner_is_named() -> None:
    problem = decided(Facts(WEB), stuck_owner="old").problem
    assert problem is not None
    assert problem.message.startswith("old still has 10.96.0.10 port 80 TCP: ")


def test_a_farm_serves_the_listeners_that_no_other_has() -> None:
    external = Listener("203.0.113.9", "TCP", 80)
    decision = decided(Facts(TWO, loss=lost(external, Listener("10.96.0.10", "TCP", 8001), everything=False)))
    assert isinstance(decision, Serve)
    assert [(each.ip, each.ports) for each in decision.farm.addresses] == [
        ("10.96.0.10", "80"),
        ("10.96.0.10", "8000"),
        ("10.96.0.10", "8002-8003"),
    ]
    assert decision.problem is None, "the operator reports it"


def test_a_farm_serves_the_listeners_on_which_nobody_is_stuck() -> None:
    external = Listener("203.0.113.9", "TCP", 80)
    alone = decide(Facts(TWO), lambda _: None)
    assert isinstance(alone, Serve)
    decision = avoid(alone, {external: "old"})
    assert isinstance(decision, Serve)
    assert {each.ip for each in decision.farm.addresses} == {"10.96.0.10"}
    assert decision.look_again
    assert decision.problem is not None
    assert decision.problem.message.startswith("old still has 203.0.113.9 port 80 TCP: ")


def test_the_engine_is_asked_for_the_farm_as_the_node_sees_it() -> None:
    asked: list[NodeFarm] = []

    def unsupported(each: NodeFarm) -> Blocker | None:
        asked.append(each)
        return None

    decision = decide(Facts(WEB), unsupported)
    assert isinstance(decision, Serve)
    assert asked == [decision.farm]


@pytest.mark.parametrize(
    ("facts", "engine", "kind"), [(facts, engine, kind) for facts, engine, kind, _ in CASES.values()], ids=CASES
)
def test_a_farm_that_is_kept_stays_wherever_others_are_stuck(
    facts: Facts, engine: dict[str, Any], kind: type[Decision]
) -> None:
    blocker = engine.get("blocker")
    assert stays(decide(facts, lambda _: blocker), None) is (kind is Keep)


@pytest.mark.parametrize(("sent_by", "stuck"), [("nftables", True), ("nftlb", False), (None, False)])
def test_a_farm_that_waits_for_nftlb_loses_its_addresses_unless_it_is_still_in_nftables(
    sent_by: Engine | None, stuck: object
) -> None:
    away = Blocker("NftlbUnreachable", "connection refused")
    assert stays(decide(Facts(WEB), lambda _: away), sent_by) is stuck
