"""``python -m tests.functional.faults``: the long form of the suite, with both engines, and its page."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import machine
from benchmarks.scope import Scope
from tests.functional.faults import report, suite

SUITE = Path(__file__).parent


def main() -> int:
    """Run the suite. Return pytest's exit status, the worst of both engines."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.faults", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/faults"), metavar="DIR", help="folder of the records")
    arguments, options = parser.parse_known_args()
    form = os.environ.get(suite.FORM_VARIABLE) or suite.LONG_FORM
    command = " ".join([f"{suite.FORM_VARIABLE}={form} python -m {__package__}", *options])
    machine.write(arguments.out, {**machine.describe([], Scope(full=form == suite.LONG_FORM)), "command": command})
    form_and_folder = {suite.FORM_VARIABLE: form, suite.FOLDER_VARIABLE: str(arguments.out.absolute())}
    statuses = []
    for engine in ("nftlb", "nftables"):
        environment = {**os.environ, **form_and_folder, "KUBE_NFTLB_TEST_ENGINE": engine}
        argv = [sys.executable, "-m", "pytest", str(SUITE), *options]
        statuses.append(subprocess.run(argv, env=environment, check=False).returncode)
    print(report.write(arguments.out, arguments.out))
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
