"""Series come and go rarely: the busiest get a place, and keep it for a while."""

from kube_nftlb.agent.traffic.places import HELD_S, Places


def never(_: str) -> bool:
    return False


def test_the_busiest_get_the_places() -> None:
    places: Places[str] = Places(2)
    places.update({"a": 0.1, "b": 2.0, "c": 1.0}, 5, 0, never)
    assert places.held == {"b", "c"}


def test_a_place_is_kept_for_a_while_then_it_goes_to_what_is_much_busier() -> None:
    places: Places[str] = Places(1)
    places.update({"a": 1.0}, 5, 0, never)
    for now in range(5, int(HELD_S), 5):
        places.update({"a": 0.1, "b": 2.0}, 5, now, never)
        assert places.held == {"a"}
    places.update({"a": 0.1, "b": 2.0}, 5, HELD_S, never)
    assert places.held == {"b"}


def test_what_is_a_little_busier_does_not_take_a_place() -> None:
    places: Places[str] = Places(1)
    places.update({"a": 1.0}, 5, 0, never)
    for now in range(5, 2 * int(HELD_S), 5):
        places.update({"a": 1.0, "b": 1.5}, 5, now, never)
    assert places.held == {"a"}


def test_quiet_ones_keep_their_place_as_long_as_nothing_else_needs_it() -> None:
    places: Places[str] = Places(2)
    places.update({"a": 1.0}, 5, 0, never)
    places.update({}, 5, 100 * HELD_S, never)
    assert places.held == {"a"}


def test_what_is_gone_leaves_its_place_at_once() -> None:
    places: Places[str] = Places(1)
    places.update({"a": 1.0}, 5, 0, never)
    places.update({"b": 0.1}, 5, 5, lambda key: key == "a")
    assert places.held == {"b"}


def test_no_places_hold_nothing() -> None:
    places: Places[str] = Places(0)
    places.update({"a": 1.0}, 5, 0, never)
    places.update({"a": 1.0}, 5, 2 * HELD_S, never)
    assert places.held == frozenset()
