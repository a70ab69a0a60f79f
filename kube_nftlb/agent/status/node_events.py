"""Report lasting problems of this node, and their end, in Events on the Node."""

import asyncio
import time
from typing import Final

from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.kube.events import Events, Lasting, Subject
from kube_nftlb.kube.resources import NODES
from kube_nftlb.prose import counted
from kube_nftlb.reasons import EventReason

LOOK_EVERY_S = 1.0
LASTS_S = 5.0
"""Shorter problems are not reported: nftlb is unreachable for a moment at every restart."""

_OF_KUBE_PROXY: Final[tuple[EventReason, ...]] = ("KubeProxyRulesLeft", "KubeProxyRulesReturned")
_RESOLVED: dict[EventReason, tuple[EventReason, str]] = {
    "NftlbUnreachable": ("NftlbReachable", "nftlb answers again"),
    "FarmsFailed": ("FarmsProgrammed", "all farms are programmed again"),
    **dict.fromkeys(_OF_KUBE_PROXY, ("KubeProxyGone", "there are no rules of kube-proxy any more")),
}


def problems_of_node(progress: Progress, node: str) -> list[Lasting]:
    """Return the current problems of a node."""
    found = []
    if progress.engine_error:
        message = "changes wait until it is back, programmed farms keep working; see the logs of the"
        found.append(
            Lasting(
                "NftlbUnreachable",
                f"the agent cannot reach nftlb: {message} container nftlb ({progress.engine_error})",
            )
        )
    # Warnings are for the farm's status: everything is programmed.
    if failed := progress.failed:
        key, problem = min(failed.items())
        message = f"not programmed as asked: {counted(len(failed), 'farm')}; the first: {key.namespace}/{key.name}"
        found.append(
            Lasting("FarmsFailed", f"{message}: {problem.reason}: {problem.message}; kubectl describe nftlbnode {node}")
        )
    proxy = progress.kube_proxy
    if proxy is not None and proxy.reason in _OF_KUBE_PROXY:
        found.append(Lasting(proxy.reason, proxy.message))
    return found


class NodeEvents:
    """Reports an agent's progress on its Node."""

    def __init__(self, events: Events, own_node: OwnNode, progress: Progress) -> None:
        self._events = events
        self._own_node = own_node
        self._progress = progress
        self._since: dict[EventReason, float] = {}
        self._reported: set[EventReason] = set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self.look(time.monotonic())
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self, now: float) -> None:
        """Report the problems that last, and those reported ones that are resolved."""
        node = self._own_node.current
        if node is None:
            return
        subject = Subject(NODES, "", node.metadata.name, node.metadata.uid)
        found = {problem.reason: problem for problem in problems_of_node(self._progress, node.metadata.name)}
        self._since = {reason: self._since.get(reason, now) for reason in found}
        lasting = [found[reason] for reason, since in self._since.items() if now - since >= LASTS_S]
        self._events.report(subject, lasting)
        proxy = self._progress.kube_proxy
        # Also where a kube-proxy runs, or nobody knows, there may be rules of it.
        stays = set(_OF_KUBE_PROXY) if proxy is not None and not proxy.gone else set()
        resolved = self._reported - found.keys() - stays
        for event in {_RESOLVED[reason] for reason in resolved}:
            self._events.report_resolved(subject, *event)
        self._reported = (self._reported - resolved) | {problem.reason for problem in lasting}
