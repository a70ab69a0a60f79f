"""Objects that cannot be read stay as they were, also when all are listed anew."""

import asyncio
from collections.abc import Mapping

from kube_nftlb import errors
from kube_nftlb.agent.announcing.valid import watch_valid
from kube_nftlb.api.address_pool import AddressPool
from kube_nftlb.kube.resources import ADDRESS_POOLS, JsonObject
from tests.builders.pools import raw_judged
from tests.fakes.kube import FakeKube


def pool(name: str, *ranges: str) -> JsonObject:
    return {"metadata": {"name": name}, "spec": {"ranges": list(ranges)}}


async def test_what_cannot_be_read_stays_as_it_was_or_is_left_out() -> None:
    kube, told = FakeKube(), list[dict[str, tuple[str, ...]]]()

    def take(pools: Mapping[str, AddressPool]) -> None:
        told.append({name: each.spec.ranges for name, each in pools.items()})

    async def eventually(wanted: Mapping[str, tuple[str, ...]], lists: int = 1) -> None:
        async with asyncio.timeout(10):
            while len(kube.lists) < lists or not told or told[-1] != wanted:
                await asyncio.sleep(0.005)

    kube.put(ADDRESS_POOLS, pool("a", "192.0.2.0/28"))
    kube.put(ADDRESS_POOLS, pool("never", "nonsense"))
    task = asyncio.create_task(watch_valid(kube, ADDRESS_POOLS, AddressPool, take))
    await eventually({"a": ("192.0.2.0/28",)})
    kube.put(ADDRESS_POOLS, pool("b", "192.0.2.16/28"))
    kube.put(ADDRESS_POOLS, pool("a", "nonsense"))
    both = {"a": ("192.0.2.0/28",), "b": ("192.0.2.16/28",)}
    await eventually(both)
    lists = len(kube.lists)
    kube.watch_errors.append(errors.ExpiredError(410, "Expired", "too old resource version"))
    kube.put(ADDRESS_POOLS, pool("b", "nonsense"))
    await eventually(both, lists + 1)
    before = len(told)
    kube.put(ADDRESS_POOLS, {**pool("a", "192.0.2.0/28"), "status": {"used": 1}})
    kube.remove(ADDRESS_POOLS, "a")
    await eventually({"b": ("192.0.2.16/28",)})
    assert len(told) == before + 1, "a number in the status of a pool says nothing new"
    # Accepted, changed since, and refused.
    for number, (generation, status) in enumerate(((2, "True"), (3, "True"), (3, "False")), 2):
        judged = raw_judged(pool("b", "192.0.2.16/28"), 2, status)
        judged["metadata"]["generation"] = generation
        kube.put(ADDRESS_POOLS, judged)
        async with asyncio.timeout(10):
            while len(told) < before + number:
                await asyncio.sleep(0.005)
    task.cancel()
