"""Which farms are next, and how many at once."""

import pytest

from kube_nftlb.agent.sync.queue import fitting_chunk, next_farms
from kube_nftlb.api.conflicts import FarmKey


def test_a_change_does_not_wait_for_all_that_came_before_it() -> None:
    keys = [FarmKey("default", f"farm-{number}") for number in range(1000)]
    taken = next_farms(keys, 32, lambda _: False)
    assert len(set(taken)) == 32
    assert keys[-1] in taken
    assert taken[:20] == keys[:20]


def test_a_farm_does_not_wait_for_the_thousands_of_another_namespace() -> None:
    crowd = [FarmKey("crowd", f"farm-{number}") for number in range(1000)]
    quiet, late = FarmKey("quiet", "farm"), FarmKey("quiet", "another")
    keys = [*crowd[:500], quiet, late, *crowd[500:]]
    assert next_farms(keys, 8, lambda _: False) == [quiet, crowd[0], late, crowd[1], *crowd[-4:]]
    assert next_farms(keys, 8, lambda _: True)[:4] == [quiet, crowd[0], late, crowd[1]]


def test_few_changes_are_taken_in_their_order() -> None:
    keys = [FarmKey("default", f"farm-{number}") for number in range(8)]
    assert next_farms(keys, 8, lambda _: False) == keys


@pytest.mark.parametrize(("done", "seconds", "fitting"), [(32, 0.1, 32), (32, 0.5, 16), (32, 4.0, 2), (1, 4.0, 20)])
def test_a_pass_has_fewer_farms_where_nftlb_is_slow(done: int, seconds: float, fitting: int) -> None:
    assert fitting_chunk(done, seconds, before=20) == fitting


def test_what_is_urgent_is_taken_first_and_leaves_half_for_the_rest() -> None:
    keys = [FarmKey("default", f"farm-{number}") for number in range(1000)]
    late = set(keys[500:503])
    assert set(next_farms(keys, 8, late.__contains__)) == {*late, *keys[:3], *keys[-2:]}
    taken = next_farms(keys, 8, lambda _: True)
    assert len(taken) == len(set(taken)) == 8
    assert set(taken) == {*keys[:6], *keys[-2:]}
