"""Keeping the components running, from inside the supervisor."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kube_nftlb import errors
from kube_nftlb.netfilter.namespaces import in_namespace
from lab.components import Component

_FIRST_BACKOFF_S = 0.2
_LONGEST_BACKOFF_S = 5.0
_STABLE_S = 10.0
_STOP_TIMEOUT_S = 5.0


class Process:
    """One component: at most one running process, and whether there should be one."""

    def __init__(self, component: Component, netns: Path | None, log: Path, environment: Mapping[str, str]) -> None:
        self.component = component
        self.log = log
        self.restarts = 0
        self._netns = netns
        self._environment = {**environment, **component.environment}
        self._popen: subprocess.Popen[bytes] | None = None
        self._gone = asyncio.Event()
        self._wanted = False
        self._started = 0.0
        self._backoff_s = _FIRST_BACKOFF_S

    @property
    def pid(self) -> int | None:
        """The running process, as the lab's PID namespace counts; None when there is none."""
        return self._popen.pid if self._popen else None

    @property
    def state(self) -> str:
        """``running``, ``stopped`` (because somebody asked for it) or ``restarting`` (it ended by itself)."""
        if self._popen:
            return "running"
        return "restarting" if self._wanted else "stopped"

    def start(self) -> None:
        """Start it unless it runs. Raises LabError when the program cannot be executed."""
        self._wanted = True
        if self._popen is None:
            self._popen = in_namespace(self._netns, self._spawn) if self._netns else self._spawn()
            self._started = time.monotonic()
            self._gone.clear()

    async def stop(self) -> None:
        """Ask it to end, and end it after 5 s."""
        self._wanted = False
        if self._popen is None:
            return
        self._popen.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._gone.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            _kill_group(self._popen.pid)
            await self._gone.wait()

    def exited(self, status: int) -> None:
        """Take note that the process ended; a new one follows, later each time, unless it was stopped."""
        if self._popen is None:
            return
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        # What it left behind, as with a container's first process.
        _kill_group(self._popen.pid)
        with self.log.open("a") as log:
            log.write(f"-- {self.component.name} ended with {self._popen.returncode}\n")
        self._popen = None
        self._gone.set()
        if not self._wanted:
            return
        if time.monotonic() - self._started > _STABLE_S:
            self._backoff_s = _FIRST_BACKOFF_S
        asyncio.get_running_loop().call_later(self._backoff_s, self._start_again)
        self._backoff_s = min(self._backoff_s * 2, _LONGEST_BACKOFF_S)

    def _start_again(self) -> None:
        if self._wanted and self._popen is None:
            self.restarts += 1
            self.start()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            try:
                return subprocess.Popen(
                    self.component.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise errors.LabError(f"{self.component.name} cannot be started: {error}") from error


class Processes:
    """All components of a lab; also buries every orphan, as the first process of a PID namespace has to."""

    def __init__(self) -> None:
        self._processes: list[Process] = []

    def add(self, process: Process) -> None:
        """Add a process, and start it."""
        self._processes.append(process)
        process.start()

    def watch(self) -> None:
        """Begin to take note of processes that end; needs a running event loop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def find(self, component: str, node: str | None = None) -> list[Process]:
        """The processes of a component, on one node or on all. Raises LabError when there are none."""
        found = [
            process
            for process in self._processes
            if process.component.name == component and node in (None, process.component.node)
        ]
        if not found:
            known = ", ".join(dict.fromkeys(process.component.name for process in self._processes))
            where = f" on {node}" if node else ""
            raise errors.LabError(f"this lab has no {component}{where}; it has {known}")
        return found

    def __iter__(self) -> Iterator[Process]:
        return iter(self._processes)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for process in self._processes:
                if process.pid == pid:
                    process.exited(status)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
