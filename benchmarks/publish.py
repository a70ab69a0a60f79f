"""``python -m benchmarks.publish RUN``: add the records of a run to the published ones, in place of earlier ones.

Published records are changed by this command alone: it counts what each run measured, and a test compares the counts.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import expected, machine, records
from benchmarks.records import Record

PUBLISHED = Path(__file__).parent / "results" / "published"
_DIRTY = "-dirty"
_SIZE = {"datapath": "others"}
"""The parameter that ``--services`` selects, where it is not ``services``."""


def blocker(run: Mapping[str, Any], measured: Sequence[Record]) -> str | None:
    """Return why a run must not be published, or None."""
    if not (commit := run["commit"]) or commit.endswith(_DIRTY):
        return f"it measured {commit or 'no commit'}: commit everything, and measure that"
    if unfinished := [name for name in run["scenarios"] if name not in run["seconds"]]:
        return f"it did not finish {', '.join(unfinished)}"
    for record in measured:
        if record.missing.startswith(("failed", "interrupted")):
            return f"{record.scenario} of {record.subject} {record.missing}"
    for name in run["scenarios"]:
        for subject, metrics in expected.lacking(name, measured).items():
            if not any(record.missing and record.subject == subject for record in measured):
                return f"{name} of {subject} has no {', '.join(metrics)}, and does not say why"
    return None


def merged(
    published: tuple[Sequence[Mapping[str, Any]], Sequence[Record]], run: Mapping[str, Any], measured: Iterable[Record]
) -> tuple[list[dict[str, Any]], list[Record]]:
    """Return runs and records with those of a new run in place of earlier ones of the same scenarios and sizes."""
    runs, earlier = published
    new = [record._replace(run=run["began"]) for record in measured]
    all_records = [*(record for record in earlier if not is_of(run, record)), *new]
    counts = Counter((record.run, record.scenario) for record in all_records)
    described = [
        _counted(each, counts)
        for each in (*runs, run)
        if any(counts[each["began"], name] for name in each["scenarios"])
    ]
    return described, all_records


def is_of(run: Mapping[str, Any], record: Record) -> bool:
    """Return True if a run measures the scenario of a record, with its number of Services."""
    sizes = run.get("services") or ()
    size = record.parameters.get(_SIZE.get(record.scenario, "services"))
    return record.scenario in run["scenarios"] and (not sizes or size is None or size in sizes)


def _counted(run: Mapping[str, Any], counts: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    scenarios = [name for name in run["scenarios"] if counts[run["began"], name]]
    return {**run, "scenarios": scenarios, "records": {name: counts[run["began"], name] for name in scenarios}}


def write(folder: Path, runs: Sequence[Mapping[str, Any]], all_records: Iterable[Record]) -> None:
    """Write published records and the descriptions of their runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / records.FILE).write_text(records.compact(all_records), encoding="utf-8")
    (folder / machine.FILE).write_text(json.dumps(runs, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """Publish runs. Return 1, and publish nothing, if one of them must not be published."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run")
    parser.add_argument("--to", type=Path, default=PUBLISHED, metavar="DIR", help="folder of the published records")
    arguments = parser.parse_args()
    there = (arguments.to / machine.FILE).exists()
    published: tuple[list[dict[str, Any]], list[Record]] = (
        (machine.read(arguments.to), records.read(arguments.to)) if there else ([], [])
    )
    for folder in arguments.runs:
        measured = records.read(folder)
        for run in machine.read(folder):
            of_run = [record for record in measured if is_of(run, record)]
            if reason := blocker(run, of_run):
                print(f"{folder} is not published: {reason}", file=sys.stderr)
                return 1
            published = merged(published, run, of_run)
    write(arguments.to, *published)
    values = sum(not math.isnan(record.value) for record in published[1])
    print(
        f"{values} values of {len(published[0])} runs. "
        f"Make the page: python -m benchmarks.report {arguments.to} --docs docs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
