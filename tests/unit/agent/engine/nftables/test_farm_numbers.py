"""No two farms have a number."""

import pytest

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.farm_numbers import FarmNumbers


def test_a_farm_keeps_its_number_and_others_get_others() -> None:
    numbers = FarmNumbers()
    first = numbers.of("a")
    assert first == numbers.of("a") == layout.farm_number(1)
    assert numbers.of("b") == layout.farm_number(2)


def test_those_of_the_kernel_are_taken_in_whatever_order_they_come() -> None:
    numbers = FarmNumbers()
    for name, ordinal in (("a", 3), ("b", 1), ("c", 2)):
        numbers.set(name, layout.farm_number(ordinal))
    assert numbers.of("d") == layout.farm_number(4)


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
