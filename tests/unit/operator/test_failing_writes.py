"""A Service whose farms the API server does not take: its Event, its condition, and the gauge of which an alert is."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

from kube_nftlb import errors, metrics, names
from kube_nftlb.commands.cluster import service_findings
from kube_nftlb.kube.resources import EVENTS, FARMS, SERVICES, JsonObject, Resource
from kube_nftlb.operator.parts import Parts
from kube_nftlb.settings import OperatorSettings
from tests.builders import raw_service
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime

IPS = {"web": "10.96.0.10", "other": "10.96.0.11"}
WEBHOOK = 'failed calling webhook "x.example.com": '


class Webhook(FakeKube):
    """An API server with an admission webhook that fails for the farms of one Service, each time in other words."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = True
        self._attempts = itertools.count()

    async def apply(
        self, resource: Resource, body: JsonObject, *, field_manager: str, subresource: str | None = None
    ) -> JsonObject:
        if self.fails and resource is FARMS and body["metadata"]["name"].startswith("web--"):
            message = f"{WEBHOOK}read tcp 10.0.0.1:{next(self._attempts)}: {'x' * 600}"
            raise errors.KubeError(500, "InternalError", message)
        return await super().apply(resource, body, field_manager=field_manager, subresource=subresource)

    def told(self) -> list[JsonObject]:
        """The Events that were written."""
        return [write.body for write in self.writes if write.resource is EVENTS]


@pytest.fixture
async def operator(virtual_time: VirtualTime) -> AsyncIterator[tuple[Parts, Webhook]]:  # noqa: ARG001
    kube = Webhook()
    parts = Parts(kube, OperatorSettings(service_status=True))
    parts.activate()
    for name in ("web", "other"):
        parts.mark(parts.ingest.put(SERVICES, kube.put(SERVICES, raw_service(name, clusterIPs=[IPS[name]]))))
    tasks = [asyncio.create_task(write()) for write in parts.writers()]
    yield parts, kube
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def failing(parts: Parts) -> float:
    parts.refresh_gauges()
    (family,) = metrics.FARM_WRITES_FAILING.collect()
    return family.samples[0].value


async def test_writes_that_keep_failing_are_told_once_for_as_long_as_it_lasts(operator: tuple[Parts, Webhook]) -> None:
    parts, kube = operator
    await asyncio.sleep(2)
    assert (failing(parts), kube.told()) == (0, []), "it may be over in a moment"
    await asyncio.sleep(118)
    assert kube.find(FARMS, "other--http", "default") is not None
    assert failing(parts) == 1
    (event,) = kube.told()
    assert (event["reason"], event["involvedObject"]["name"]) == ("FarmNotWritten", "web")
    assert event["message"].startswith(
        f"the farm web--http cannot be written, and is tried again: 500 InternalError: {WEBHOOK}"
    )
    assert len(event["message"]) < 600
    kube.fails = False
    await asyncio.sleep(20)
    assert kube.find(FARMS, "web--http", "default") is not None
    assert failing(parts) == 0
    # It is over: the next time is news.
    kube.fails = True
    changed = raw_service("web", version=1000, ports=[{"name": "http", "port": 81}])
    parts.mark(parts.ingest.put(SERVICES, kube.put(SERVICES, changed)))
    await asyncio.sleep(120)
    assert [each["reason"] for each in kube.told()] == ["FarmNotWritten"] * 2


async def test_why_tells_what_the_api_server_said(operator: tuple[Parts, Webhook]) -> None:
    _, kube = operator
    await asyncio.sleep(30)
    service = kube.find(SERVICES, "web", "default")
    assert service is not None
    finding = service_findings.no_farm(service, kube.told())
    assert finding.message.startswith("it has no farm: FarmNotWritten: the farm web--http cannot be written")
    (condition,) = [each for each in service["status"]["conditions"] if each["type"] == names.SERVICE_CONDITION]
    assert (condition["status"], condition["reason"]) == ("False", "FarmNotWritten")
