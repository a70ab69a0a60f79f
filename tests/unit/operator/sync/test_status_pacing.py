"""When the status of a farm is written."""

from typing import Any

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.operator.cache.farm_record import FarmRecord, parse_farm
from kube_nftlb.operator.cache.node_record import parse_node
from kube_nftlb.operator.status.farm_status import decide
from kube_nftlb.operator.sync.status_pacing import StatusPacing, StatusTiming
from tests.builders import raw_farm, raw_nftlb_node

TIMING = StatusTiming(
    delay_s=1, delay_each_s=1, delay_max_s=5, interval_s=3, nodes_s=10, nodes_each_s=0.5, nodes_max_s=100
)


def farm(name: str = "web--http", **changes: Any) -> FarmRecord:
    return parse_farm(raw_farm(name, **changes), None)[0]


def status(of: FarmRecord, watermark: str) -> FarmStatus:
    return decide(of, None, [parse_node(raw_nftlb_node(watermark=watermark))], "2026-01-01T00:00:00Z")


def test_the_delay_grows_with_the_queue() -> None:
    pacing = StatusPacing(TIMING)
    assert [pacing.delay_s(waiting) for waiting in (0, 2, 100)] == [1, 3, 5]


def test_a_status_waits_for_nodes_and_not_for_ever() -> None:
    pacing, web = StatusPacing(TIMING), farm()
    assert pacing.wait_s(web, status(web, "5"), 100) == 10.5
    assert pacing.wait_s(web, status(web, "5"), 109) == 1.5
    assert pacing.wait_s(web, status(web, "5"), 111) <= 0


def test_a_status_that_all_nodes_have_does_not_wait() -> None:
    pacing, web = StatusPacing(TIMING), farm()
    pacing.wait_s(web, status(web, "5"), 100)
    assert pacing.wait_s(web, status(web, "10"), 101) <= 0


def test_a_new_generation_waits_again() -> None:
    pacing, web = StatusPacing(TIMING), farm()
    pacing.wait_s(web, status(web, "5"), 100)
    changed = farm(generation=2)
    assert pacing.wait_s(changed, status(changed, "5"), 120) == 10.5


def test_two_writes_are_an_interval_apart_until_the_farm_is_forgotten() -> None:
    pacing, web = StatusPacing(TIMING), farm()
    pacing.written(web.key, 100)
    assert pacing.wait_s(web, status(web, "10"), 101) == 2
    pacing.forget(web.key)
    assert pacing.wait_s(web, status(web, "10"), 101) <= 0


def test_farms_with_a_written_status_do_not_delay_others() -> None:
    pacing = StatusPacing(TIMING)
    for number in range(10):
        other = farm(f"other-{number}")
        pacing.wait_s(other, status(other, "5"), 100)
        pacing.written(FarmKey("default", f"other-{number}"), 100)
    web = farm()
    assert pacing.wait_s(web, status(web, "5"), 100) == 10.5
