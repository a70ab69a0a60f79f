"""``python -m tests.functional.faults``: the long form of the suite, with both engines, and its page."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks import machine
from benchmarks.scope import Scope
from tests.functional.faults import report

SUITE = Path(__file__).parent


def main() -> int:
    """Run the suite. Return pytest's exit status, the worst of both engines."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.faults", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/faults"), metavar="DIR", help="folder of the records")
    arguments, options = parser.parse_known_args()
    machine.write(arguments.out, {**machine.describe([], Scope(full=True)), "command": "make faults"})
    long = {"KUBE_NFTLB_TEST_FAULTS": "long", "KUBE_NFTLB_FAULT_RECORDS": str(arguments.out.absolute())}
    statuses = []
    for engine in ("nftlb", "nftables"):
        environment = {**os.environ, **long, "KUBE_NFTLB_TEST_ENGINE": engine}
        command = [sys.executable, "-m", "pytest", str(SUITE), *options]
        statuses.append(subprocess.run(command, env=environment, check=False).returncode)
    print(report.write(arguments.out, arguments.out))
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
