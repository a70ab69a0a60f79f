"""The DaemonSet that runs the agent: whether the agent ends for good on this node."""

import asyncio
import contextlib

import structlog

from kube_nftlb import errors
from kube_nftlb.kube.client import Kube, Listing, WatchEvent
from kube_nftlb.kube.reflector import follow
from kube_nftlb.kube.resources import DAEMON_SETS, JsonObject

_LOOK_S = 3.0

_log = structlog.get_logger()


class OwnDaemonSet:
    """Follows one DaemonSet in ``run``.

    Helm deletes the agent's rights along with its DaemonSet; so an agent that first asks as it ends may get no answer.
    """

    def __init__(self, kube: Kube, namespace: str, name: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._deleted = False

    async def run(self) -> None:
        """Follow it, for ever."""
        await follow(
            self._kube,
            DAEMON_SETS,
            namespace=self._namespace,
            field_selector=self._selector,
            on_list=self._on_list,
            on_event=self._on_event,
            on_trouble=self._on_trouble,
        )

    async def is_deleted(self) -> bool:
        """Whether there is no such DaemonSet any more, or it is about to go; while that is in doubt, it is not."""
        with contextlib.suppress(errors.KubeError, errors.KubeUnreachableError, TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                listing = await self._kube.list(DAEMON_SETS, self._namespace, field_selector=self._selector)
                self._on_list(listing)
        return self._deleted

    @property
    def _selector(self) -> str:
        return f"metadata.name={self._name}"

    def _on_list(self, listing: Listing) -> None:
        self._deleted = all(_goes(item) for item in listing.items)

    def _on_event(self, event: WatchEvent) -> None:
        if event.type != "BOOKMARK":
            self._deleted = event.type == "DELETED" or _goes(event.object)

    @staticmethod
    def _on_trouble(error: errors.KubeNftlbError) -> None:
        _log.warning("cannot watch the own DaemonSet", error=str(error))


def _goes(raw: JsonObject) -> bool:
    return raw["metadata"].get("deletionTimestamp") is not None
