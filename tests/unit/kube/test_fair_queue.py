"""The next of many waiting keys."""

from collections.abc import Iterable

from kube_nftlb.kube.fair_queue import FairQueue


def queue_of(keys: Iterable[str]) -> FairQueue[str]:
    """Capital keys are urgent, the first letter is the group."""
    queue = FairQueue[str](str.isupper, lambda key: key[0].lower())
    for since, key in enumerate(keys):
        queue.add(key, since)
    return queue


def crowd(letter: str, count: int = 1000) -> list[str]:
    return [f"{letter}{number:04}" for number in range(count)]


def test_few_keys_are_taken_in_their_order() -> None:
    queue = queue_of(["b", "a", "C", "a"])
    assert list(queue) == ["b", "a", "C"]
    assert queue.take(3) == {"b": 0, "a": 1, "C": 2}
    assert (len(queue), queue.take(3), queue.oldest_since()) == (0, {}, None)


def test_a_waiting_key_keeps_its_lowest_version() -> None:
    queue = queue_of(["a", "b"])
    queue.add("a", 7)
    assert queue.oldest_since() == 0
    queue.take(1)
    queue.add("a", 7)
    assert queue.oldest_since() == 1
    queue.add("a", 0)
    assert queue.oldest_since() == 0, "it came back with an earlier one"


def test_half_of_a_batch_is_urgent() -> None:
    queue = queue_of([*crowd("a"), *crowd("A")])
    taken = queue.take(8)
    assert [key.isupper() for key in taken].count(True) == 4
    assert len(queue) == 1992


def test_few_urgent_keys_leave_the_rest_of_a_batch_to_others() -> None:
    queue = queue_of([*crowd("a"), "B", "C"])
    taken = list(queue.take(8))
    assert {"B", "C", "a0000", "a0001"} < set(taken)
    assert len(set(taken)) == 8


def test_a_crowd_gives_its_oldest_and_its_newest_in_turn() -> None:
    assert sorted(queue_of(crowd("a")).take(8)) == [*crowd("a")[:4], *crowd("a")[-4:]]


def test_groups_take_turns() -> None:
    taken = list(queue_of([*crowd("a"), "b1", "b2", "c1"]).take(5))
    assert taken == ["a0000", "b1", "c1", "a0999", "b2"]


def test_a_waiting_key_that_becomes_urgent_is_taken_as_one() -> None:
    urgent: set[str] = set()
    queue = FairQueue[str](urgent.__contains__)
    for key in crowd("a"):
        queue.add(key)
    urgent.add("a0500")
    queue.add("a0500")
    assert "a0500" in queue.take(1)
    assert (len(queue), "a0500" in queue) == (999, False)
    assert len(queue.take(998)) == 998
    assert len(queue.take(10)) == 1


def test_the_newest_of_many_groups_that_are_a_crowd_together_is_taken_soon() -> None:
    queue = FairQueue[str](group=lambda key: key[:3])
    for number in range(5000):
        queue.add(f"{number % 100:03}/{number // 100}")
    queue.add("050/new")
    assert "050/new" in queue.take(16)
