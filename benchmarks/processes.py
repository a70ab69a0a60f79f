"""CPU time and memory of a lab's programs."""

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.cluster import NODE
from lab.components import OPERATOR
from lab.lab import Lab
from lab.metallb.plan import CONTROLLER

PEAK = "memory at most"
"""The metric of ``Usage.peak_mb``."""

_OF_CLUSTER = (OPERATOR, CONTROLLER)
"""Programs that do not run on each node."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12
"""Fields of /proc/PID/stat after the program's name."""


class Usage(NamedTuple):
    """CPU time of a process since its start, in seconds, and its memory in MB, current and peak."""

    user_s: float
    system_s: float
    mb: float
    peak_mb: float

    @property
    def cpu_s(self) -> float:
        """User and system time together."""
        return self.user_s + self.system_s


def programs_of(lab: Lab) -> tuple[str, ...]:
    """Return the programs that implement Services."""
    return ("operator", "agent", "nftlb") if lab.proxy == "kube-nftlb" else ("kube-proxy",)


def usages(lab: Lab, programs: tuple[str, ...] = ()) -> dict[str, Usage]:
    """Return the usage by name of these programs (default: of the service proxy) and of the API server."""
    pids = {name: lab.pid(name, None if name in _OF_CLUSTER else NODE) for name in programs or programs_of(lab)}
    return {name: usage(pid) for name, pid in {**pids, "apiserver": lab.pid("apiserver")}.items()}


async def spent(lab: Lab, programs: tuple[str, ...], seconds: float) -> dict[str, tuple[float, Usage]]:
    """Return the processor time of these programs and the API server, in % of a core, and their usage, after a time."""
    before, began = usages(lab, programs), time.monotonic()
    await asyncio.sleep(seconds)
    after, passed = usages(lab, programs), time.monotonic() - began
    return {name: ((used.cpu_s - before[name].cpu_s) / passed * 100, used) for name, used in after.items()}


def usage(pid: int) -> Usage:
    """Return the usage of one process."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(status[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
    return Usage(int(stat[_USER]) / _TICKS_PER_S, int(stat[_SYSTEM]) / _TICKS_PER_S, now, most)
