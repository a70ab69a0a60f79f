"""In which order an agent's duties end."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kube_nftlb.agent import main
from kube_nftlb.agent.duties import Agent, Duty
from kube_nftlb.agent.shutdown import GRACE_S, ShutdownReason
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.settings import AgentSettings


class Reconciler:
    """A loop that ends when it is told to."""

    def __init__(self, run: Duty, stop: Callable[[], None]) -> None:
        self.progress = Progress()
        self.run, self.stop = run, stop


class Running:
    """An agent whose duties do nothing but wait."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.looks: list[tuple[str, set[str]]] = []
        self.remaining_s = 0.0
        self._stopping = asyncio.Event()

    async def open(self, _settings: AgentSettings, _stack: AsyncExitStack) -> Agent:
        unused = cast("Any", None)
        reconciler = cast("Any", Reconciler(self._duty("reconcile", self._stopping), self._stop))
        proxy, report, health, watch = (
            {name: self._duty(name)} for name in ("kube-proxy", "report", "health", "watch")
        )
        announcing = cast("Any", self)
        return Agent(unused, unused, reconciler, unused, unused, None, proxy, report, health, watch, announcing)

    async def hand_over(self) -> None:
        self._look("hand over")

    async def end(self) -> None:
        self._look("end")

    def _duty(self, name: str, until: asyncio.Event | None = None) -> Duty:
        async def run() -> None:
            self.alive.add(name)
            if name == "watch":
                # All others have begun.
                os.kill(os.getpid(), signal.SIGTERM)
            try:
                await (until or asyncio.Event()).wait()
            finally:
                self.alive.discard(name)

        return run

    def _stop(self) -> None:
        self._look("stop")
        self._stopping.set()

    async def shutdown_reason(self, *_: object, **__: object) -> ShutdownReason:
        self._look("shutdown_reason")
        await asyncio.sleep(0.1)
        return ShutdownReason.RESTART

    async def clean_up(self, *arguments: Any) -> None:
        self._look("take away")
        *_, self.remaining_s = arguments

    def _look(self, when: str) -> None:
        self.looks.append((when, set(self.alive)))


async def test_the_status_is_told_until_the_node_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running()
    monkeypatch.setattr(main, "open_agent", running.open)
    monkeypatch.setattr(main, "shutdown_reason", running.shutdown_reason)
    monkeypatch.setattr(main, "clean_up", running.clean_up)
    await main._run(cast("AgentSettings", SimpleNamespace(nftlb=None)))  # noqa: SLF001 - main() runs a loop of its own
    assert running.looks == [
        ("hand over", {"reconcile", "kube-proxy", "report", "health", "watch"}),
        ("shutdown_reason", {"reconcile", "report", "health", "watch"}),
        ("end", {"reconcile", "report", "health", "watch"}),
        ("stop", {"reconcile", "health", "watch"}),
        ("take away", set()),
    ]
    assert GRACE_S - 60 < running.remaining_s < GRACE_S - 0.1, "of the time until it is killed"
