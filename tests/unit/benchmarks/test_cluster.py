import asyncio
import itertools
from collections import defaultdict

import pytest

from benchmarks import cluster
from kube_nftlb.kube.resources import ENDPOINT_SLICES
from tests.fakes.kube import FakeKube


@pytest.mark.usefixtures("virtual_time")
async def test_each_steady_change_changes_something_even_after_a_restart() -> None:
    kube, slices = FakeKube(), cluster.others(3, endpoints=2)
    for name in slices:
        kube.put(ENDPOINT_SLICES, {"metadata": {"name": name, "namespace": "default"}})
    for _ in range(2):
        async with cluster.steady_change(kube, slices):
            await asyncio.sleep(50 / cluster.CHANGES_PER_S)
    written = defaultdict(list)
    for write in kube.writes:
        written[write.name].append([endpoint["addresses"] for endpoint in write.body["endpoints"]])
    assert written.keys() == slices.keys()
    for name, states in written.items():
        assert all(before != after for before, after in itertools.pairwise(states))
        assert states[-1][0] == slices[name][:1], "the other endpoint stays"
