"""The pauses between failed attempts."""

import itertools

from kube_nftlb.kube.backoff import Backoff


def test_each_pause_is_twice_as_long_up_to_a_limit_and_one_success_begins_anew() -> None:
    backoff: Backoff[str] = Backoff()
    pauses = [backoff.failed("a") for _ in range(20)]
    assert 0.05 <= pauses[0] <= 0.1
    assert [round(after / before, 3) for before, after in itertools.pairwise(pauses[:8])] == [2] * 7
    assert pauses[-2] == pauses[-1] <= 15
    backoff.forget("a")
    assert backoff.failed("a") == pauses[0]


def test_failures_count_as_lasting_after_some_ten_seconds_and_until_a_success() -> None:
    backoff: Backoff[int] = Backoff()
    for key in range(100):
        waited_s = 0.0
        while not backoff.is_lasting(key):
            assert backoff.lasting() == key
            pause_s = backoff.failed(key)
            waited_s += pause_s
        assert 5 < waited_s - pause_s < 15
    backoff.forget(7)
    assert not backoff.is_lasting(7)
    assert not backoff.is_lasting(1000)
    assert backoff.lasting() == 99


def test_keys_that_fail_together_do_not_come_back_together() -> None:
    backoff: Backoff[int] = Backoff()
    for _ in range(10):
        pauses = [backoff.failed(key) for key in range(1000)]
    within_a_second = [sum(start <= pause < start + 1 for pause in pauses) for start in range(16)]
    assert min(pauses) >= 7
    assert max(within_a_second) < 200
