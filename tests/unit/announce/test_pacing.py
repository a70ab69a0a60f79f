"""A link sends at most 200 frames a second that nobody asked for, the urgent ones first."""

import pytest

from kube_nftlb.announce.wire.pacing import Pacer, Urgency

WATCH, TAKE, ASK, REPEAT = Urgency


def sent(pacer: Pacer, seconds: float) -> list[tuple[float, bytes]]:
    return [(number / 100, frame) for number in range(int(seconds * 100) + 1) for frame in pacer.due(number / 100)]


def test_no_second_has_more_than_200_frames() -> None:
    pacer = Pacer()
    for number in range(1000):
        pacer.add(number, b"frame", 0.0, REPEAT)
    times = [at for at, _ in sent(pacer, 6.0)]
    assert len(times) == 1000
    assert max(sum(start <= at < start + 1.0 for at in times) for start in times) <= 200


def test_the_first_announcement_of_each_address_goes_before_any_repetition() -> None:
    pacer = Pacer()
    for number in range(300):
        pacer.add(number, b"repeat", 0.0, REPEAT)
        pacer.add(number, b"take", 0.0, TAKE)
    frames = [frame for _, frame in sent(pacer, 5.0)]
    assert frames == [b"take"] * 300 + [b"repeat"] * 300


def test_questions_to_holders_go_before_all_else_but_never_two_in_turn() -> None:
    pacer = Pacer()
    for number in range(100):
        pacer.add(number, b"take", 0.0, TAKE)
    for number in range(3):
        pacer.add(number, b"watch", 0.2, WATCH)
    frames = [frame for at, frame in sent(pacer, 2.0) if at >= 0.2]
    assert frames[:6] == [b"watch", b"take"] * 3
    for number in range(3):
        pacer.add(number, b"watch", 3.0, WATCH)
    assert pacer.due(3.0) == [b"watch"] * 3, "but if nothing else waits"


@pytest.mark.parametrize(
    ("cancelled", "expected"), [("a", [b"b", b"later"]), ("b", [b"a", b"later"]), ("c", [b"a", b"b", b"later"])]
)
def test_what_is_cancelled_is_not_sent_but_what_comes_later_is(cancelled: str, expected: list[bytes]) -> None:
    pacer = Pacer()
    pacer.add("a", b"a", 0.5, TAKE)
    pacer.add("b", b"b", 0.5, TAKE)
    pacer.cancel(cancelled)
    pacer.add(cancelled, b"later", 0.6, TAKE)
    assert [frame for _, frame in sent(pacer, 1.0)] == expected


def test_it_wakes_for_the_next_frame_and_no_earlier() -> None:
    pacer = Pacer()
    assert pacer.wake() is None
    pacer.add("a", b"a", 7.0, TAKE)
    assert pacer.wake() == 7.0
    assert pacer.waits("a")
    assert pacer.due(7.0) == [b"a"]
    assert not pacer.waits("a")
    assert pacer.wake() is None
