"""The times at which the status of a farm is worth writing."""

import pytest

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.operator.cache.farm_record import changed_fields, parse_farm, status_digest
from kube_nftlb.operator.cache.node_record import parse_node
from kube_nftlb.operator.status.farm_endpoints import FarmEndpoints
from kube_nftlb.operator.status.farm_status import decide
from kube_nftlb.operator.sync.status_pacing import StatusPacing, StatusTiming
from tests.builders import raw_farm, raw_nftlb_node

TIMING = StatusTiming(patience_s=1, late_s=8, quiet_s=2, quiet_max_s=30)
WEB = FarmKey("default", "web--http")
RECORD = parse_farm(raw_farm("web--http"), None)[0]


class Paced:
    """A farm whose status is written, with two of nine backends ready, at the resourceVersion 20."""

    def __init__(self) -> None:
        self.pacing = StatusPacing(TIMING)
        self.written = self.status(2, 20, 20)
        self.pacing.restless_s(WEB, 20, 0)

    def status(self, ready: int, version: int, reached: int, watermark: int = 10) -> FarmStatus:
        node = parse_node(raw_nftlb_node(watermark=str(watermark), slice_watermark=str(reached)))
        return decide(RECORD, FarmEndpoints(ready, 9, changed_at=version), None, [node], "2026-01-01T00:00:00Z")

    def wait_s(self, now: float, ready: int, version: int, reached: int, *, scarce: bool = False) -> float | None:
        """Return for how long the status waits; None if it is as it is written."""
        self.pacing.restless_s(WEB, version, now)
        status = self.status(ready, version, reached)
        if not (fields := changed_fields(status_digest(self.written), status_digest(status))):
            self.pacing.unchanged(WEB)
            return None
        return self.pacing.wait_s(WEB, status, fields, reached, now, scarce=scarce)

    def write(self, now: float, ready: int, version: int, reached: int) -> float:
        self.written = self.status(ready, version, reached)
        return self.pacing.written(WEB, now)


def test_what_all_nodes_have_is_written_at_once() -> None:
    farm = Paced()
    assert farm.wait_s(100, 3, 30, 30) == 0


def test_what_nodes_lack_waits_for_them_and_is_then_written_with_the_right_number() -> None:
    farm = Paced()
    assert farm.wait_s(100, 3, 30, 20) == 1
    assert farm.wait_s(100.5, 3, 30, 20) == 0.5
    assert farm.wait_s(101, 3, 30, 20) == 0
    assert farm.write(101, 3, 30, 20) == 1
    assert farm.wait_s(101.1, 3, 30, 30) == 0, "they have it"


def test_endpoints_that_never_rest_are_shown_as_often_as_those_that_changed_once() -> None:
    farm = Paced()
    for change in range(100):
        now = 100 + change
        assert farm.wait_s(now, change % 9, 100 + change, 99 + change) == 1, "whatever happened before"
        assert farm.wait_s(now + 0.9, change % 9, 100 + change, 99 + change) == pytest.approx(0.1)
        assert farm.write(now + 1, change % 9, 100 + change, 99 + change) == 1


def test_backends_that_as_many_replace_are_pending_only_if_nodes_do_not_keep_up() -> None:
    farm = Paced()
    assert farm.wait_s(100, 2, 30, 20) == 8
    assert farm.wait_s(103, 2, 30, 30) is None, "they have them, and the status says so already"
    for change in range(20):
        # The nodes are always one change behind.
        assert farm.wait_s(110 + change, 2, 41 + change, 40 + change) == 8
    assert farm.wait_s(137, 2, 60, 59) == 0, "no longer"


def test_what_nodes_lack_waits_longer_while_others_need_the_budget() -> None:
    farm = Paced()
    assert farm.wait_s(100, 3, 30, 20, scarce=True) == 10
    assert farm.wait_s(100, 3, 30, 30, scarce=True) == 0


def test_a_change_that_is_undone_starts_anew() -> None:
    farm = Paced()
    farm.wait_s(100, 3, 30, 20)
    assert farm.wait_s(100.5, 2, 31, 31) is None
    assert farm.wait_s(120, 3, 40, 31) == 1


@pytest.mark.parametrize(
    ("changes", "restless"),
    [
        pytest.param([100], 0, id="after a rest"),
        pytest.param([100, 101], 2, id="again, soon"),
        pytest.param([100, 103], 0, id="again, after a rest"),
    ],
)
def test_backends_are_listed_unless_they_change_again_soon(changes: list[float], restless: float) -> None:
    pacing = StatusPacing(TIMING)
    assert pacing.restless_s(WEB, 1, 0) <= 0
    for version, at in enumerate(changes, 2):
        found = pacing.restless_s(WEB, version, at)
    assert max(found, 0) == restless
    assert pacing.restless_s(WEB, len(changes) + 1, changes[-1] + restless) <= 0, "they rest"


def test_where_endpoints_of_many_farms_never_rest_only_numbers_follow() -> None:
    pacing = StatusPacing(TIMING)
    farms = [FarmKey("default", f"web-{number}") for number in range(50)]
    listed = 0
    for change in range(1500):
        listed += pacing.restless_s(farms[change % 50], change, change / 10) <= 0
    # Ten changes a second: each farm changes every five seconds, which is no rest then.
    assert listed < 150
    assert all(pacing.restless_s(farm, 1450 + number, 200) <= 0 for number, farm in enumerate(farms))


def test_a_farm_that_is_gone_is_forgotten() -> None:
    farm = Paced()
    farm.wait_s(100, 3, 30, 20)
    farm.pacing.forget(WEB)
    assert farm.wait_s(200, 3, 30, 20) == 1
