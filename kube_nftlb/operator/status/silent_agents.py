"""Name the nodes whose agents no longer report, in the condition Ready of their NftlbNodes and in Events.

Such a node counts neither in statuses nor for readiness gates: its agent is deselected, deleted or fails to start, and
what it said last would hold all others for ever. What it has programmed goes on, but does not change.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from kube_nftlb import errors, names
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Lasting, Subject
from kube_nftlb.kube.resources import NFTLB_NODES, JsonObject
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.node_record import SILENT

_LOOK_EVERY_S = 5.0

_log = structlog.get_logger()


class SilentAgents:
    """Keeps looking for them in ``run``. ``mark`` gets what a node that falls silent makes out of date."""

    def __init__(
        self,
        kube: Kube,
        ingest: Ingest,
        events: Events,
        mark: Callable[[Affected], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kube = kube
        self._ingest = ingest
        self._cache = ingest.cache
        self._events = events
        self._mark = mark
        self._now = now
        self._named: dict[str, Subject] = {}

    async def run(self) -> None:
        """Look every five seconds until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Name the nodes that have become silent, and those that report again."""
        try:
            await self._kube.newest(NFTLB_NODES)
        except (errors.KubeError, errors.KubeUnreachableError):
            return
        self._cache.heartbeats.contact()
        for name in self._cache.heartbeats.silent():
            known = self._cache.nodes.get(name)
            if known is not None and not known.silent:
                try:
                    await self._name(name, known.reported_at)
                except (errors.KubeError, errors.KubeUnreachableError) as error:
                    _log.warning("cannot write NftlbNode status, retrying", node=name, error=str(error))
        for name in list(self._named):
            known = self._cache.nodes.get(name)
            if known is None or not known.silent:
                subject = self._named.pop(name)
                self._events.report(subject, [])
                if known is not None:
                    self._events.report_resolved(subject, "AgentReports", "its agent reports again")

    async def _name(self, name: str, reported_at: str) -> None:
        raw = await self._kube.get(NFTLB_NODES, name)
        status = raw.get("status") or {}
        if status.get("reportedAt") != reported_at:
            # The watch is about to deliver it.
            return
        message = (
            f"its agent has not reported since {reported_at}; what it programmed goes on but does not change, and the "
            "node counts neither in statuses nor for readiness gates; see the pod of the agent on this node"
        )
        others = [each for each in status.get("conditions") or () if each.get("type") != "Ready"]
        ready: JsonObject = {
            "type": "Ready",
            "status": "Unknown",
            "reason": SILENT,
            "message": message,
            "observedGeneration": raw["metadata"].get("generation", 1),
            "lastTransitionTime": timestamps.seconds(self._now()),
        }
        answer = await self._kube.patch(
            NFTLB_NODES,
            name,
            {
                "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
                "status": {"conditions": [ready, *others]},
            },
            subresource="status",
            field_manager=names.FIELD_MANAGER_STATUS,
        )
        subject = self._named[name] = Subject(NFTLB_NODES, "", name, raw["metadata"]["uid"])
        self._events.report(subject, [Lasting(SILENT, message)])
        self._mark(self._ingest.put(NFTLB_NODES, answer))
