"""Group records by scenario, metric and point, and name their parts. Computation only."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.records import REPEATS, Parameter, Record

ALL_THERE = "all in the kernel"
STATUSES_RIGHT = "in the kernel until all statuses are right"
AFTER_WRITES = "all in the kernel after the last write"
SINGLE_CHANGE, MEANWHILE = "one change afterwards", "one change meanwhile"
OPERATOR_STARTED = "started until a new Service has its farm"

Point = tuple[tuple[str, Parameter], ...]
_WORDS: Mapping[tuple[str, Parameter], str] = {
    ("load", "idle"): "nothing else changes",
    ("load", "steady"): "others change",
    ("users", 1): "one user",
    ("endpoints", 1): "one endpoint each",
    ("endpoints", "made before"): "endpoints there before the Service",
    ("endpoints", "found by selector"): "endpoints found by selector",
}
"""What a parameter with this value is called."""
_COUNTED: Mapping[str, str] = {
    "load": "{}",
    "size": "{} endpoints",
    "services": "{} Services",
    "endpoints": "{} endpoints each",
    "others": "{} other Services",
    "changes per s": "{} changes a second",
    "changes": "{} changes in all",
    "process": "{}",
    "servers": "{} servers",
    "users": "{} users",
    "tool": "{}",
}
"""What one with another value is called; the key, followed by the value, if it is not here."""
Units = Mapping[tuple[str, str], str]
"""The unit of each metric, by scenario and metric."""
Groups = dict[tuple[str, str, Point], dict[str, list[float]]]


def point_of(record: Record) -> Point:
    """Return the parameters of a record, without those that distinguish repetitions."""
    return tuple((key, value) for key, value in record.parameters.items() if key not in REPEATS)


def grouped(records: Iterable[Record]) -> Groups:
    """Return the values of all repetitions, in order, by (scenario, metric, point) and then by subject."""
    groups: Groups = {}
    for record in records:
        if not record.missing:
            subjects = groups.setdefault((record.scenario, record.metric, point_of(record)), {})
            subjects.setdefault(record.subject, []).append(record.value)
    return groups


def values_at(groups: Groups, scenario: str, metric: str, where: Mapping[str, Parameter], name: str) -> Sequence[float]:
    """Return the values of a name in the records, at the first point that has these parameters."""
    for (scenario_of, metric_of, point), values in groups.items():
        if (scenario_of, metric_of) == (scenario, metric) and where.items() <= dict(point).items() and name in values:
            return values[name]
    return ()


def units_of(records: Iterable[Record]) -> Units:
    """Return the unit of each metric by (scenario, metric)."""
    return {(record.scenario, record.metric): record.unit for record in records}


def with_unit(metric: str, unit: str) -> str:
    """Format a metric as a heading."""
    return f"{metric}, {unit}" if unit else metric


def cell(values: Sequence[float]) -> str:
    """Return the median, with the lowest and the highest in brackets where they differ."""
    median = number(statistics.median(values))
    return median if len(set(values)) == 1 else f"{median} ({number(min(values))} to {number(max(values))})"


def number(value: float) -> str:
    """Return a number with three digits, or as a whole."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def text_of(point: Point) -> str:
    """Format a point for display."""
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in point)


def phrase_of(point: Point) -> str:
    """Describe a point in words, for those who do not know the parameters."""
    return ", ".join(_WORDS.get((key, value)) or _counted(key, value) for key, value in point)


def _counted(key: str, value: Parameter) -> str:
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    return _COUNTED.get(key, f"{key} {{}}").format(shown)


def rule_counts(groups: Groups, subject: str) -> list[tuple[int, float]]:
    """Return the number of rules of a subject by the number of Services, in order."""
    return sorted(
        (int(dict(point)["services"]), values[subject][-1])
        for (scenario, metric, point), values in groups.items()
        if (scenario, metric) == ("latency", "rules") and subject in values
    )
