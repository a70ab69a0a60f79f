"""A process in the client's pod that tries VIPs (``prober``)."""

import asyncio
import json
import subprocess
import sys

from benchmarks import prober
from benchmarks.cluster import CLIENT_POD
from lab.lab import Lab

TRIED_BEFORE_S = 0.2


class VipProber:
    """Tries one VIP at a time."""

    def __init__(self, lab: Lab) -> None:
        self._process = lab.popen(CLIENT_POD, sys.executable, "-S", prober.__file__)

    async def begin(self, action: str, vip: str, within_s: int) -> None:
        """Start to try port 80 of a VIP, until it ``answers`` or ``refuses``; return after the first tries."""
        assert self._process.stdin  # noqa: S101 (narrows the type)
        self._process.stdin.write(f"{action} {vip} 80 {within_s}\n")
        self._process.stdin.flush()
        await self._line()
        await asyncio.sleep(TRIED_BEFORE_S)

    async def seen(self) -> int | None:
        """Return when the VIP answered or refused, in ns of CLOCK_MONOTONIC, or None on timeout."""
        at: int | None = json.loads(await self._line())["monotonic_ns"]
        return at

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()

    async def _line(self) -> str:
        assert self._process.stdout  # noqa: S101 (narrows the type)
        if line := await asyncio.to_thread(self._process.stdout.readline):
            return line
        _, err = self._process.communicate()
        raise subprocess.CalledProcessError(self._process.returncode, self._process.args, "", err)
