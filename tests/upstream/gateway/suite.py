"""Run the conformance tests of the Gateway API on a cluster, from its client."""

import subprocess
import time
from pathlib import Path

from kube_nftlb import errors
from lab import versions
from lab.lab import Lab
from lab.places import CLIENT
from tests.builders.gateways import CLASS
from tests.upstream import programs, suite
from tests.upstream.gateway import outcomes, selection
from tests.upstream.records import Run

POOL = "172.31.0.100-172.31.0.149"
"""Addresses of the subnet in which nodes and client are."""
_USABLE, _UNUSABLE = "172.31.0.149", "203.0.113.1"
_TIME_LIMIT = "1h"


def run(lab: Lab, engine: str, only: str, folder: Path) -> Run:
    """Run the tests, or one, and return what came out; the log and upstream's report stay in a folder.

    Raises LabError if no test was run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{engine}.txt"
    flags = {
        "gateway-class": CLASS,
        "conformance-profiles": ",".join(selection.PROFILES),
        "skip-tests": ",".join(selection.LEFT_OUT),
        "run-test": only,
        "usable-address": _USABLE,
        "unusable-address": _UNUSABLE,
        "report-output": str((folder / selection.report_name(engine)).resolve()),
        "mode": engine,
        # The nodes share the processors of one machine.
        "disable-parallel-tests": "true",
        # The whole cluster goes.
        "cleanup-base-resources": "false",
        **selection.IMPLEMENTATION,
    }
    program = programs.ensure(lambda _: None, programs.OF_GATEWAY_API)[programs.GATEWAY_TESTS]
    given = [f"-{flag}={value}" for flag, value in flags.items() if value]
    argv = lab.command(CLIENT, str(program), "-test.v", f"-test.timeout={_TIME_LIMIT}", *given)
    description, start = suite.describe(processes=1), time.monotonic()
    with log.open("w") as written:
        subprocess.run(argv, env=lab.environment(CLIENT), stdout=written, stderr=written, check=False)
    found = outcomes.parse(log.read_text(errors="replace"), selection.LEFT_OUT)
    if not found:
        raise errors.LabError(f"no test was run: see {log}")
    facts = {**description, "minutes": round((time.monotonic() - start) / 60), "tests": len(found)}
    return Run(engine, versions.of(None).full, [facts], found)
