"""Lists repair what watches miss."""

import asyncio
from collections.abc import Sequence

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
    """Has only these Services; ``failures`` are the errors of the next lists."""

    def __init__(self, *failures: errors.KubeNftlbError, services: Sequence[JsonObject] = ()) -> None:
        super().__init__()
        self.failures = list(failures)
        self.services = services
        self.pages = 0

    async def request(self, method: str, path: str, **_: object) -> JsonObject:
        self.pages += 1
        if self.failures:
            raise self.failures.pop(0)
        items = list(self.services) if path == SERVICES.path() else []
        return {"metadata": {"resourceVersion": "100"}, "items": items}


@pytest.mark.parametrize("error", [errors.KubeUnreachableError("away"), errors.KubeError(429, "TooMany", "later")])
async def test_what_was_deleted_while_kopf_had_no_watch_is_found_though_the_first_list_fails(
    error: errors.KubeNftlbError,
) -> None:
    kube, cache = _Kube(error), Cache()
    writer = Ingest(cache)
    writer.put(SERVICES, raw_service(version=5))
    lister = Lister(kube, writer, lambda _: None)
    task = asyncio.create_task(lister.run(every_s=300))
    await asyncio.sleep(1)
    lister.note_event_of_kopf(of_list=True)
    await asyncio.sleep(30)
    assert cache.services.get(ServiceKey("default", "web")) is None
    task.cancel()


@pytest.mark.parametrize(("of_list", "reported_after_s", "warnings"), [(True, 29, 0), (True, 31, 1), (False, 61, 2)])
async def test_the_first_lists_wait_for_kopf_and_say_so_if_that_takes_long(
    of_list: bool, reported_after_s: int, warnings: int
) -> None:
    lister = Lister(_Kube(), Ingest(Cache()), lambda _: None)
    with capture_logs() as logs:
        filling = asyncio.create_task(lister.fill())
        await asyncio.sleep(reported_after_s)
        assert not filling.done()
        lister.note_event_of_kopf(of_list=of_list)
        async with asyncio.timeout(1):
            await filling
        await asyncio.sleep(60)
    assert [each["event"] for each in logs] == [
        "kopf has not reported any Service yet: no farms are written until it does"
    ] * warnings


async def test_a_service_that_cannot_be_parsed_stops_no_other() -> None:
    malformed = {**raw_service("malformed", version=5), "spec": {"ports": [{"port": "http"}]}}
    kube, cache = _Kube(services=[malformed, raw_service("web", version=6)]), Cache()
    ingest = Ingest(cache)
    lister = Lister(kube, ingest, lambda _: None)
    lister.note_event_of_kopf(of_list=True)
    with capture_logs() as logs:
        await lister.fill()
    assert ingest.is_unreadable(ServiceKey("default", "malformed"))
    assert cache.services.get(ServiceKey("default", "web")) is not None
    assert [(each["event"], each["name"]) for each in logs] == [("cannot parse object, ignored", "malformed")]
    with capture_logs() as logs:
        task = asyncio.create_task(lister.run(every_s=300))
        await asyncio.sleep(600)
    assert not task.done()
    task.cancel()
    assert logs == [], "it is no change that a watch missed"
    kube.services = [raw_service("web", version=6)]
    await lister.fill_services()
    assert not ingest.is_unreadable(ServiceKey("default", "malformed")), "it is gone"


async def test_services_of_a_restored_etcd_are_noticed() -> None:
    cache = Cache()
    ingest = Ingest(cache)
    ingest.put(SERVICES, raw_service(version=50))
    lister = Lister(_Kube(services=[raw_service(version=5)]), ingest, lambda _: None)
    with pytest.raises(errors.RestoredError, match="services web is older than it was before"):
        await lister.fill_services()
    lister.note_event_of_kopf(of_list=True)
    with pytest.raises(errors.RestoredError):
        await asyncio.wait_for(lister.run(every_s=300), 10)


async def test_changes_that_kopf_reports_cause_no_lists_but_its_own_lists_do() -> None:
    kube = _Kube()
    lister = Lister(kube, Ingest(Cache()), lambda _: None)
    lister.note_event_of_kopf(of_list=False)
    task = asyncio.create_task(lister.run(every_s=300))
    await asyncio.sleep(5)
    first = kube.pages
    for _ in range(3):
        lister.note_event_of_kopf(of_list=False)
        await asyncio.sleep(5)
    assert kube.pages == first > 0
    lister.note_event_of_kopf(of_list=True)
    await asyncio.sleep(5)
    assert kube.pages == 2 * first
    task.cancel()
