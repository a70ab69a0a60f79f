"""The rate of events."""

import pytest

from kube_nftlb.kube.rate import Rate


def test_nothing_is_below_every_rate() -> None:
    assert Rate().below_in_s(0.1, 5.0) <= 0


def test_a_burst_is_waited_for() -> None:
    rate = Rate()
    for number in range(500):
        rate.add(100 + number / 100)
    now = 104.99
    assert rate.below_in_s(200, now) <= 0
    wait_s = rate.below_in_s(20, now)
    assert 1 < wait_s < 2
    assert rate.below_in_s(20, now + wait_s) == pytest.approx(0, abs=1e-6)


def test_slow_changes_are_no_burst() -> None:
    rate = Rate()
    for number in range(100):
        rate.add(number / 10)
    assert rate.below_in_s(20, 9.9) <= 0
