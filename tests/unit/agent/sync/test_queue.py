"""The farms that are next, the number at once, and the stage they are in."""

import pytest

from kube_nftlb.agent.sync.queue import BATCH_MAX, FarmQueue, fitting_batch
from kube_nftlb.api.conflicts import FarmKey

A, B = FarmKey("default", "a"), FarmKey("default", "b")


def never(_: FarmKey) -> bool:
    return False


def test_a_change_does_not_wait_for_all_that_came_before_it() -> None:
    keys = [FarmKey("default", f"farm-{number}") for number in range(1000)]
    queue = FarmQueue(never)
    queue.add(keys, 1)
    taken = queue.take()
    assert len(set(taken)) == BATCH_MAX
    assert {keys[0], keys[-1]} <= set(taken)


def test_farms_that_come_or_go_share_the_turns_with_all_others() -> None:
    keys = [FarmKey("default", f"farm-{number}") for number in range(1000)]
    late = set(keys[500:503])
    queue = FarmQueue(late.__contains__)
    queue.add(keys, 1)
    assert late < set(queue.take())


@pytest.mark.parametrize(("done", "seconds", "fitting"), [(32, 0.1, 32), (32, 0.5, 16), (32, 4.0, 2), (1, 4.0, 20)])
def test_a_pass_has_fewer_farms_if_the_engine_is_slow(done: int, seconds: float, fitting: int) -> None:
    assert fitting_batch(done, seconds, before=20) == fitting


def test_a_farm_is_done_when_it_was_verified() -> None:
    queue = FarmQueue(never)
    queue.add([A], 7)
    assert (queue.take(), queue.oldest_since) == ([A], 7)
    queue.applied({}, [], now=10, seconds=0.1)
    assert (queue.to_verify(8), queue.oldest_since) == ([(A, None)], 7)
    queue.verified(A)
    assert (queue.oldest_since, len(queue)) == (None, 0)


def test_a_farm_keeps_the_version_since_which_it_waits() -> None:
    queue = FarmQueue(never)
    queue.add([A], 7)
    queue.add([A], 9)
    queue.take()
    queue.add([A], 11)
    queue.applied({}, [], now=10, seconds=0.1)
    assert queue.oldest_since == 7


def test_what_was_applied_of_a_farm_that_changed_again_is_verified() -> None:
    queue = FarmQueue(never)
    queue.add([A], 7)
    queue.take()
    queue.applied({A: "out of memory"}, [], now=10, seconds=0.1)
    queue.add([A], 9)
    assert (queue.to_verify(8), queue.oldest_since) == ([(A, "out of memory")], 7)
    queue.verified(A)
    assert (queue.take(), queue.oldest_since) == ([A], 9)


def test_a_farm_that_was_applied_again_waits_since_the_first_change_that_is_not_verified() -> None:
    queue = FarmQueue(never)
    for since in (7, 9):
        queue.add([A], since)
        queue.take()
        queue.applied({}, [], now=10, seconds=0.1)
    assert (queue.to_verify(8), queue.oldest_since) == ([(A, None)], 7)


def test_farms_that_change_all_the_time_and_come_first_let_others_have_a_quarter() -> None:
    announced = [FarmKey("default", f"announced-{number}") for number in range(20)]
    queue = FarmQueue(never)
    queue.add([*announced, A, B], 7)
    while queue.waiting:
        queue.take()
        queue.applied({}, [], now=10, seconds=0.1)
    chosen = [key for key, _ in queue.to_verify(8, set(announced))]
    assert (len(chosen), set(chosen[6:])) == (8, {A, B})
    for key in (A, B):
        queue.verified(key)
    assert len([key for key, _ in queue.to_verify(8, set(announced)) if key in announced]) == 8


def test_after_a_failure_a_farm_waits_since_the_first_of_its_changes() -> None:
    queue = FarmQueue(never)
    queue.add([A, B], 7)
    queue.take()
    queue.applied({}, [], now=10, seconds=0.1)
    queue.add([A], 9)
    queue.take()
    queue.add([B], 11)
    queue.restart()
    assert (queue.take(), queue.in_progress) == ([B, A], {B: 7, A: 7})


def test_a_farm_that_was_lost_waits_since_ever_though_it_waits_for_a_change() -> None:
    queue = FarmQueue(never)
    queue.add([A], 7)
    queue.add([A], 0)
    assert queue.oldest_since == 0


def test_incomplete_farms_wait_again_unless_they_were_refused() -> None:
    queue = FarmQueue(never)
    queue.add([A, B], 7)
    queue.take()
    queue.applied({B: "no"}, [A, B], now=10, seconds=0.1)
    assert queue.take() == [A]


def test_everything_unverified_waits_again_after_a_failure() -> None:
    queue = FarmQueue(never)
    queue.add([A], 7)
    queue.take()
    queue.applied({}, [], now=10, seconds=0.1)
    queue.add([B], 8)
    queue.take()
    queue.restart()
    assert queue.pending == {A, B} == set(queue.waiting)
    assert queue.oldest_since == 7


def test_unverified_farms_are_overdue_after_a_while() -> None:
    queue = FarmQueue(never)
    assert not queue.overdue(3, now=100)
    queue.add([A], 7)
    queue.take()
    queue.applied({}, [], now=10, seconds=0.5)
    assert not queue.overdue(3, now=12)
    assert queue.overdue(3, now=13)


def test_farms_to_be_taken_last_come_alone_after_all_others() -> None:
    keys = [FarmKey("default", f"farm-{number}") for number in range(BATCH_MAX + 2)]
    last = {keys[0], keys[1]}
    queue = FarmQueue(never)
    queue.add(keys, 7)
    taken = queue.take(last)
    queue.applied({}, (), now=1, seconds=0.1)
    while len(queue.waiting) > len(last):
        taken += queue.take(last)
        queue.applied({}, (), now=1, seconds=0.1)
    assert set(taken) == set(keys) - last
    assert len(queue.take(last)) == 1
    queue.applied({}, (), now=1, seconds=0.1)
    assert (len(queue.take(last)), len(queue.waiting)) == (1, 0)
