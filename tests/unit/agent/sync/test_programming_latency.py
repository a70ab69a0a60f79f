"""Each change of the cluster is measured once, when it is in the kernel."""

from datetime import UTC, datetime, timedelta

import pytest

from kube_nftlb import metrics
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.api.conflicts import FarmKey

KEY = FarmKey("default", "web--http")


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def measured() -> tuple[float, float]:
    """Return the number of measurements, and their sum."""
    (family,) = metrics.PROGRAMMING_SECONDS.collect()
    values = {sample.name.rpartition("_")[2]: sample.value for sample in family.samples}
    return values["count"], values["sum"]


@pytest.fixture
def latency() -> ProgrammingLatency:
    return ProgrammingLatency(datetime.now(UTC) - timedelta(seconds=100))


def gained(before: tuple[float, float]) -> tuple[int, int]:
    count, total = measured()
    return int(count - before[0]), round(total - before[1])


def test_the_oldest_change_counts_and_once(latency: ProgrammingLatency) -> None:
    before = measured()
    latency.changed(KEY, ago(10))
    latency.changed(KEY, ago(5))
    latency.programmed(KEY)
    latency.programmed(KEY)
    assert gained(before) == (1, 10)


def test_a_time_that_is_reported_again_is_nothing_new(latency: ProgrammingLatency) -> None:
    before, made_at = measured(), ago(10)
    for _ in range(2):
        latency.changed(KEY, made_at)
        latency.programmed(KEY)
    assert gained(before) == (1, 10)


@pytest.mark.parametrize("made_at", [pytest.param(ago(1000), id="before the start"), None])
def test_changes_from_before_the_start_do_not_count(latency: ProgrammingLatency, made_at: datetime | None) -> None:
    before = measured()
    latency.changed(KEY, made_at)
    latency.programmed(KEY)
    assert gained(before) == (0, 0)


def test_a_farm_that_was_not_to_be_programmed_is_not_measured_later(latency: ProgrammingLatency) -> None:
    before = measured()
    latency.changed(KEY, ago(10))
    latency.dropped(KEY)
    latency.programmed(KEY)
    assert gained(before) == (0, 0)


def test_a_clock_that_is_ahead_does_not_make_time_negative(latency: ProgrammingLatency) -> None:
    before = measured()
    latency.changed(KEY, ago(-50))
    latency.programmed(KEY)
    assert gained(before) == (1, 0)
