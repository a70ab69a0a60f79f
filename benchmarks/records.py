"""What a run has measured, kept as it comes: one line for each measurement, as JSON and as CSV."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Parameter = str | int | float

JSON_FILE = "records.jsonl"
CSV_FILE = "records.csv"
_COLUMNS = ("scenario", "subject", "metric", "unit", "value", "parameters", "missing")


class Record(NamedTuple):
    """One measurement, or the reason why there is none."""

    scenario: str
    """Such as ``latency``: the module that has measured."""
    subject: str
    """What was measured, such as ``kube-nftlb`` or ``kube-proxy-nftables``."""
    metric: str
    unit: str
    value: float
    """NaN where nothing was measured."""
    parameters: Mapping[str, Parameter] = {}
    missing: str = ""
    """Why nothing was measured, as a sentence; empty where something was."""


class Records:
    """The records of one run, appended to two files in its folder.

    Each line is written at once, so that a run that is broken off keeps what it has.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._json = (folder / JSON_FILE).open("a", encoding="utf-8")
        self._csv = (folder / CSV_FILE).open("a", encoding="utf-8", newline="")
        self._rows = csv.writer(self._csv)
        if self._csv.tell() == 0:
            self._rows.writerow(_COLUMNS)
            self._csv.flush()

    def __enter__(self) -> "Records":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._json.close()
        self._csv.close()

    def add(
        self, scenario: str, subject: str, metric: str, unit: str, value: float, **parameters: str | int | float
    ) -> None:
        """Keep one measurement. Repetitions are lines of their own, told apart by a parameter if need be.

        Raises ValueError for a value that is no finite number.
        """
        if not math.isfinite(value):
            raise ValueError(f"{scenario} of {subject}: {metric} is {value}, which is no measurement")
        self._append(Record(scenario, subject, metric, unit, float(value), parameters))

    def skip(self, scenario: str, subject: str, reason: str, **parameters: str | int | float) -> None:
        """Keep why something is not measured here, such as "the kernel has no ip_vs"."""
        self._append(Record(scenario, subject, "", "", math.nan, parameters, reason))

    def _append(self, record: Record) -> None:
        value = None if record.missing else record.value
        fields: dict[str, Any] = {**record._asdict(), "value": value, "parameters": dict(record.parameters)}
        self._json.write(json.dumps(fields) + "\n")
        self._json.flush()
        parameters = " ".join(f"{key}={each}" for key, each in record.parameters.items())
        self._rows.writerow([*record[:4], "" if value is None else value, parameters, record.missing])
        self._csv.flush()


def read(folder: Path) -> list[Record]:
    """The records of a run. A last line that was cut off is left out. Raises OSError where there are none."""
    return list(_parse((folder / JSON_FILE).read_text(encoding="utf-8")))


def _parse(text: str) -> Iterator[Record]:
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            fields = json.loads(line)
            yield Record(**{**fields, "value": math.nan if fields["value"] is None else fields["value"]})
