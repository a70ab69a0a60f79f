"""``python -m tests.functional.faults``: the suite or a part of it, in its long form, and its page."""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import machine, records
from benchmarks.records import Record
from benchmarks.scope import Scope
from tests import labs
from tests.functional.faults import report, suite
from tests.functional.test_bystanders import FARMS_VARIABLE

SUITE = Path(__file__).parent
BYSTANDERS = SUITE.parent / "test_bystanders.py"
FEATURES = SUITE.parent / "features"
ADDRESSES = (
    FEATURES / "test_addresses.py",
    FEATURES / "test_from_metallb.py",
    FEATURES / "announcing",
    FEATURES / "announcing_bgp",
)
GATEWAYS = FEATURES / "gateway/test_hostile.py"
UPGRADE = (
    f"{SUITE.parents[1] / 'e2e/test_addresses.py'}::"
    "test_no_new_connection_to_an_address_fails_while_the_release_is_upgraded"
)
"""It has the engine of the chart's profile, nftables, whatever is asked for."""
COSTS = SUITE.parents[1] / "contract/test_costs.py"
_MANY_FARMS = "200 1000"
"""Those of BYSTANDERS in the long form, in turn."""


def main() -> int:
    """Run the suite. Return pytest's exit status, the worst of both engines."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.faults", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/faults"), metavar="DIR", help="folder of the records")
    arguments, options = parser.parse_known_args()
    form = os.environ.get(suite.FORM_VARIABLE) or suite.LONG_FORM
    command = f"{suite.FORM_VARIABLE}={form} {shlex.join(['python', '-m', str(__package__), *options])}"
    described = {**machine.describe([], Scope(full=form == suite.LONG_FORM)), "command": command}
    machine.write(arguments.out, described)
    began = time.monotonic()
    settings = {suite.FORM_VARIABLE: form, labs.FIGURES_VARIABLE: str(arguments.out.absolute())}
    if form == suite.LONG_FORM:
        settings[FARMS_VARIABLE] = _MANY_FARMS
    statuses = []
    for engine in ("nftlb", "nftables"):
        environment = {**os.environ, **settings, "KUBE_NFTLB_TEST_ENGINE": engine}
        tests = (SUITE, BYSTANDERS, *ADDRESSES, GATEWAYS, COSTS, *([UPGRADE] if engine == "nftables" else []))
        argv = [sys.executable, "-m", "pytest", *map(str, tests), *options]
        statuses.append(subprocess.run(argv, env=environment, check=False).returncode)
    machine.write(arguments.out, ended(described, records.read(arguments.out), time.monotonic() - began, statuses))
    print(report.write(arguments.out, arguments.out))
    return max(statuses)


def ended(described: Mapping[str, Any], measured: list[Record], seconds: float, statuses: list[int]) -> dict[str, Any]:
    """Return the description of a run with its scenarios and, if no test failed, what publishing it asks for.

    That is the time in seconds of each scenario: here that of all, as their tests share a lab.
    """
    scenarios = list(dict.fromkeys(record.scenario for record in measured))
    passed = not any(statuses)
    return {**described, "scenarios": scenarios, "seconds": dict.fromkeys(scenarios, round(seconds)) if passed else {}}


if __name__ == "__main__":
    sys.exit(main())
