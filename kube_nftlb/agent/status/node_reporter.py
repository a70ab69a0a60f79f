"""Write what changed of the NftlbNode's status: soon after a quiet time, then at intervals that fit the cluster."""

import asyncio
import platform
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import gt
from typing import Any, Protocol

import structlog
from pydantic import ValidationError

from kube_nftlb import __version__, errors, names
from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.model import SentFarm
from kube_nftlb.agent.status.node_status import node_status
from kube_nftlb.agent.sync.progress import WATERMARKS, Progress
from kube_nftlb.api.node import Node, NodeAddresses, NodeBGP, NodeStatus, NodeVersions
from kube_nftlb.api.reports import INTERVAL_S, report_interval_s, report_spread_s
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.rate import Rate
from kube_nftlb.kube.reflector import pause
from kube_nftlb.kube.resources import NFTLB_NODES, NODES, JsonObject

_log = structlog.get_logger()

SETTLE_S = 0.05
"""The delay between a change and its report: changes come in bursts, and the next one may be programmed by then."""
PENDING_S = 2.0
"""Time in seconds for which changes must be pending for that alone to be reported."""
RETRY_S = 1.0
"""The first pause in seconds after a failure; it doubles each time."""
HEARTBEAT_S = 60.0
"""The longest interval in seconds between reports. They are whole then: the operator may have written meanwhile."""


class State(Protocol):
    """The state of the agent that the status shows."""

    @property
    def progress(self) -> Progress:
        """The progress of the loop."""

    @property
    def sent(self) -> Mapping[str, SentFarm]:
        """The farms that engines have sent, by name."""


