"""Declare metrics, so that they are exported by their programs and described in docs/metrics.md."""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

Program = Literal["operator", "agent"]
PROGRAMS: tuple[Program, ...] = ("operator", "agent")

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Buckets in seconds, for what normally takes milliseconds."""
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
"""Buckets in seconds, for what normally takes less than a second, and minutes under problems."""

Values = str | tuple[str, ...]
"""All values of a label, exported as 0 from the start so that the first increase is visible; or their description."""

_M = TypeVar("_M", bound=MetricWrapperBase)

# Another series per counter, which nobody needs.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no hints


class Series(NamedTuple):
    """The description of a metric, for docs/metrics.md."""

    name: str
    """As in queries; for a histogram without ``_bucket``, ``_sum`` and ``_count``."""
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: Mapping[str, Values]
    programs: tuple[Program, ...]


SERIES: list[Series] = []
REGISTRIES: dict[Program, CollectorRegistry] = {program: CollectorRegistry() for program in PROGRAMS}


def _exported(metric: _M, series: Series) -> _M:
    SERIES.append(series)
    match list(series.labels.values()):
        case [tuple(values)]:
            for value in values:
                metric.labels(value)
    for program in series.programs:
        REGISTRIES[program].register(metric)
    return metric


def counter(name: str, meaning: str, *programs: Program, **labels: Values) -> Counter:
    """Declare a counter of these programs."""
    metric = Counter(name, meaning, list(labels), registry=None)
    return _exported(metric, Series(name, "counter", meaning, labels, programs))


def gauge(name: str, meaning: str, *programs: Program, **labels: Values) -> Gauge:
    """Declare a gauge of these programs."""
    metric = Gauge(name, meaning, list(labels), registry=None)
    return _exported(metric, Series(name, "gauge", meaning, labels, programs))


def histogram(name: str, meaning: str, buckets: tuple[float, ...], *programs: Program, **labels: Values) -> Histogram:
    """Declare a histogram of these programs."""
    metric = Histogram(name, meaning, list(labels), buckets=buckets, registry=None)
    return _exported(metric, Series(name, "histogram", meaning, labels, programs))


def set_states(gauge: Gauge, counts: Mapping[str, int], states: Collection[str]) -> None:
    """Set a gauge with the label ``state`` for each of these states; 0 for those without a count."""
    for state in states:
        gauge.labels(state).set(counts.get(state, 0))


def _register_process_metrics() -> None:
    """Register process_cpu_seconds_total, process_resident_memory_bytes and the like for each program."""
    for registry in REGISTRIES.values():
        ProcessCollector(registry=registry)


_register_process_metrics()
