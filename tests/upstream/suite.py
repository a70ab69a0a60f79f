"""Run Kubernetes' end-to-end tests on a cluster, from its client."""

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kube_nftlb import errors
from kube_nftlb.kube import timestamps
from lab import addresses
from lab.lab import Lab
from lab.places import CLIENT
from tests.upstream import groups as all_groups
from tests.upstream import programs, records
from tests.upstream.groups import Group

_CHECKOUT = Path(__file__).parents[2]
_TIME_LIMIT = "6h"
_END_WITHIN_S = 300
_FILE = "report.json"


def run(lab: Lab, subject: str, groups: Sequence[Group], processes: int, folder: Path) -> records.Run:
    """Run groups of tests and return what came out; the full logs stay in a folder.

    The first Ctrl-C ends the tests, and what has been run until then counts. Raises LabError if that is none.
    """
    selected = [f"--focus={all_groups.focus(groups)}", f"--skip={all_groups.skip()}"]
    done = _run(lab, subject, selected, processes, folder)
    if not done.outcomes:
        raise errors.LabError(f"no test was run: see {folder}/log.txt")
    return done


def run_again(lab: Lab, subject: str, tests: Iterable[str], folder: Path) -> records.Run:
    """Run single tests one after another, with nothing beside them."""
    escaped = "|".join(_escape(test) for test in tests)
    return _run(lab, subject, [f"--focus=({escaped})$"], 1, folder)


def _run(lab: Lab, subject: str, selected: Sequence[str], processes: int, folder: Path) -> records.Run:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).unlink(missing_ok=True)
    found = programs.ensure(lambda _: None)
    command = [
        str(found[programs.GINKGO]),
        f"--procs={processes}",
        "--no-color",
        "--silence-skips",
        "--timeout=" + _TIME_LIMIT,
        f"--output-dir={folder}",
        f"--json-report={_FILE}",
        *selected,
        str(found[programs.TESTS]),
        "--",
        f"--kubeconfig={lab.inside_kubeconfig}",
        f"--kubectl-path={lab.bin / 'kubectl'}",
        "--provider=skeleton",
        "--dns-domain=cluster.local",
        f"--num-nodes={len(lab.nodes)}",
        f"--cluster-ip-range={addresses.SERVICE_CIDRS.split(',')[0]}",
        "--dump-logs-on-failure=false",
    ]
    description = describe(processes)
    start = time.monotonic()
    with (folder / "log.txt").open("a") as log:
        argv, environment = lab.command(CLIENT, *command), lab.environment(CLIENT)
        # A Ctrl-C is for this program alone, which passes it on.
        _wait(subprocess.Popen(argv, env=environment, stdout=log, stderr=log, start_new_session=True))
    description["minutes"] = round((time.monotonic() - start) / 60)
    made = folder / _FILE
    # ginkgo writes none if it cannot start.
    report: list[Mapping[str, Any]] = json.loads(made.read_text()) if made.exists() else []
    outcomes = records.outcomes(report)
    return records.Run(subject, programs.KUBERNETES.full, [{**description, "tests": len(outcomes)}], outcomes)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait()
    except KeyboardInterrupt:
        print("ending the tests: those that are running do not count", file=sys.stderr)
        # nsenter does not forward signals, and ginkgo leaves it to the terminal to tell the processes that it started.
        for pid in _descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        process.wait(_END_WITHIN_S)


def _descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, children.read_text().split()):
                yield child
                yield from _descendants(child)


def describe(processes: int) -> dict[str, Any]:
    """Return when, from which commit, on which machine and beside how much else a run begins."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=_CHECKOUT, capture_output=True, text=True, check=False
    )
    return {
        "began": timestamps.seconds(datetime.now(UTC)),
        "commit": commit.stdout.strip(),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "processes": processes,
    }


def _escape(test: str) -> str:
    return "".join(f"\\{letter}" if letter in r"\.+*?()|[]{}^$" else letter for letter in test)
