"""Follow the reports of nodes about their traffic: a process for each, which counts as long as this one reads."""

import asyncio
from typing import Final

from kube_nftlb import errors
from kube_nftlb.commands.cluster.on_nodes import OnNodes
from kube_nftlb.netfilter.traffic.process import counting_process
from kube_nftlb.netfilter.traffic.report import Report

_EVERY_S: Final = 2
_ONE_RUN_S: Final = 60
"""Maximum time in seconds of a count: one whose end nobody could tell it ends by itself."""
_RETRY_S: Final = 5.0


class NodeReports:
    """The newest report of each node."""

    def __init__(self, on_nodes: OnNodes) -> None:
        self._on_nodes = on_nodes
        self.reports: dict[str, Report] = {}
        self.problems: dict[str, str] = {}
        """Reasons that nodes have none, by node."""
        self.changed = asyncio.Event()

    async def follow(self, node: str) -> None:
        """Follow a node until cancelled."""
        while True:
            try:
                await self._run(node)
            except (errors.UsageError, OSError, ValueError) as error:
                self._failed(node, str(error))
            if node in self.problems:
                await asyncio.sleep(_RETRY_S)

    async def _run(self, node: str) -> None:
        command = ("kube-nftlb", "node-traffic", "--every", str(_EVERY_S), "--seconds", str(_ONE_RUN_S))
        async with counting_process((*self._on_nodes.prefix(node, stdin=True), *command)) as process:
            has_reported = False
            async for each in process.reports():
                has_reported = True
                self.reports[node] = each
                self.problems.pop(node, None)
                self.changed.set()
            status, error = await process.outcome()
        if status:
            self._failed(node, error)
        elif not has_reported:
            self._failed(node, "it ended without a report: does the command pass on standard input?")

    def _failed(self, node: str, problem: str) -> None:
        self.reports.pop(node, None)
        self.problems[node] = problem
        self.changed.set()
