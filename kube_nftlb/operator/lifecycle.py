"""Start and stop the operator: its connection and ports, its tasks, and the election of a leader."""

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Self, cast

import kopf
import structlog

from kube_nftlb import errors, metrics, names
from kube_nftlb.http_server import Answer, serve
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.lease import Lease, new_identity
from kube_nftlb.kube.lease_thread import LeaseThread
from kube_nftlb.kube.resources import POLICIES, SERVICES, JsonObject, Resource
from kube_nftlb.kube.servers import ApiServers
from kube_nftlb.operator import health, kopf_settings
from kube_nftlb.operator.informers.malformed import skip_malformed
from kube_nftlb.operator.parts import Parts, Work
from kube_nftlb.settings import OperatorSettings

_LEASE = "kube-nftlb-operator"
_DISCOVERY_RETRY_S = 0.5
_DISCOVERY_WARNING_EVERY_S = 30.0

_log = structlog.get_logger()


class Operator:
    """The running operator. ``main`` says what kopf does with it."""

    def __init__(self, kube: Kube, settings: OperatorSettings) -> None:
        self.servers = kube.servers
        self._kube = kube
        self._settings = settings
        self._parts = Parts(kube, settings, lambda: self._lease is None or self._lease.is_certain)
        self._listed = asyncio.Event()
        self._opened = AsyncExitStack()
        self._readers: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.Task[None]] = []
        self._supervisor: asyncio.Task[None] | None = None
        self._lease: LeaseThread | None = None
        if settings.leader_election:
            identity = new_identity()
            self._lease = LeaseThread(
                lambda: Kube.connect(user_agent=names.OPERATOR_COMPONENT, servers=kube.servers),
                lambda kube: Lease(kube, settings.namespace, _LEASE, time.monotonic, identity),
            )
        metrics.LEADER.set_function(lambda: self._leads)

    @classmethod
    async def start(cls, settings: OperatorSettings) -> Self:
        """Connect, listen, and start all tasks.

        Raises UnavailableError if no API server is known, and UsageError if listening fails.
        """
        async with AsyncExitStack() as opened:
            servers = ApiServers(settings.api_servers)
            kube = await opened.enter_async_context(
                await Kube.connect(user_agent=names.OPERATOR_COMPONENT, servers=servers)
            )
            operator = cls(kube, settings)
            await operator.run(opened)
        return operator

    async def run(self, opened: AsyncExitStack) -> None:
        """Listen, and start all tasks. From then on ``stop`` closes what is ``opened``. Raises UsageError."""
        parts, settings = self._parts, self._settings
        page = metrics.Page("operator", parts.refresh_gauges)
        for answer, address, name in (
            (page.answer, settings.metrics_address, "metrics"),
            (self.probe, settings.health_address, "health"),
        ):
            server = await serve(answer, address, name)
            opened.callback(server.close)
        election = [self._lease.run] if self._lease is not None else []
        writers = [self._when_active(work) for work in parts.writers()]
        self._writers = [asyncio.create_task(work()) for work in (*election, self._lead, *writers)]
        self._readers = [asyncio.create_task(work()) for work in (*parts.readers(), self._list)]
        self._supervisor = asyncio.create_task(self._supervise())
        self._opened = opened.pop_all()
        _log.info("operator started", relist_s=settings.relist_s)

    async def until_discoverable(self) -> None:
        """Wait until the API server tells of the custom resource that kopf watches.

        kopf (1.45) asks once which resources there are, and would never watch one that comes later: a
        CustomResourceDefinition is told of a moment after it has been created, on a busy API server seconds.
        """
        warned_at = time.monotonic()
        while True:
            try:
                if await self._discovers(POLICIES):
                    return
                problem = (
                    f"the API server has no {POLICIES.plural}.{POLICIES.group}: install the CustomResourceDefinitions"
                )
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                problem = str(error)
            if time.monotonic() - warned_at >= _DISCOVERY_WARNING_EVERY_S:
                warned_at = time.monotonic()
                _log.warning("nothing can be watched yet", error=problem)
            await asyncio.sleep(_DISCOVERY_RETRY_S)

    async def _discovers(self, resource: Resource) -> bool:
        groups = await self._kube.request("GET", "/apis")
        if resource.group not in {each["name"] for each in groups["groups"]}:
            return False
        found = await self._kube.request("GET", f"/apis/{resource.api_version}")
        return resource.plural in {each["name"] for each in found["resources"]}

    def take(self, resource: Resource, event: kopf.RawEvent) -> None:
        """Take an object that kopf lists (its type is None), or whose change it reports."""
        parts, raw = self._parts, cast(JsonObject, event["object"])
        if resource is SERVICES:
            parts.lister.note_event_of_kopf(of_list=event["type"] is None)
        change = parts.ingest.remove if event["type"] == "DELETED" else parts.ingest.put
        parts.mark(skip_malformed(change, resource, raw))

    def probe(self, path: str) -> Answer:
        """Answer a probe. A standby replica is as healthy and ready as the leader."""
        answer = health.answer(
            path,
            now=datetime.now(UTC),
            stalled_s=self._parts.reconciler.stalled_s(),
            listed=self._listed.is_set(),
            leads=self._leads,
        )
        if answer.status != 404:
            metrics.PROBES.labels(path, str(answer.status)).inc()
        return answer

    async def stop(self) -> None:
        """Stop writing, release the Lease, then end everything else. Raises the error that ended a task before."""
        _log.info("operator stopping")
        if self._supervisor is not None:
            # That all tasks end is no failure now.
            self._supervisor.cancel()
        # First of all, so that the next leader need not wait for the rest.
        await self._stop_writing()
        if self._lease is not None:
            await self._lease.release()
        for reader in self._readers:
            reader.cancel()
        results = await asyncio.gather(*self._writers, *self._readers, return_exceptions=True)
        await self._opened.aclose()
        for result in results:
            if isinstance(result, Exception):
                raise result

    @property
    def _leads(self) -> bool:
        return self._lease is None or self._lease.leading.is_set()

    async def _list(self) -> None:
        await self._parts.until_listed()
        # It has reported a Service, so it watches those, or is about to end as that has failed.
        if not kopf_settings.watches(POLICIES):
            raise errors.UnavailableError(
                f"kopf does not watch {POLICIES.plural}: an API server may not know of them yet"
            )
        self._listed.set()
        await self._parts.lister.run(self._settings.relist_s)

    async def _lead(self) -> None:
        """Begin to write once all is listed and the election is won.

        A standby replica watches as the leader does, so it need not list everything when it takes over.
        """
        await self._listed.wait()
        if self._lease is not None:
            await self._lease.leading.wait()
            await self._parts.lister.fill_services()
        self._parts.activate()
        await asyncio.Event().wait()

    def _when_active(self, work: Work) -> Work:
        async def run() -> None:
            await self._parts.active.wait()
            await work()

        return run

    async def _supervise(self) -> None:
        """End the program when a task ends, as when the Lease is lost: none of them is to end by itself."""
        await asyncio.wait([*self._writers, *self._readers], return_when=asyncio.FIRST_COMPLETED)
        await self._stop_writing()
        # kopf ends, and calls ``stop``, as if Kubernetes had asked for it.
        signal.raise_signal(signal.SIGTERM)

    async def _stop_writing(self) -> None:
        for writer in self._writers:
            writer.cancel()
        await asyncio.wait(self._writers)
