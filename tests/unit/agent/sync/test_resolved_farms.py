"""The farms that were resolved last."""

from kube_nftlb.agent.sync.resolved_farms import ResolvedFarms
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from tests.builders import farm, raw_backend

KEYS = [FarmKey("default", f"web-{number}") for number in range(4)]


def resolved(backends: int) -> Farm:
    return farm(backends=[raw_backend(f"pod-{number}", f"10.244.0.{number + 1}") for number in range(backends)])


def test_those_resolved_first_go_when_there_are_too_many_backends() -> None:
    farms = ResolvedFarms(backends_max=12)
    for key in KEYS:
        farms.put(key, resolved(3))
    assert [farms.get(key) is not None for key in KEYS] == [False, True, True, True]


def test_a_farm_of_more_backends_is_kept_alone() -> None:
    farms = ResolvedFarms(backends_max=3)
    farms.put(KEYS[0], resolved(1))
    farms.put(KEYS[1], resolved(9))
    assert [farms.get(key) is not None for key in KEYS[:2]] == [False, True]


def test_farms_that_are_replaced_and_forgotten_do_not_count() -> None:
    farms = ResolvedFarms(backends_max=8)
    for _ in range(9):
        farms.put(KEYS[0], resolved(3))
    farms.put(KEYS[1], resolved(3))
    assert farms.get(KEYS[0]) is not None
    farms.forget(KEYS[1])
    farms.forget(KEYS[1])
    farms.put(KEYS[2], resolved(3))
    assert [farms.get(key) is not None for key in KEYS[:3]] == [True, False, True]
