"""Write the status of the NftlbNode if it changed, once a second at most, and less often what follows endpoints."""

import asyncio
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import gt
from typing import Protocol

import structlog

from kube_nftlb import __version__, errors, names
from kube_nftlb.agent.model import Programmed
from kube_nftlb.agent.status.node_status import node_status
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.api.node import Node, NodeStatus, NodeVersions
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import NFTLB_NODES, NODES, JsonObject

_log = structlog.get_logger()

INTERVAL_S = 1.0
"""The minimum time between two writes."""
SETTLE_S = 0.2
"""The delay between a change and its write, so that traffic comes first."""
ENDPOINTS_EVERY_S = 3.0
"""The minimum time between two writes if only endpoints changed, which may go on for ever."""
_WATERMARKS = ("watermark", "slice_watermark", "policy_watermark")
HEARTBEAT_S = 30.0
"""Interval in seconds between writes of a status if only a watermark moved: statuses of farms move it as well."""


class State(Protocol):
    """The state of the agent that the status shows."""

    @property
    def progress(self) -> Progress:
        """The progress of the loop."""

    @property
    def programmed(self) -> Mapping[str, Programmed]:
        """The programmed farms by name."""


class NodeReporter:
    """Keeps the NftlbNode of this node up to date."""

    def __init__(self, kube: Kube, node_name: str) -> None:
        self._kube = kube
        self._name = node_name
        self._versions = NodeVersions(agent=__version__, kernel=platform.release())
        self._written: NodeStatus | None = None
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Note that the status may have changed."""
        self._changed.set()

    async def run(self, state: State) -> None:
        """Write until cancelled; failures are logged and retried."""
        loop = asyncio.get_running_loop()
        written_at = 0.0
        again: asyncio.TimerHandle | None = None
        while True:
            try:
                await asyncio.wait_for(self._changed.wait(), HEARTBEAT_S)
            except TimeoutError:
                written_at = 0.0
            await asyncio.sleep(SETTLE_S)
            self._changed.clear()
            status = node_status(state.progress, state.programmed, self._versions, self._written, datetime.now(tz=UTC))
            wait_s = self._due_in_s(status, state.progress, loop.time() - written_at)
            if wait_s is None:
                continue
            if wait_s > 0:
                if again is not None:
                    again.cancel()
                again = loop.call_later(wait_s, self._changed.set)
                continue
            try:
                await self._write(status)
                written_at = loop.time()
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                _log.warning("cannot write NftlbNode status, retrying", error=str(error))
                self._written = None
                self._changed.set()
            await asyncio.sleep(INTERVAL_S)

    def _due_in_s(self, status: NodeStatus, progress: Progress, age_s: float) -> float | None:
        """Return in how many seconds a status is due, 0 or less for now; None if it is not worth a write.

        ``age_s`` is the time since the last write.
        """
        before = self._written
        if status == before:
            return None
        if before is None or age_s >= HEARTBEAT_S:
            return 0
        changed = (progress.changed_at, progress.slices_changed_at, progress.policy_changed_at)
        reached = (int(getattr(before, name) or 0) for name in _WATERMARKS)
        farms, slices, policies = map(gt, changed, reached)
        if (
            farms
            or policies
            or _counted_anew(status, before, progress)
            or _without_endpoints(status) != _without_endpoints(before)
        ):
            return 0
        follows = slices or status.backends != before.backends or status.conditions != before.conditions
        return ENDPOINTS_EVERY_S - age_s if follows else None

    async def _write(self, status: NodeStatus) -> None:
        if self._written is None:
            self._written = await self._ensure_object()
        body: JsonObject = {
            "metadata": {"name": self._name},
            "status": status.model_dump(by_alias=True, mode="json"),
        }
        await self._kube.apply(NFTLB_NODES, body, field_manager=names.FIELD_MANAGER_AGENT, subresource="status")
        self._written = status

    async def _ensure_object(self) -> NodeStatus:
        """Create the NftlbNode if needed, owned by the Node so that both are deleted together; return its status."""
        node = await self._kube.get(NODES, self._name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node["metadata"]["uid"]}
        body: JsonObject = {"metadata": {"name": self._name, "ownerReferences": [owner]}}
        answer = await self._kube.apply(NFTLB_NODES, body, field_manager=names.FIELD_MANAGER_AGENT)
        return Node.model_validate(answer).status


def _counted_anew(status: NodeStatus, before: NodeStatus, progress: Progress) -> bool:
    """Return True if connections were counted for the first time since farms changed: a drain waits for that."""
    then, now = (int(each.draining.watermark or 0) for each in (before, status))
    return then < progress.changed_at <= now


def _without_endpoints(status: NodeStatus) -> NodeStatus:
    """Return a status without what changes of endpoints may change: while they are programmed, a node is not InSync."""
    draining = status.draining.model_copy(update={"watermark": ""})
    stays = tuple(condition for condition in status.conditions if condition.type != "InSync")
    changing = {**dict.fromkeys(_WATERMARKS, ""), "backends": 0, "draining": draining, "conditions": stays}
    return status.model_copy(update=changing)
