"""``python -m benchmarks``: run scenarios and store their records in a folder per run."""

import argparse
import importlib
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from benchmarks import expected, machine
from benchmarks.publish import PUBLISHED
from benchmarks.records import Records
from benchmarks.scope import Scope

SCENARIOS = ("latency", "endpoints", "datapath", "schedulers", "limit", "scale", "intake", "cost", "status",
             "addresses", "many_addresses", "routes")  # fmt: skip
# Scenarios keep the names that they have in published records.
_MODULES = {"intake": "operator_start"}
_RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run the scenarios one after another. Return 1 if one failed; the records of the others are kept."""
    arguments = _arguments()
    folder = arguments.out or _RESULTS / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    scope = Scope(arguments.full, frozenset(arguments.services))
    if blocker := _blocker(folder, arguments.only, scope):
        print(blocker, file=sys.stderr)
        return 2
    # As at Ctrl-C: a lab that is left behind would disturb the next measurement.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if scope.full:
        machine.wait_until_quiet()
    described = machine.describe(arguments.only, scope)
    machine.write(folder, described)
    failed = []
    with Records(folder) as records:
        for name in arguments.only:
            began = time.monotonic()
            print(f"== {name}", flush=True)
            try:
                _module(name).run(records, scope)
            except KeyboardInterrupt:
                records.skip(name, "the rest", "interrupted here")
                failed.append(name)
                break
            except Exception as error:
                # A failed scenario must not lose hours of other measurements.
                traceback.print_exc()
                records.skip(name, "all", f"failed: {error!r}")
                failed.append(name)
            else:
                described["seconds"][name] = round(time.monotonic() - began)
                for subject, metrics in expected.lacking(name, records.added).items():
                    print(f"{name} of {subject}: no {', '.join(metrics)}", file=sys.stderr)
            print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)
    # Written again: now the versions of downloaded programs and the duration are known.
    machine.write(folder, described)
    print(f"\nThe records are in {folder}. Make a report: python -m benchmarks.report {folder}")
    if failed:
        print(f"Failed scenarios: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _blocker(folder: Path, scenarios: Sequence[str], scope: Scope) -> str | None:
    """Return why this cannot be measured or stored, or None."""
    if folder.resolve() == PUBLISHED:
        return "published records are not written by a measurement: python -m benchmarks.publish adds them"
    for name in scenarios:
        sizes = getattr(_module(name), "sizes", None)
        if scope.services and sizes is None:
            return f"--services: {name} has only one number of Services"
        if sizes is not None and not scope.select(sizes(scope.full)):
            return f"--services: {name} supports {', '.join(map(str, sizes(scope.full)))}"
    for run in machine.read(folder) if (folder / machine.FILE).exists() else []:
        earlier = frozenset(run.get("services", ()))
        for name in set(scenarios) & set(run["scenarios"]):
            if not earlier or not scope.services or earlier & scope.services:
                return f"{folder} already has records of {name}: choose another --out"
    return None


def _module(scenario: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{_MODULES.get(scenario, scenario)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure kube-nftlb beside other service proxies."
    )
    parser.add_argument("--full", action="store_true", help="run the long form, which takes hours")
    parser.add_argument(
        "--only",
        type=_scenarios,
        default=SCENARIOS,
        metavar="A,B",
        help=f"scenarios to run, comma-separated: {','.join(SCENARIOS)}",
    )
    parser.add_argument(
        "--services",
        type=_numbers,
        default=(),
        metavar="N,M",
        help="measure only these numbers of Services (datapath: other Services); for datapath, scale, intake and cost",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the records: a new one (default: below results/) or one with records of other scenarios",
    )
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _scenarios(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in SCENARIOS]:
        raise argparse.ArgumentTypeError(f"unknown scenario {', '.join(unknown)}; choose from {', '.join(SCENARIOS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
