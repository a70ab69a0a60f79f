"""Keep the components running; used inside the supervisor."""

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


class Process:
    """One component, its desired state, and at most one running process."""

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
        """The PID in the lab's PID namespace, or None if it is not running."""
        return self._popen.pid if self._popen else None

    @property
    def state(self) -> str:
        """``running``, ``stopped`` (on request) or ``restarting`` (it exited)."""
        if self._popen:
            return "running"
        return "restarting" if self._wanted else "stopped"

    def start(self) -> None:
        """Start the process unless it is running. Raises LabError if the program cannot be executed."""
        self._wanted = True
        if self._popen is None:
            self._popen = in_namespace(self._netns, self._spawn) if self._netns else self._spawn()
            self._started = time.monotonic()
            self._gone.clear()

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after the component's time."""
        self._wanted = False
        if self._popen is None:
            return
        self._popen.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._gone.wait(), self.component.grace_s)
        except TimeoutError:
            _kill_group(self._popen.pid)
            await self._gone.wait()

    def exited(self, status: int) -> None:
        """Record that the process exited, and restart it with exponential backoff unless it was stopped."""
        if self._popen is None:
            return
        self._popen.returncode = os.waitstatus_to_exitcode(status)
        # Its remaining children, as when a container's first process exits.
        _kill_group(self._popen.pid)
        with self.log.open("a") as log:
            log.write(f"-- {self.component.name} exited with {self._popen.returncode}\n")
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
    """All components of a lab. Also reaps orphans, as the first process of a PID namespace must."""

    def __init__(self) -> None:
        self._processes: list[Process] = []

    def add(self, process: Process) -> None:
        """Add a process, and start it if its component says so."""
        self._processes.append(process)
        if process.component.started:
            process.start()

    def watch(self) -> None:
        """Watch for exited processes; needs a running event loop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def find(self, component: str, node: str | None = None) -> list[Process]:
        """Return the processes of a component, on one node or on all. Raises LabError if there are none."""
        found = [
            process
            for process in self._processes
            if process.component.name == component and node in (None, process.component.node)
        ]
        if not found:
            known = ", ".join(dict.fromkeys(process.component.name for process in self._processes))
            where = f" on {node}" if node else ""
            raise errors.LabError(f"no component {component}{where} in this lab; available: {known}")
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
