"""The measurements of a run, written as they are made: one line each, as JSON and as CSV."""

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
    """The scenario, for example ``latency``."""
    subject: str
    """The subject that was measured, for example ``kube-nftlb`` or ``kube-proxy-nftables``."""
    metric: str
    unit: str
    value: float
    """NaN if nothing was measured."""
    parameters: Mapping[str, Parameter] = {}
    missing: str = ""
    """The reason that nothing was measured, as a sentence; empty otherwise."""


class Records:
    """The records of one run, appended to two files in its folder.

    Each line is flushed at once, so that an interrupted run keeps its records.
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
        """Store one measurement. Each repetition is a line, distinguished by a parameter if needed.

        Raises ValueError if the value is not finite.
        """
        if not math.isfinite(value):
            raise ValueError(f"{scenario} of {subject}: {metric} is {value}, which is not a measurement")
        self._append(Record(scenario, subject, metric, unit, float(value), parameters))

    def skip(self, scenario: str, subject: str, reason: str, **parameters: str | int | float) -> None:
        """Store why something is not measured, for example "the kernel has no ip_vs"."""
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
    """Return the records of a run, without a truncated last line. Raises OSError if there are none."""
    return list(_parse((folder / JSON_FILE).read_text(encoding="utf-8")))


def _parse(text: str) -> Iterator[Record]:
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            fields = json.loads(line)
            yield Record(**{**fields, "value": math.nan if fields["value"] is None else fields["value"]})
