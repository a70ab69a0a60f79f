"""The times for which clients are remembered are few, and never shorter than asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.agent.engine.nftables.timeouts import STEPS_S, rounded


@given(st.integers(1, 86400))
def test_a_time_is_never_shorter_and_at_most_a_third_longer(asked: int) -> None:
    assert asked <= rounded(asked) <= max(asked + 1, asked * 4 / 3)


@pytest.mark.parametrize("seconds", [1, 10, 60, 300, 600, 1800, 3600, 10800, 86400])
def test_times_that_people_write_are_kept(seconds: int) -> None:
    assert rounded(seconds) == seconds


def test_there_are_few() -> None:
    assert len({rounded(asked) for asked in range(1, 86401)}) == len(STEPS_S) < 64
