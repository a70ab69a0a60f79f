"""All parts of the operator, before an API server in memory."""

import asyncio

import pytest

from kube_nftlb.kube.resources import FARMS, PODS, SERVICES
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.model.pods import slim
from kube_nftlb.operator.parts import Parts
from kube_nftlb.settings import OperatorSettings
from tests.builders import raw_pod, raw_service, raw_service_farm
from tests.fakes.kube import FakeKube


@pytest.mark.usefixtures("virtual_time")
async def test_a_new_leader_gives_no_overrides_that_do_not_fit_beside_those_in_force() -> None:
    kube = FakeKube()
    # Two farms, and so 100 overrides.
    parts = Parts(kube, OperatorSettings(limits=NamespaceLimits(farms=2)))
    for number in range(60):
        pod = slim(raw_pod(f"p{number:02}", annotations={"weight": "3"}))
        assert pod is not None
        parts.ingest.put(PODS, {**pod, "labels": {"app": "all", **({"most": "yes"} if number < 45 else {})}})
    parts.ingest.put(SERVICES, raw_service("old", created="2026-01-01T00:00:00Z", selector={"app": "all"}))
    parts.ingest.put(SERVICES, raw_service("new", created="2026-02-02T00:00:00Z", selector={"most": "yes"}))
    overrides = [{"pod": f"p{number:02}", "weight": 3} for number in range(60)]
    group = {"service": "old", "port": "http", "overrides": overrides}
    parts.ingest.put(FARMS, raw_service_farm("old--http", service="old", backendsFrom=[group]))
    parts.activate()
    # It has no farm yet, so it comes first.
    worker = asyncio.create_task(parts.reconciler.services.work())
    await asyncio.sleep(1)
    worker.cancel()
    made = [(write.name, len(write.body["spec"]["backendsFrom"][0]["overrides"])) for write in kube.writes]
    assert made == [("new--http", 0), ("old--http", 60)]
