import pytest

from benchmarks import stats


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([5], 0.9, 5), ([4, 1, 3, 2], 0.5, 2.5), ([1, 2, 3], 0, 1), ([1, 2, 3], 1, 3), ([0, 10], 0.25, 2.5)],
)
def test_quantile(values: list[float], share: float, expected: float) -> None:
    assert stats.quantile(values, share) == expected


def test_a_ratio_is_the_median_over_rounds() -> None:
    # The machine was three times as fast in the second round, which says nothing about either.
    assert stats.ratio([50, 150, 52], [100, 300, 104]) == (0.5, 0.5, 0.5, False)


def test_the_interval_contains_the_value_and_is_reproducible() -> None:
    interval = stats.ratio([1.0, 1.2, 0.9, 1.1, 1.0], [1.0] * 5)
    assert interval.low < interval.value == 1.0 < interval.high
    assert interval.decides
    assert interval == stats.ratio([1.0, 1.2, 0.9, 1.1, 1.0], [1.0] * 5)


def test_unpaired_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rounds of one subject, 1 of the other"):
        stats.ratio([1, 2], [1])
