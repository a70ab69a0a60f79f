"""On what a run was measured: the machine, its kernel, and the versions of all programs."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import tools
from benchmarks.options import Options
from kube_nftlb.kube import timestamps

FILE = "machine.json"
_REPOSITORY = Path(__file__).parent.parent


class _Asked(NamedTuple):
    program: str
    arguments: tuple[str, ...]


_VERSIONS = (
    _Asked("kube-apiserver", ("--version",)),
    _Asked("kube-proxy", ("--version",)),
    _Asked("etcd", ("--version",)),
    _Asked("nftlb", ("--help",)),
    _Asked("nft", ("--version",)),
    _Asked("iptables", ("--version",)),
    _Asked("nginx", ("-v",)),
    _Asked("haproxy", ("-v",)),
    _Asked("wrk", ("--version",)),
    _Asked("k6", ("version",)),
)


def command(scenarios: Sequence[str], options: Options) -> str:
    """The command that measures these scenarios."""
    words = ["python", "-m", "benchmarks", *(["--full"] if options.full else []), "--only", ",".join(scenarios)]
    if options.services:
        words += ["--services", ",".join(map(str, sorted(options.services)))]
    return " ".join(words)


def describe(scenarios: Sequence[str], options: Options) -> dict[str, Any]:
    """All that is known before the first measurement of these scenarios."""
    return {
        "scenarios": list(scenarios),
        "services": sorted(options.services),
        "began": timestamps.seconds(datetime.now(UTC)),
        "command": command(scenarios, options),
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
    """Write the description of a run into its folder, with the versions of the programs that are there by now.

    It comes after those of earlier runs, and in the place of its own that was written before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    versions = {asked.program: version for asked in _VERSIONS if (version := _version(asked))}
    earlier = read(folder) if (folder / FILE).exists() else []
    runs = [run for run in earlier if run["began"] != described["began"]]
    text = json.dumps([*runs, {**described, "versions": versions}], indent=2)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> list[dict[str, Any]]:
    """The descriptions of the runs whose records are in a folder. Raises OSError where there are none."""
    runs: list[dict[str, Any]] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return runs


def parse_version(output: str) -> str:
    """The first thing in a program's output that looks like a version; empty where there is none.

    >>> parse_version("nftables v1.0.6 (Lester Gooch #5)")
    '1.0.6'
    """
    match = re.search(r"\d+\.\d+(\.\d+)?(-\w+)?", output)
    return match[0] if match else ""


def _version(asked: _Asked) -> str:
    if (tool := tools.find(asked.program)) is None:
        return ""
    done = subprocess.run(tool.command(*asked.arguments), capture_output=True, text=True, check=False, timeout=30)
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
