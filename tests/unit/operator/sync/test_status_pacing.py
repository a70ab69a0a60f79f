"""The times at which the status of a farm is written."""

import itertools
from typing import Any

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.operator.cache.farm_record import FarmRecord, parse_farm
from kube_nftlb.operator.cache.node_record import parse_node
from kube_nftlb.operator.status.farm_endpoints import FarmEndpoints
from kube_nftlb.operator.status.farm_status import decide
from kube_nftlb.operator.sync.status_pacing import StatusPacing, StatusTiming
from tests.builders import raw_farm, raw_nftlb_node

TIMING = StatusTiming(
    delay_s=1,
    delay_each_s=1,
    delay_max_s=5,
    interval_s=3,
    nodes_s=10,
    nodes_each_s=0.5,
    nodes_max_s=100,
    quiet_s=2,
    endpoints_s=8,
    endpoints_per_s=4,
)
NOW = "2026-01-01T00:00:00Z"


def farm(name: str = "web--http", **changes: Any) -> FarmRecord:
    return parse_farm(raw_farm(name, **changes), None)[0]


def status(of: FarmRecord, watermark: str) -> FarmStatus:
    return decide(of, FarmEndpoints(1, 1), None, [parse_node(raw_nftlb_node(watermark=watermark))], NOW)


def settled(name: str = "web--http") -> FarmRecord:
    """A farm whose status is written, with one backend of one."""
    new = farm(name)
    return farm(name, version=11, status=status(new, "10").model_dump(mode="json", by_alias=True))


def followed(of: FarmRecord, ready: int, *, everywhere: bool = True) -> FarmStatus:
    """The status of a farm with so many ready backends of nine, which its only node has or not."""
    node = parse_node(raw_nftlb_node(watermark="10", slice_watermark="30" if everywhere else "29"))
    return decide(of, FarmEndpoints(ready, 9, changed_at=30), None, [node], NOW)


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


def test_a_status_follows_endpoints_when_they_come_to_rest() -> None:
    pacing, web = StatusPacing(TIMING), settled()
    assert pacing.wait_s(web, followed(web, 2), 100) == 2
    assert pacing.wait_s(web, followed(web, 3), 101) == 2
    assert pacing.wait_s(web, followed(web, 3), 102) == 1
    assert pacing.wait_s(web, followed(web, 3), 103) <= 0


def test_a_status_follows_endpoints_that_do_not_come_to_rest_in_the_end() -> None:
    pacing, web = StatusPacing(TIMING), settled()
    waits = [pacing.wait_s(web, followed(web, 1 + second % 2), 100 + second) for second in range(9)]
    assert waits == [2, 2, 2, 2, 2, 2, 2, 1, 0]


def test_a_status_waits_for_nodes_to_have_endpoints_and_not_for_ever() -> None:
    pacing, web = StatusPacing(TIMING), settled()
    assert pacing.wait_s(web, followed(web, 2, everywhere=False), 100) == 8
    assert pacing.wait_s(web, followed(web, 2, everywhere=False), 105) == 3
    assert pacing.wait_s(web, followed(web, 2, everywhere=False), 108) <= 0


def test_a_status_is_written_when_the_last_node_has_endpoints() -> None:
    pacing, web = StatusPacing(TIMING), settled()
    assert pacing.wait_s(web, followed(web, 2, everywhere=False), 100) == 8
    assert pacing.wait_s(web, followed(web, 2), 101) == 1
    assert pacing.wait_s(web, followed(web, 2), 102) <= 0


def test_a_status_that_is_urgent_does_not_wait_for_endpoints() -> None:
    pacing, web = StatusPacing(TIMING), settled()
    assert pacing.wait_s(web, followed(web, 2), 100) == 2
    failed = {"namespace": "default", "name": "web--http", "generation": 1, "reason": "Refused", "message": "no"}
    node = parse_node(raw_nftlb_node(watermark="10", failed=[failed]))
    assert pacing.wait_s(web, decide(web, FarmEndpoints(2, 9), None, [node], NOW), 100) <= 0


