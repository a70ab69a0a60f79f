import asyncio

from benchmarks import cluster


class _Kube:
    """An API server's EndpointSlices; which patches changed nothing."""

    def __init__(self):
        self.endpoints, self.idle = {}, 0

    async def patch(self, _resource, name, body, _namespace):
        self.idle += self.endpoints.get(name) == body
        self.endpoints[name] = body


async def test_a_steady_change_changes_something_each_time_after_a_restart_too(monkeypatch):
    monkeypatch.setattr(cluster, "CHANGES_PER_S", 1000)
    kube = _Kube()
    for _ in range(2):
        async with cluster.steady_change(kube, cluster.others(3, endpoints=2)):
            await asyncio.sleep(0.05)
    assert len(kube.endpoints) == 3
    assert kube.idle == 0
    # The other endpoint stays.
    kept = {name: body["endpoints"][0]["addresses"] for name, body in kube.endpoints.items()}
    assert kept == {name: addresses[:1] for name, addresses in cluster.others(3, endpoints=2).items()}
