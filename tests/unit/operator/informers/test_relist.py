"""Lists repair what watches miss."""

import asyncio

import pytest

from kube_nftlb import errors
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import SERVICES, JsonObject
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.informers.relist import Lister
from tests.builders import raw_service
from tests.fakes.kube import FakeKube

pytestmark = pytest.mark.usefixtures("virtual_time")


class _Kube(FakeKube):
    """Has no objects; ``failures`` are the errors of the next lists."""

    failures: list[errors.KubeNftlbError]

    async def request(self, *_: object, **__: object) -> JsonObject:
        if self.failures:
            raise self.failures.pop(0)
        return {"metadata": {"resourceVersion": "100"}, "items": []}


@pytest.mark.parametrize("error", [errors.KubeUnreachableError("away"), errors.KubeError(429, "TooMany", "later")])
async def test_what_was_deleted_while_kopf_had_no_watch_is_found_though_the_first_list_fails(
    error: errors.KubeNftlbError,
) -> None:
    kube, cache = _Kube(), Cache()
    kube.failures = [error]
    writer = Ingest(cache)
    writer.put(SERVICES, raw_service(version=5))
    lister = Lister(kube, writer, lambda _: None)
    task = asyncio.create_task(lister.run(every_s=300))
    await asyncio.sleep(1)
    lister.note_event_of_kopf(of_list=True)
    await asyncio.sleep(30)
    assert cache.services.get(ServiceKey("default", "web")) is None
    task.cancel()
