"""CPU time and memory of a lab's programs."""

import os
from pathlib import Path
from typing import NamedTuple

from benchmarks.cluster import NODE
from lab.lab import Lab

PEAK = "memory at most"
"""The metric of ``Usage.peak_mb``."""

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
    pids = {name: lab.pid(name, None if name == "operator" else NODE) for name in programs or programs_of(lab)}
    return {name: usage(pid) for name, pid in {**pids, "apiserver": lab.pid("apiserver")}.items()}


def usage(pid: int) -> Usage:
    """Return the usage of one process."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(status[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM"))
    return Usage(int(stat[_USER]) / _TICKS_PER_S, int(stat[_SYSTEM]) / _TICKS_PER_S, now, most)
