"""The machine of a run: hardware, kernel, and versions of all programs."""

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import tools
from benchmarks.scope import Scope
from kube_nftlb.kube import timestamps
from lab import programs
from lab.metallb import build as metallb

FILE = "machine.json"
_REPOSITORY = Path(__file__).parent.parent

_QUIET = 1.0
"""The load average, over a minute, below which nothing else counts as running."""
_QUIET_WITHIN_S = 300
_LOOK_EVERY_S = 5


class _VersionQuery(NamedTuple):
    program: str
    arguments: tuple[str, ...]


_VERSIONS = (
    _VersionQuery("kube-apiserver", ("--version",)),
    _VersionQuery("kube-proxy", ("--version",)),
    _VersionQuery("etcd", ("--version",)),
    _VersionQuery("nftlb", ("--help",)),
    _VersionQuery("nft", ("--version",)),
    _VersionQuery("iptables", ("--version",)),
    _VersionQuery("nginx", ("-v",)),
    _VersionQuery("haproxy", ("-v",)),
    _VersionQuery("wrk", ("--version",)),
    _VersionQuery("k6", ("version",)),
)


def wait_until_quiet() -> None:
    """Return once less than one program has run on average: for a while the load counts what ended just before.

    After five minutes it returns all the same; the records have the load at the start.
    """
    for _ in range(_QUIET_WITHIN_S // _LOOK_EVERY_S):
        if os.getloadavg()[0] < _QUIET:
            return
        time.sleep(_LOOK_EVERY_S)


def command(scenarios: Sequence[str], scope: Scope) -> str:
    """Return the command that measures these scenarios."""
    words = ["python", "-m", "benchmarks", *(["--full"] if scope.full else []), "--only", ",".join(scenarios)]
    if scope.services:
        words += ["--services", ",".join(map(str, sorted(scope.services)))]
    return " ".join(words)


def describe(scenarios: Sequence[str], scope: Scope) -> dict[str, Any]:
    """Return what is known before the first measurement of these scenarios."""
    return {
        "scenarios": list(scenarios),
        "services": sorted(scope.services),
        "began": timestamps.seconds(datetime.now(UTC)),
        "command": command(scenarios, scope),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "seconds": {},
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
    }


def write(folder: Path, described: dict[str, Any]) -> None:
    """Write the description of a run to its folder, with the versions of the programs installed by now.

    It follows those of earlier runs, and replaces an earlier one of this run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    versions = {query.program: version for query in _VERSIONS if (version := _version(query))}
    if metallb.there(programs.cache_folder()):
        versions["MetalLB"] = metallb.version().removeprefix("v")
    earlier = read(folder) if (folder / FILE).exists() else []
    runs = [run for run in earlier if run["began"] != described["began"]]
    text = json.dumps([*runs, {**described, "versions": versions}], indent=2)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the descriptions of the runs in a folder. Raises OSError if there are none."""
    runs: list[dict[str, Any]] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return runs


def parse_version(output: str) -> str:
    """Return the first version number in a program's output, or "" if there is none.

    >>> parse_version("nftables v1.0.6 (Lester Gooch #5)")
    '1.0.6'
    >>> parse_version("nftlb, nftables load balancer - Version 1.0.7+kube-nftlb.7")
    '1.0.7+kube-nftlb.7'
    """
    match = re.search(r"\d+\.\d+(\.\d+)?(-\w+)?(\+[\w.-]*\w)?", output)
    return match[0] if match else ""


def _version(query: _VersionQuery) -> str:
    if (tool := tools.find(query.program)) is None:
        return ""
    done = subprocess.run(tool.command(*query.arguments), capture_output=True, text=True, check=False, timeout=30)
    return parse_version(done.stdout + done.stderr)


def _commit() -> str:
    command = ["git", "-C", str(_REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