def test_the_first_status_of_a_farm_does_not_wait_for_endpoints() -> None:
    pacing, web = StatusPacing(TIMING), farm()
    assert pacing.wait_s(web, followed(web, 2, everywhere=False), 100) <= 0


def test_two_writes_for_endpoints_are_an_interval_apart_too() -> None:
    pacing, web = StatusPacing(TIMING), settled()
    pacing.written(web.key, 100)
    assert pacing.wait_s(web, followed(web, 2), 100.5) == 2.5
    pacing.forget(web.key)
    assert pacing.wait_s(web, followed(web, 2), 100.5) == 2


def test_after_a_write_endpoints_have_all_of_their_time_again() -> None:
    pacing, web = StatusPacing(TIMING), settled()
    pacing.wait_s(web, followed(web, 2), 100)
    pacing.written(web.key, 102)
    assert pacing.wait_s(web, followed(web, 3, everywhere=False), 104) == 8
    assert pacing.wait_s(web, followed(web, 3), 104) == 2


def test_endpoints_that_are_as_they_were_have_all_of_their_time_again() -> None:
    pacing, web = StatusPacing(TIMING), settled()
    assert pacing.wait_s(web, followed(web, 2), 100) == 2
    pacing.unchanged(web.key)
    assert pacing.wait_s(web, followed(web, 2), 200) == 2


def test_statuses_that_follow_endpoints_have_turns() -> None:
    pacing = StatusPacing(TIMING)
    farms = [settled(f"farm-{number}") for number in range(4)]
    assert {pacing.wait_s(each, followed(each, 2), 100) for each in farms} == {2}
    assert [pacing.wait_s(each, followed(each, 2), 102) for each in farms] == [0, 0.25, 0.5, 0.75]
    assert [pacing.wait_s(each, followed(each, 2), 102.5) for each in farms] == [-0.5, -0.25, 0, 0.25]


def test_a_turn_is_not_lost_by_looking_at_others_again() -> None:
    pacing = StatusPacing(TIMING)
    first, second = settled("first"), settled("second")
    for each in (first, second):
        pacing.wait_s(each, followed(each, 2), 100)
    assert [pacing.wait_s(first, followed(first, 2), 102) for _ in range(3)] == [0, 0, 0]
    assert pacing.wait_s(second, followed(second, 2), 102) == 0.25


def test_turns_do_not_delay_urgent_statuses() -> None:
    pacing = StatusPacing(TIMING)
    for number in range(100):
        each = settled(f"farm-{number}")
        pacing.wait_s(each, followed(each, 2), 100)
        pacing.wait_s(each, followed(each, 2), 102)
    web = farm()
    assert pacing.wait_s(web, status(web, "10"), 102) <= 0


def test_a_farm_whose_endpoints_never_rest_is_written_less_and_less() -> None:
    pacing, web = StatusPacing(StatusTiming(quiet_s=1, interval_s=0, endpoints_burst=3, refill_s=60)), settled()
    written = []
    for second in range(300):
        if pacing.wait_s(web, followed(web, 1 + second // 2 % 2), second) <= 0:
            pacing.written(web.key, second)
            written.append(second)
    assert written[:3] == [1, 3, 5]
    assert [later - earlier for earlier, later in itertools.pairwise(written[3:])] == [60] * (len(written) - 4)
    assert len(written) == 7


def test_a_status_follows_the_last_change_soon_however_many_were_written_before() -> None:
    timing = StatusTiming(quiet_s=1, interval_s=0, endpoints_burst=1, refill_s=600, settled_s=30)
    pacing, web = StatusPacing(timing), settled()
    pacing.wait_s(web, followed(web, 2), 0)
    pacing.written(web.key, 0)
    assert pacing.wait_s(web, followed(web, 3), 5) == 30
    assert pacing.wait_s(web, followed(web, 4), 20) == 30
    assert pacing.wait_s(web, followed(web, 4), 40) == 10
