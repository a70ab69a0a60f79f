"""Watch the DaemonSet that runs the agent, to know if the agent is being uninstalled, or leaves this node alone."""

import asyncio
import contextlib

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import DAEMON_SETS, NODES, JsonObject
from kube_nftlb.kube.scheduling import runs_on

_REQUEST_TIMEOUT_S = 3.0

_log = structlog.get_logger()


class OwnDaemonSet:
    """Watches one DaemonSet in ``run``.

    Helm deletes the agent's permissions along with its DaemonSet, so a request on exit alone may be forbidden.
    """

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._deleted = False
        self._raw: JsonObject | None = None

    async def run(self) -> None:
        """Watch it until cancelled."""
        handlers = Handlers.for_one(self._update)
        await list_and_watch(
            self._kube, DAEMON_SETS, handlers, namespace=self._namespace, field_selector=self._selector
        )

    async def is_deleted(self) -> bool:
        """Return True if the DaemonSet is deleted or being deleted, as far as known."""
        with contextlib.suppress(errors.KubeError, errors.KubeUnreachableError, TimeoutError):
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                listing = await self._kube.list(DAEMON_SETS, self._namespace, field_selector=self._selector)
                self._update(next(iter(listing.items), None))
        return self._deleted

    async def deselects(self, node: OwnNode) -> bool:
        """Return True if the DaemonSet exists, and its node selector or affinity no longer selects this node."""
        if await self.is_deleted() or self._raw is None:
            return False
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                labels = (await self._kube.get(NODES, node.name))["metadata"].get("labels") or {}
        except (errors.KubeError, errors.KubeUnreachableError, TimeoutError) as error:
            if node.last is None:
                message = "the rules stay: whether the DaemonSet selects this node cannot be told without its Node"
                _log.warning(message, error=str(error))
                return False
            labels = node.last.metadata.labels
        return not runs_on(self._raw["spec"]["template"]["spec"], node.name, labels)

    @property
    def _selector(self) -> str:
        return f"metadata.name={self._name}"

    def _update(self, raw: JsonObject | None) -> None:
        self._raw = raw
        self._deleted = raw is None or raw["metadata"].get("deletionTimestamp") is not None
