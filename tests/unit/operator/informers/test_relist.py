"""Lists repair what watches miss."""

import asyncio

import pytest
from structlog.testing import capture_logs

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


@pytest.mark.parametrize(("of_list", "reported_after_s", "warnings"), [(True, 29, 0), (True, 31, 1), (False, 31, 1)])
async def test_the_first_lists_wait_for_kopf_and_say_so_if_that_takes_long(
    of_list: bool, reported_after_s: int, warnings: int
) -> None:
    kube, cache = _Kube(), Cache()
    kube.failures = []
    lister = Lister(kube, Ingest(cache), lambda _: None)
    with capture_logs() as logs:
        filling = asyncio.create_task(lister.fill())
        await asyncio.sleep(reported_after_s)
        assert not filling.done()
        lister.note_event_of_kopf(of_list=of_list)
        async with asyncio.timeout(1):
            await filling
        await asyncio.sleep(60)
    assert [each["log_level"] for each in logs] == ["warning"] * warnings
