"""``python -m benchmarks``: measure, and keep what was measured in a folder of the run's own."""

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import machine
from benchmarks.options import Options
from benchmarks.records import Records

SCENARIOS = ("latency", "datapath", "schedulers", "limit", "scale", "intake", "cost")
_RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Run the scenarios one after the other; 1 where one of them failed, and the others are kept."""
    arguments = _arguments()
    folder = arguments.out or _RESULTS / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    options = Options(arguments.full, frozenset(arguments.services))
    if trouble := _trouble(folder, arguments.only, options):
        print(trouble, file=sys.stderr)
        return 2
    described = machine.describe(arguments.only, options)
    machine.write(folder, described)
    failed = []
    with Records(folder) as records:
        for name in arguments.only:
            began = time.monotonic()
            print(f"== {name}", flush=True)
            try:
                importlib.import_module(f"benchmarks.{name}").run(records, options)
            except KeyboardInterrupt:
                records.skip(name, "the rest", "it was interrupted here")
                failed.append(name)
                break
            except Exception as error:
                # Hours of other measurements do not go with one that fails.
                traceback.print_exc()
                records.skip(name, "all", f"broke off: {error!r}")
                failed.append(name)
            described["seconds"][name] = round(time.monotonic() - began)
            print(f"== {name}: {described['seconds'][name]} s", flush=True)
    # Again: what was fetched meanwhile has a version too, and now it is known how long it took.
    machine.write(folder, described)
    print(f"\nThe records are in {folder}. A page of them: python -m benchmarks.report {folder}")
    if failed:
        print(f"These broke off: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _trouble(folder: Path, scenarios: Sequence[str], options: Options) -> str:
    """Why this cannot be measured, or not into this folder; empty where it can."""
    for name in scenarios:
        sizes = getattr(importlib.import_module(f"benchmarks.{name}"), "sizes", None)
        if options.services and sizes is None:
            return f"--services: {name} has but one number of Services"
        if sizes is not None and not options.wanted(sizes(options.full)):
            return f"--services: {name} has {', '.join(map(str, sizes(options.full)))}"
    for run in machine.read(folder) if (folder / machine.FILE).exists() else []:
        earlier = frozenset(run.get("services", ()))
        for name in set(scenarios) & set(run["scenarios"]):
            if not earlier or not options.services or earlier & options.services:
                return f"{folder} has records of {name} already: give another --out"
    return ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure kube-nftlb and what is like it.")
    parser.add_argument("--full", action="store_true", help="everything, which takes hours")
    parser.add_argument(
        "--only", type=_scenarios, default=SCENARIOS, metavar="A,B", help=f"some of {','.join(SCENARIOS)}"
    )
    parser.add_argument(
        "--services",
        type=_numbers,
        default=(),
        metavar="N,M",
        help="only these numbers of Services; for datapath (of others), scale, intake and cost",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where the records go; a new folder below results/, or one with records of other scenarios",
    )
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _scenarios(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in SCENARIOS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(SCENARIOS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
