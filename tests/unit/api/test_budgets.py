"""The objects of a namespace that fit its budget."""

import itertools
import random

import pytest

from kube_nftlb import names
from kube_nftlb.api.budgets import Budget, fair_share, farm_rank, farm_size, rank
from kube_nftlb.api.conflicts import FarmKey
from tests.builders import raw_backend, raw_farm, raw_route_farm, raw_service_farm


def key(name: str, namespace: str = "crowd") -> FarmKey:
    return FarmKey(namespace, name)


def fitting(budget: Budget[FarmKey]) -> list[str]:
    return sorted(each.name for each in budget if not budget.refuses(each))


def test_the_oldest_fit_in_whatever_order_they_come() -> None:
    objects = [(key("a"), (True, 3.0)), (key("b"), (True, 1.0)), (key("c"), (True, 2.0))]
    for order in itertools.permutations(objects):
        budget: Budget[FarmKey] = Budget(2)
        for each, ranked in order:
            budget.put(each, ranked)
        assert fitting(budget) == ["b", "c"]


def test_each_change_of_a_verdict_is_told() -> None:
    budget: Budget[FarmKey] = Budget(2)
    assert budget.put(key("b"), (True, 2)) == {key("b")}
    assert budget.put(key("c"), (True, 3)) == {key("c")}
    assert budget.put(key("a"), (True, 1)) == {key("a"), key("c")}
    assert budget.put(key("other", "quiet"), (True, 9)) == {key("other", "quiet")}
    assert budget.put(key("a"), (True, 1)) == set()
    assert budget.remove(key("a")) == {key("c")}
    assert fitting(budget) == ["b", "c", "other"]


def test_sizes_add_up() -> None:
    budget: Budget[FarmKey] = Budget(10, 100)
    budget.put(key("a"), (True, 1), 60)
    budget.put(key("b"), (True, 2), 50)
    budget.put(key("c"), (True, 3), 10)
    assert fitting(budget) == ["a"], "a younger one does not pass one that waits"
    budget.put(key("huge"), (True, 0), 101)
    assert fitting(budget) == ["a"], "one that is too large alone takes no room"
    assert budget.put(key("a"), (True, 1), 40) == {key("b"), key("c")}
    assert fitting(budget) == ["a", "b", "c"]


def test_it_is_as_if_all_were_put_anew() -> None:
    chance = random.Random(7)  # noqa: S311 - nothing secret depends on it
    budget: Budget[FarmKey] = Budget(6, 60)
    wanted: dict[FarmKey, tuple[tuple[bool, float], int]] = {}
    for _ in range(3000):
        each = key(f"f{chance.randrange(12)}")
        before = {other: budget.refuses(other) for other in budget}
        if chance.random() < 0.3:
            told = budget.remove(each)
            wanted.pop(each, None)
        else:
            wanted[each] = (chance.random() < 0.5, chance.randrange(5)), chance.randrange(70)
            told = budget.put(each, *wanted[each])
        anew: Budget[FarmKey] = Budget(6, 60)
        for other, (ranked, size) in wanted.items():
            anew.put(other, ranked, size)
        assert fitting(budget) == fitting(anew)
        turned = {other for other in before.keys() & wanted.keys() if before[other] != budget.refuses(other)}
        assert turned == told & before.keys()


def test_farms_of_routes_come_first_too_but_a_group_without_a_version_is_none() -> None:
    by_hand, of_route, forged = raw_farm("by-hand"), raw_route_farm(), raw_route_farm()
    forged["metadata"]["ownerReferences"][0]["apiVersion"] = names.GATEWAY_API
    assert farm_rank(of_route) < farm_rank(by_hand) == farm_rank(forged)


def test_farms_of_services_come_first_and_large_ones_count_more() -> None:
    by_hand = raw_farm("by-hand", created="2020-01-01T00:00:00Z")
    of_service = raw_service_farm(created="2026-01-01T00:00:00Z")
    assert farm_rank(of_service) < farm_rank(by_hand)
    assert farm_size(by_hand) == 1
    assert farm_size(raw_farm(backends=[raw_backend(f"b{n}", "10.0.0.1") for n in range(199)])) == 5
    assert farm_size(raw_farm(addresses=[{"ip": "10.0.0.1", "ports": "80,1001-2024"}])) == 21
    assert farm_size(raw_farm(addresses=[{"ip": "10.0.0.1", "ports": "9-1,x,1-" + "9" * 5000}, 7, {}])) == 1
    assert farm_size({"metadata": {}, "spec": {"backends": "none", "backendsFrom": 7}}) == 1
    assert rank(of_service=False, created="yesterday") == rank(of_service=False, created=None)


@pytest.mark.parametrize(
    ("wanted", "total", "share"),
    [
        ([], 10, float("inf")),
        ([4, 6], 10, float("inf")),
        ([10, 10], 10, 5),
        ([1, 2, 30], 10, 7),
        ([1, 9, 30], 10, 4.5),
        ([100] * 50, 1000, 20),
        ([5, 5, 5, 5], 0, 0),
    ],
)
def test_who_wants_little_gets_it_and_the_others_share_the_rest(
    wanted: list[float], total: float, share: float
) -> None:
    assert fair_share(wanted, total) == share
    assert sum(min(each, share) for each in wanted) <= total or not wanted


def test_namespaces_that_want_too_much_together_are_cut_down_to_their_shares() -> None:
    budget: Budget[FarmKey] = Budget(100, 100, total_max=150)
    for number in range(10):
        assert budget.put(key(f"a{number}", "a"), (True, number), 10) == {key(f"a{number}", "a")}
    for number in range(5):
        budget.put(key(f"b{number}", "b"), (True, number), 10)
    assert len(fitting(budget)) == 15, "all fit"
    # 100 and 60 are wanted: 90 are left for the larger one.
    assert budget.put(key("b5", "b"), (True, 5), 10) == {key("b5", "b"), key("a9", "a")}
    # 100, 60 and 40: 55 each for the first two.
    assert budget.put(key("c", "c"), (True, 0), 40) == {
        key("c", "c"),
        *(key(f"a{number}", "a") for number in range(5, 9)),
        key("b5", "b"),
    }
    assert budget.remove(key("c", "c")) == {*(key(f"a{number}", "a") for number in range(5, 9)), key("b5", "b")}
    assert budget.remove(key("b0", "b")) == {key("a9", "a")}
    assert len(fitting(budget)) == 15


def test_the_verdict_is_the_same_in_whatever_order_objects_of_several_namespaces_come() -> None:
    chance = random.Random(7)  # noqa: S311 - no secret
    objects = [
        (key(f"{namespace}{number}", namespace), (True, float(number)), chance.randrange(1, 30))
        for namespace, count in (("a", 3), ("b", 12), ("c", 30))
        for number in range(count)
    ]
    verdicts = set()
    for _ in range(20):
        chance.shuffle(objects)
        budget: Budget[FarmKey] = Budget(20, 200, total_max=250)
        seen: set[FarmKey] = set()
        refused: set[FarmKey] = set()
        for each, ranked, size in objects:
            changed = budget.put(each, ranked, size)
            seen.add(each)
            assert {other for other in seen if budget.refuses(other) != (other in refused)} <= changed
            refused = {other for other in seen if budget.refuses(other)}
        verdicts.add(frozenset(refused))
        for each, *_ in objects[:10]:
            budget.remove(each)
        for each, ranked, size in objects[:10]:
            budget.put(each, ranked, size)
        assert {other for other in seen if budget.refuses(other)} == refused
    assert len(verdicts) == 1
