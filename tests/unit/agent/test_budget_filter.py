"""Objects that fit their namespace's budget again are read anew, but not whenever a tenant wants it."""

import asyncio
import sys

import pytest

from kube_nftlb.agent.budget_filter import NamespaceBudgetFilter
from kube_nftlb.api.budgets import Budget, farm_rank
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.resources import FARMS, JsonObject, Resource
from tests.builders.farms import raw_farm
from tests.fakes.kube import FakeKube


class CountingKube(FakeKube):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = 0

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JsonObject:
        self.gets += 1
        return await super().get(resource, name, namespace)


def raw(name: str, created: str) -> JsonObject:
    return raw_farm(name, namespace="crowd", created=f"2026-01-{created}T00:00:00Z")


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize(("others", "gets", "lists"), [(5, 5, 0), (300, 0, 1)])
async def test_many_are_read_as_one_list_and_less_and_less_often(others: int, gets: int, lists: int) -> None:
    kube, put, sizes = CountingKube(), list[str](), {"large": 1}
    oldest = raw("large", "01")
    small = [raw(f"f{number}", "02") for number in range(others)]
    for each in (oldest, *small):
        kube.put(FARMS, each)
    budget: Budget[FarmKey] = Budget(sys.maxsize, 1000)
    budget_filter = NamespaceBudgetFilter(
        budget, FARMS, farm_rank, lambda each: sizes.get(each["metadata"]["name"], 1), lambda _: None
    )
    for each in (oldest, *small):
        budget_filter.admits(FarmKey("crowd", each["metadata"]["name"]), each)
    reading = asyncio.create_task(budget_filter.read_missing(kube, lambda each: put.append(each["metadata"]["name"])))

    async def toggle() -> None:
        for size in (1000, 1):
            sizes["large"] = size
            budget_filter.admits(FarmKey("crowd", "large"), oldest)

    await toggle()
    await asyncio.sleep(0.5)
    assert (kube.gets, len(kube.lists)) == (gets, lists)
    assert len(put) == others
    for _ in range(600):
        await toggle()
        await asyncio.sleep(1)
    reading.cancel()
    reads = len(kube.lists) if lists else kube.gets // others
    assert 8 <= reads <= 20, "of 600"
    await asyncio.sleep(0)


@pytest.mark.usefixtures("virtual_time")
async def test_objects_of_a_namespace_do_not_wait_for_the_pace_of_another() -> None:
    kube, put, sizes = FakeKube(), list[tuple[float, str]](), dict[FarmKey, int]()
    clock = asyncio.get_running_loop().time
    objects = {
        FarmKey(namespace, name): raw_farm(name, namespace=namespace, created=f"2026-01-{created}T00:00:00Z")
        for namespace in ("noisy", "quiet")
        for name, created in (("old", "01"), ("young", "02"))
    }

    def size(each: JsonObject) -> int:
        return sizes.get(FarmKey.of(each), 1)

    budget: Budget[FarmKey] = Budget(sys.maxsize, 1000)
    budget_filter = NamespaceBudgetFilter(budget, FARMS, farm_rank, size, lambda _: None)
    for key, each in objects.items():
        kube.put(FARMS, each)
        budget_filter.admits(key, each)

    def toggle(namespace: str) -> None:
        key = FarmKey(namespace, "old")
        for sizes[key] in (1000, 1):
            budget_filter.admits(key, objects[key])

    reading = asyncio.create_task(
        budget_filter.read_missing(kube, lambda each: put.append((clock(), each["metadata"]["namespace"])))
    )
    for _ in range(400):
        toggle("noisy")
        await asyncio.sleep(1)
    began = clock()
    toggle("quiet")
    await asyncio.sleep(1)
    reading.cancel()
    assert [at - began < 1 for at, namespace in put if namespace == "quiet"] == [True]