class NodeReporter:
    """Keeps the NftlbNode of this node up to date.

    ``interval_s`` is the minimum time between two reports in a cluster of one node. ``chance`` returns numbers from 0
    to 1.
    """

    def __init__(
        self,
        kube: Kube,
        node_name: str,
        interval_s: float = INTERVAL_S,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.addresses: Callable[[], NodeAddresses] = NodeAddresses
        """Returns what the status tells of the addresses that the node announces."""
        self.bgp: Callable[[], NodeBGP] = NodeBGP
        """Returns what it tells of BGP."""
        self._nodes = 1
        self._kube = kube
        self._name = node_name
        self._interval_s = interval_s
        self._chance = chance
        self._versions = NodeVersions(agent=__version__, kernel=platform.release())
        self._state: State | None = None
        self._written: NodeStatus | None = None
        self._changed = asyncio.Event()
        self._changes = Rate()
        self._slices_at = 0
        self._pending_since: float | None = None

    def set_nodes(self, number: int) -> None:
        """Take the number of nodes in the cluster."""
        self._nodes = number

    def changed(self) -> None:
        """Note that the status may have changed."""
        if self._state is not None and (at := self._state.progress.slices_changed_at) != self._slices_at:
            self._slices_at = at
            self._changes.note(asyncio.get_running_loop().time())
        self._changed.set()

    async def run(self, state: State) -> None:
        """Write until cancelled; failures are logged and retried."""
        self._state = state
        loop = asyncio.get_running_loop()
        written_at = loop.time() - report_interval_s(self._nodes)
        again: asyncio.TimerHandle | None = None
        retry_s = RETRY_S
        while True:
            await MonotonicClock().wait(self._changed, max(written_at + HEARTBEAT_S - loop.time(), 0))
            rest_s = written_at + self._between_s(loop.time()) - loop.time()
            await asyncio.sleep(max(rest_s, SETTLE_S + self._chance() * report_spread_s(self._nodes)))
            self._changed.clear()
            if again is not None:
                again.cancel()
            now = datetime.now(tz=UTC)
            announced = self.addresses(), self.bgp()
            status = node_status(state.progress, state.sent, self._versions, self._written, now, *announced)
            # What has failed may have been done all the same.
            failed = retry_s > RETRY_S
            wait_s = 0 if failed else self._due_in_s(status, state.progress, loop.time(), written_at)
            if wait_s is None:
                continue
            if wait_s > 0:
                again = loop.call_later(wait_s, self._changed.set)
                continue
            try:
                await self._write(status, whole=failed or loop.time() - written_at >= HEARTBEAT_S)
                written_at, retry_s = loop.time(), RETRY_S
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                _log.warning("cannot write NftlbNode status, retrying", error=str(error))
                if isinstance(error, errors.NotFoundError):
                    self._written = None
                self._changed.set()
                retry_s = await pause(retry_s, self._chance)

    def _between_s(self, now: float) -> float:
        return min(report_interval_s(self._nodes, self._changes.per_s(now), self._interval_s), HEARTBEAT_S)

    def _due_in_s(self, status: NodeStatus, progress: Progress, now: float, written_at: float) -> float | None:
        """Return in how many seconds a status is due, 0 or less for now; None if it is not worth a write."""
        if not progress.pending:
            self._pending_since = None
        elif self._pending_since is None:
            self._pending_since = now
        before = self._written
        if before is None or now - written_at >= HEARTBEAT_S:
            return 0
        if status == before:
            return None
        changed = (progress.changed_at, progress.slices_changed_at, progress.policy_changed_at)
        # The operator may have lost its own watch too, and wait for what was gone by its next list.
        caught_up = (progress.caught_up[name] for name in WATERMARKS)
        reached = (int(getattr(before, name) or 0) for name in WATERMARKS)
        if any(map(gt, map(max, changed, caught_up), reached)) and _moved(status, before):
            return 0
        if _counted_anew(status, before, progress) or _without_watermarks(status) != _without_watermarks(before):
            return 0
        if status.conditions == before.conditions:
            return None
        return 0 if self._pending_since is None else self._pending_since + PENDING_S - now

    async def _write(self, status: NodeStatus, *, whole: bool) -> None:
        if self._written is None:
            self._written = await self._ensure_object()
        before, after = _dump(self._written), _dump(status)
        changes = {name: value for name, value in after.items() if whole or before.get(name) != value}
        body: JsonObject = {"status": {**changes, "reportedAt": timestamps.seconds(datetime.now(tz=UTC))}}
        await self._kube.patch(
            NFTLB_NODES, self._name, body, field_manager=names.FIELD_MANAGER_AGENT, subresource="status"
        )
        self._written = status

    async def _ensure_object(self) -> NodeStatus:
        """Create the NftlbNode if needed, owned by the Node so that both are deleted together; return its status."""
        node = await self._kube.get(NODES, self._name)
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": node["metadata"]["uid"]}
        body: JsonObject = {"metadata": {"name": self._name, "ownerReferences": [owner]}}
        answer = await self._kube.apply(NFTLB_NODES, body, field_manager=names.FIELD_MANAGER_AGENT)
        try:
            return Node.model_validate(answer).status
        except ValidationError:
            # Of another version: it is replaced.
            return NodeStatus()


def _dump(status: NodeStatus) -> dict[str, Any]:
    return status.model_dump(by_alias=True, mode="json")


def _moved(status: NodeStatus, before: NodeStatus) -> bool:
    return any(getattr(status, name) != getattr(before, name) for name in WATERMARKS)


def _counted_anew(status: NodeStatus, before: NodeStatus, progress: Progress) -> bool:
    """Return True if connections were counted for the first time since farms changed: a drain waits for that."""
    then, now = (int(each.draining.watermark or 0) for each in (before, status))
    return then < progress.changed_at <= now


def _without_watermarks(status: NodeStatus) -> NodeStatus:
    """Return a status without what moves all the time: while changes are programmed, a node is not InSync."""
    draining = status.draining.model_copy(update={"watermark": ""})
    stays = tuple(condition for condition in status.conditions if condition.type != "InSync")
    return status.model_copy(update={**dict.fromkeys(WATERMARKS, ""), "draining": draining, "conditions": stays})
