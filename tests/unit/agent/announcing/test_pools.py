"""Which pool has an address, however many there are, and whatever their ranges."""

import sys
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.api.address_pool import AddressPool
from tests.builders.pools import raw_judged, raw_pool

RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 9)).map(lambda each: f"192.0.2.{each[0]}-192.0.2.{sum(each)}"),
    min_size=1,
    max_size=4,
)


def pools(ranges: Iterable[list[str]]) -> list[AddressPool]:
    """Pools of which each is younger than the one before."""
    dates = (f"2026-01-01T00:00:{number:02}Z" for number in range(60))
    raws = (
        raw_judged(raw_pool(f"p{number}", *texts, created=next(dates, "2026-01-02T00:00:00Z")))
        for number, texts in enumerate(ranges)
    )
    return [AddressPool.model_validate(raw) for raw in raws]


@given(st.lists(RANGES, max_size=4))
def test_the_oldest_pool_has_an_address_though_ranges_overlap(ranges: list[list[str]]) -> None:
    found = Pools(pools(ranges))

    def has(text: str, number: int) -> bool:
        first, last = (int(each.rpartition(".")[2]) for each in text.split("-"))
        return first <= number <= last

    for number in range(50):
        names = [f"p{index}" for index, texts in enumerate(ranges) if any(has(text, number) for text in texts)]
        of = found.of(f"192.0.2.{number}")
        assert (of.metadata.name if of is not None else None) == (names[0] if names else None)


def calls(size: int) -> int:
    """The number of functions that are called to judge as many pools of as many ranges, and to find an address."""
    made = pools([[f"10.{pool}.{each}.0/25" for each in range(size)] for pool in range(size)])
    found: list[str] = []
    sys.setprofile(lambda _, event, __: found.append(event))
    try:
        Pools(made).of("10.0.0.1")
    finally:
        sys.setprofile(None)
    return len(found)


def test_four_times_as_many_ranges_cost_four_times_as_much() -> None:
    calls(32)
    assert calls(32) < 5 * calls(16)
