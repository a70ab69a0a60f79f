"""Agents that no longer report."""

from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.node_changes import NodeChanges
from kube_nftlb.operator.cache.node_record import Heartbeats, parse_node
from kube_nftlb.operator.readiness.gated_ips import counting_nodes
from tests.builders import raw_nftlb_node
from tests.fakes.clock import FakeClock


def test_an_agent_is_silent_that_has_not_reported_while_others_have() -> None:
    clock = FakeClock()
    beats = Heartbeats(clock.now, 180)
    for name in ("n1", "n2", "old"):
        beats.heard(name, "12:00" if name != "old" else "")
    for second in range(0, 181, 20):
        clock.time = 1000 + second
        beats.contact()
        beats.heard("n1", f"12:00:{second}")
    assert beats.silent() == []
    clock.time += 1
    beats.contact()
    assert beats.silent() == ["n2"], "agents of older versions give no time"
    beats.heard("n2", "12:04")
    assert beats.silent() == []


def test_nobody_is_silent_while_the_api_server_is_away_nor_as_soon_as_it_is_back() -> None:
    clock = FakeClock()
    beats = Heartbeats(clock.now, 180)
    beats.heard("n1", "12:00")
    clock.time += 3600
    assert beats.silent() == []
    for _ in range(10):
        beats.contact()
        assert beats.silent() == []
        clock.time += 20
    beats.contact()
    assert beats.silent() == ["n1"]


def test_a_silent_node_counts_neither_in_statuses_nor_for_gates() -> None:
    clock = FakeClock()
    cache = Cache(clock=clock.now)
    nodes = NodeChanges(cache)
    for name in ("n1", "n2"):
        nodes.put(parse_node(raw_nftlb_node(name, watermark="10", reported_at="12:00")))
    silent = raw_nftlb_node("n2", watermark="10", reported_at="12:00", ready="Unknown", reason="AgentSilent", version=2)
    nodes.put(parse_node(silent))
    clock.time += 6
    nodes.flush()
    assert [node.name for node in cache.debounced_nodes] == ["n1"]
    assert [node.name for node in cache.working_nodes()] == ["n1"]
    assert counting_nodes(cache) == []
    nodes.put(parse_node(raw_nftlb_node("n2", watermark="10", reported_at="12:09", version=3)))
    assert {node.name for node in cache.working_nodes()} == {"n1", "n2"}
