"""Weights become shares in a number of numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.agent.endpoints import shares


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([], ()),
        ([5], (1,)),
        ([70, 30], (7, 3)),
        ([1, 999], (1, 999)),
        ([1, 1, 1], (1, 1, 1)),
        ([667, 334], (666, 334)),
        ([1_000_000, 1], (999, 1)),
        ([500_000, 1, 1], (998, 1, 1)),
    ],
)
def test_shares_are_exact_where_they_fit_and_at_least_one(weights: list[int], expected: tuple[int, ...]) -> None:
    assert shares.of_weights(weights) == expected


@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=16))
def test_no_share_is_far_from_what_its_weight_asks_for(weights: list[int]) -> None:
    found = shares.of_weights(weights)
    assert sum(found) <= shares.NUMBERS_MAX
    # Those that ask for less than one number get one, which others lack.
    for share, weight in zip(found, weights, strict=True):
        assert share >= 1
        assert abs(share / sum(found) - weight / sum(weights)) <= (len(weights) + 1) / shares.NUMBERS_MAX
