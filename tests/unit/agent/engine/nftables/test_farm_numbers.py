"""No two farms have a number."""

import pytest

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.farm_numbers import FarmNumbers


def test_a_farm_keeps_its_number_and_others_get_others() -> None:
    numbers = FarmNumbers()
    first = numbers.of("a")
    assert first == numbers.of("a") == layout.farm_number(1)
    assert numbers.of("b") == layout.farm_number(2)


def test_an_agent_that_starts_begins_anywhere_and_takes_those_of_the_kernel() -> None:
    numbers = FarmNumbers(7)
    # One that the kernel had between them may have gone just now, and clients may be remembered with its number.
    for name, ordinal in (("a", 3), ("b", 1), ("c", 8)):
        numbers.set(name, layout.farm_number(ordinal))
    assert [numbers.of(name) for name in "de"] == [layout.farm_number(ordinal) for ordinal in (7, 9)]


def test_a_number_that_is_given_back_is_used_again_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "FARMS_MAX", 3)
    numbers = FarmNumbers()
    first = numbers.of("a")
    numbers.free("a")
    assert first not in (numbers.of("b"), numbers.of("c"))
    assert numbers.of("d") == first
    assert numbers.of("e") is None
    numbers.free("c")
    assert numbers.of("e") == layout.farm_number(3)


def test_a_number_is_no_class_of_traffic_that_people_use() -> None:
    for ordinal in (1, layout.FARMS_MAX):
        number = layout.farm_number(ordinal)
        assert layout.ordinal(number) == ordinal
        assert number & layout.FARM_MASK == number
        assert number >> 16 >= 0x8000
