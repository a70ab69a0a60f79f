"""Series come and go rarely: the busiest get a slot, and keep it for a while."""

from kube_nftlb.agent.traffic.slots import HELD_S, SeriesSlots


def never(_: str) -> bool:
    return False


def test_the_busiest_get_the_slots() -> None:
    slots: SeriesSlots[str] = SeriesSlots(2)
    slots.update({"a": 0.1, "b": 2.0, "c": 1.0}, 5, 0, never)
    assert slots.keys == {"b", "c"}


def test_a_slot_is_kept_for_a_while_then_it_goes_to_what_is_much_busier() -> None:
    slots: SeriesSlots[str] = SeriesSlots(1)
    slots.update({"a": 1.0}, 5, 0, never)
    for now in range(5, int(HELD_S), 5):
        slots.update({"a": 0.1, "b": 2.0}, 5, now, never)
        assert slots.keys == {"a"}
    slots.update({"a": 0.1, "b": 2.0}, 5, HELD_S, never)
    assert slots.keys == {"b"}


def test_what_is_a_little_busier_does_not_take_a_slot() -> None:
    slots: SeriesSlots[str] = SeriesSlots(1)
    slots.update({"a": 1.0}, 5, 0, never)
    for now in range(5, 2 * int(HELD_S), 5):
        slots.update({"a": 1.0, "b": 1.5}, 5, now, never)
    assert slots.keys == {"a"}


def test_quiet_ones_keep_their_slot_as_long_as_nothing_else_needs_it() -> None:
    slots: SeriesSlots[str] = SeriesSlots(2)
    slots.update({"a": 1.0}, 5, 0, never)
    slots.update({}, 5, 100 * HELD_S, never)
    assert slots.keys == {"a"}


def test_what_is_gone_leaves_its_slot_at_once() -> None:
    slots: SeriesSlots[str] = SeriesSlots(1)
    slots.update({"a": 1.0}, 5, 0, never)
    slots.update({"b": 0.1}, 5, 5, lambda key: key == "a")
    assert slots.keys == {"b"}


def test_no_slots_hold_nothing() -> None:
    slots: SeriesSlots[str] = SeriesSlots(0)
    slots.update({"a": 1.0}, 5, 0, never)
    slots.update({"a": 1.0}, 5, 2 * HELD_S, never)
    assert slots.keys == frozenset()
