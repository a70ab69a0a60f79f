"""The measurements of a run, written as they are made: one line of JSON each.

Published records have one line for all repetitions of a measurement, which ``compact`` makes, and name their run.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Parameter = str | int | float

FILE = "records.jsonl"
REPEATS = ("repetition", "round")
"""The parameters that distinguish repetitions."""
_DIGITS = 6
"""Significant digits of a published value: no clock or counter here is more exact."""


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
    run: str = ""
    """When the run began that measured it, as its description says; empty before it is published."""


class Records:
    """The records of one run, appended to a file in its folder, and in ``added``.

    Each line is flushed at once, so that an interrupted run keeps its records.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.added: list[Record] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / FILE).open("a", encoding="utf-8")

    def __enter__(self) -> "Records":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

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
        fields = {**record._asdict(), "value": value, "parameters": dict(record.parameters)}
        del fields["run"]
        self._file.write(json.dumps(fields) + "\n")
        self._file.flush()
        self.added.append(record)


def read(folder: Path) -> list[Record]:
    """Return the records of a folder, without a truncated last line. Raises OSError if there are none."""
    return list(_parse((folder / FILE).read_text(encoding="utf-8")))


def compact(records: Iterable[Record]) -> str:
    """Return the text of published records: a line for each series of repetitions, in the order of their first ones."""
    lines: dict[str, dict[str, Any]] = {}
    for record in records:
        fields = record._asdict()
        value = fields.pop("value")
        parameters = dict(record.parameters)
        by = next((key for key in REPEATS if key in parameters), None)
        number = parameters.pop(by) if by is not None else None
        fields = {**fields, "parameters": parameters, "by": by}
        line = lines.setdefault(json.dumps(fields), {**fields, "numbers": [], "values": []})
        line["values"].append(None if record.missing else float(f"{value:.{_DIGITS}g}"))
        line["numbers"].append(number)
    return "".join(json.dumps(_without_empty(line)) + "\n" for line in lines.values())


def _without_empty(line: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is empty, and the numbers of repetitions that count from 0."""
    numbers = line["numbers"]
    if line["by"] is None or numbers == list(range(len(numbers))):
        line = {key: value for key, value in line.items() if key != "numbers"}
    return {key: value for key, value in line.items() if value not in ("", None)}


def _parse(text: str) -> Iterator[Record]:
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            fields = json.loads(line)
            if "values" in fields:
                yield from _expanded(fields)
            else:
                yield Record(**{**fields, "value": math.nan if fields["value"] is None else fields["value"]})


def _expanded(fields: dict[str, Any]) -> Iterator[Record]:
    values, by = fields.pop("values"), fields.pop("by", None)
    numbers = fields.pop("numbers", range(len(values)))
    fields = {"metric": "", "unit": "", **fields}
    for number, value in zip(numbers, values, strict=True):
        parameters = {**fields["parameters"], **({by: number} if by is not None else {})}
        yield Record(**{**fields, "parameters": parameters, "value": math.nan if value is None else value})
