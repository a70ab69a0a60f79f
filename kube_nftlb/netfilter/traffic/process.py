"""Start a process that counts, here or through a program such as kubectl or ssh, and read its reports."""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from kube_nftlb.netfilter.traffic import report
from kube_nftlb.netfilter.traffic.report import Report

_ERROR_MAX: Final = 300
_ENDS_WITHIN_S: Final = 0.5
"""Time in seconds for a process to end by itself, once its standard input is closed."""


class CountingProcess:
    """A process that writes reports. Use ``counting_process``."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def reports(self) -> AsyncIterator[Report]:
        """Yield the reports as they come, until the process ends. Raises ValueError for a line that is none."""
        while self._process.stdout is not None and (line := await self._process.stdout.readline()):
            yield report.decode(line)

    async def outcome(self) -> tuple[int, str]:
        """Return the exit status, once it ends, and the end of what it wrote to standard error, on one line."""
        _, errors = await self._process.communicate()
        return self._process.returncode or 0, " ".join(errors.decode(errors="replace").split())[-_ERROR_MAX:]


@asynccontextmanager
async def counting_process(command: Sequence[str]) -> AsyncIterator[CountingProcess]:
    """Run a process that counts as long as its standard input is open. Raises OSError if it cannot be started."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=report.LINE_MAX
    )
    try:
        yield CountingProcess(process)
    finally:
        if process.stdin is not None:
            # It ends with its standard input, also where it is not our own child.
            process.stdin.close()
        with suppress(TimeoutError):
            # To kill one that has just ended takes its exit status from asyncio, which then complains.
            await asyncio.wait_for(process.wait(), _ENDS_WITHIN_S)
        if process.returncode is None:
            process.kill()
            await process.wait()
