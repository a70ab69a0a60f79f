"""A node that comes and goes counts as it was, until it stays."""

from kube_nftlb.operator.cache.debounced_nodes import CALM_S, HOLD_MAX_S, HOLD_S, DebouncedNodes
from kube_nftlb.operator.cache.node_record import NodeRecord, parse_node
from tests.builders import raw_nftlb_node
from tests.fakes.clock import FakeClock


class Nodes:
    """One node, and how often its state was shown that concerns all farms."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.nodes = DebouncedNodes(self.clock.now)
        self.turned = 0

    @property
    def ready(self) -> bool | None:
        return shown.ready if (shown := self.nodes.get("n1")) is not None else None

    def put(self, state: NodeRecord | None, seconds: float = 0) -> None:
        before = self.ready
        self.nodes.put("n1", state)
        self.turned += self.ready is not before
        for _ in range(int(seconds)):
            self.clock.time += 1
            before = self.ready
            self.nodes.flush()
            self.turned += self.ready is not before


def state(ready: str = "True", watermark: str = "10") -> NodeRecord:
    return parse_node(raw_nftlb_node(ready=ready, watermark=watermark))


def test_a_node_counts_at_once_and_is_gone_after_a_while() -> None:
    node = Nodes()
    node.put(state())
    assert node.ready is True
    node.put(state("False"), HOLD_S - 1)
    assert node.ready is True
    node.put(state("False"), 1)
    assert node.ready is False
    node.put(state())
    assert node.ready is True, "it is back for the first time"
    node.put(None, HOLD_MAX_S)
    assert node.ready is None


def test_a_short_interruption_is_not_seen() -> None:
    node = Nodes()
    node.put(state())
    for _ in range(100):
        node.put(state("False"), 1)
        node.put(None, 1)
        node.put(state(), 1)
    assert node.turned == 1


def test_a_node_that_flaps_slowly_is_seen_less_and_less_often() -> None:
    node = Nodes()
    node.put(state())
    for _ in range(100):
        node.put(state("False"), 2 * HOLD_S)
        node.put(state(), 2 * HOLD_S)
    assert 2 <= node.turned <= 12, "of 200"
    node.put(state("False"), HOLD_MAX_S)
    assert node.ready is False, "what lasts is seen"
    node.put(state(), HOLD_MAX_S)
    node.put(state(), CALM_S)
    node.put(state("False"), HOLD_S)
    assert node.ready is False, "after a while it is as at first"


def test_a_report_that_falls_back_is_awaited_but_news_is_not() -> None:
    node = Nodes()
    node.put(state(watermark="10"))
    node.put(state(watermark="0"), 1)
    node.put(state(watermark="11"))
    shown = node.nodes.get("n1")
    assert shown is not None
    assert shown.watermark == 11
    node.put(state(watermark="0"), HOLD_S)
    shown = node.nodes.get("n1")
    assert shown is not None
    assert shown.watermark == 0


def test_how_far_a_node_has_come_is_shown_while_its_state_has_to_last() -> None:
    node = Nodes()
    node.put(state(watermark="10"))
    for _ in range(5):
        node.put(state("False", watermark="10"), 2 * HOLD_S)
        node.put(state(watermark="10"), 2 * HOLD_S)
    held = node.ready
    fallen = state("False" if held else "True", watermark="9")._replace(slice_watermark=50)
    node.put(fallen)
    shown = node.nodes.get("n1")
    assert shown is not None
    assert (shown.ready, shown.watermark, shown.slice_watermark) == (held, 10, 50)
