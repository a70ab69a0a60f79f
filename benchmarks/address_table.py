"""The table of what users notice of announced addresses, beside MetalLB. Computation only."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks import colours, handovers, many_addresses, new_addresses, routes, series, targets
from benchmarks.announcers import IDLE, SCENARIO, STEADY
from benchmarks.handovers import LINK_DOWN, MOVE, POWER_OFF, RESTART
from benchmarks.processes import PEAK
from benchmarks.records import Parameter
from benchmarks.series import Groups
from benchmarks.subjects import ANNOUNCING, Subject

_RESPONDER: Final = "responder"


class Row(NamedTuple):
    """A row of times, of which the table has the median, and all samples are drawn."""

    text: str
    metric: str
    where: Mapping[str, Parameter]
    scenario: str = SCENARIO


TIMES: Final = (
    Row("a Service with ready pods is created: a client is served at its new address", new_addresses.CREATED,
        {"load": IDLE}),
    Row("the same, while ten endpoints of others change each second", new_addresses.CREATED, {"load": STEADY}),
    Row("from the first answer for the address until a client is served", new_addresses.GAP, {"load": IDLE}),
    Row("the same, while others change", new_addresses.GAP, {"load": STEADY}),
    Row("the only endpoint moves to another node: longest time without a connection", handovers.LONGEST,
        {"change": MOVE}),
    Row("three pods on three nodes are replaced: longest time without a connection", handovers.LONGEST,
        {"change": RESTART}),
    Row("the node is powered off that has the address: a client connects anew", handovers.ANEW, {"fault": POWER_OFF}),
    Row("its link goes down: a client connects anew", handovers.ANEW, {"fault": LINK_DOWN}),
    Row("by BGP, an endpoint becomes ready: a router has a route", routes.ROUTED, {}, routes.SCENARIO),
    Row("by BGP, the last endpoint is no longer ready: the router has no route", routes.UNROUTED, {},
        routes.SCENARIO),
)  # fmt: skip


class _Failures(NamedTuple):
    """A row of connections that failed, of all."""

    text: str
    metrics: Mapping[str, str]
    all: str
    where: Mapping[str, Parameter]


_FAILURES: Final = (
    _Failures("connections to a new address from the first answer on that fail", new_addresses.FAILED,
              new_addresses.CONNECTIONS, {"load": IDLE}),
    _Failures("the same, while others change", new_addresses.FAILED, new_addresses.CONNECTIONS, {"load": STEADY}),
    _Failures("connections that fail as the only endpoint moves", handovers.FAILED, handovers.CONNECTIONS,
              {"change": MOVE}),
    _Failures("connections that fail as three pods are replaced", handovers.FAILED, handovers.CONNECTIONS,
              {"change": RESTART}),
)  # fmt: skip
_MANY: Final = f"{many_addresses.ADDRESSES} addresses"
_ANSWERS: Final = (
    (f"{_MANY}, while 2,000 Services are programmed: half of the questions who has one are answered within",
     many_addresses.MEDIAN),
    ("the same: 99 of 100 questions", many_addresses.TAIL),
)  # fmt: skip
_COSTS: Final = (
    ("processor time of all programs on a node, and of operator or controller", many_addresses.PROCESSOR,
     "% of a core"),
    ("memory of the same, at most", PEAK, "MB"),
)  # fmt: skip


def lines(groups: Groups) -> Iterator[str]:
    """Yield the table: medians with the lowest and the highest, and n, or counts; what is missing is said to be."""
    yield f"| | {' | '.join(colours.NAMES[subject] for subject in ANNOUNCING)} | n |"
    yield "|---|" + "---|" * len(ANNOUNCING) + "---|"
    for row in TIMES:
        samples = [series.values_at(groups, row.scenario, row.metric, row.where, subject) for subject in ANNOUNCING]
        cells = [f"{series.cell(values)} ms" if values else targets.NOT_MEASURED for values in samples]
        yield _row(row.text, cells, [*map(len, samples)])
    for failures in _FAILURES:
        samples = [_values(groups, failures.all, failures.where, subject) for subject in ANNOUNCING]
        cells = [_failed(groups, failures, subject) for subject in ANNOUNCING]
        yield _row(failures.text, cells, [*map(len, samples)])
    for text, share in _ANSWERS:
        answers = [_many(groups, many_addresses.ANSWER, {"quantile": share}, subject) for subject in ANNOUNCING]
        cells = [f"{series.number(values[0])} ms" if values else targets.NOT_MEASURED for values in answers]
        questions = [_many(groups, many_addresses.ANSWERED, {}, subject) for subject in ANNOUNCING]
        yield _row(text, cells, [int(sum(each)) for each in questions])
    for text, metric, unit in _COSTS:
        samples = [_of_all(groups, metric, subject) for subject in ANNOUNCING]
        cells = [f"{series.number(sum(each))} {unit}" if each else targets.NOT_MEASURED for each in samples]
        yield _row(f"{_MANY}, idle: {text}", cells, [1 if each else 0 for each in samples])


def _row(text: str, cells: Sequence[str], counts: Sequence[int]) -> str:
    numbers = dict.fromkeys(f"{count:,}" for count in counts if count)
    return f"| {text} | {' | '.join(cells)} | {' / '.join(numbers)} |"


def _failed(groups: Groups, failures: _Failures, subject: str) -> str:
    """Return how many connections failed, of how many, and how."""
    everything = sum(_values(groups, failures.all, failures.where, subject))
    if not everything:
        return targets.NOT_MEASURED
    counted = {how: sum(_values(groups, metric, failures.where, subject)) for how, metric in failures.metrics.items()}
    how = ", ".join(f"{series.number(number)} {each}" for each, number in counted.items() if number)
    return f"{series.number(sum(counted.values()))} of {series.number(everything)}{how and f' ({how})'}"


def _values(groups: Groups, metric: str, where: Mapping[str, Parameter], subject: str) -> Sequence[float]:
    return series.values_at(groups, SCENARIO, metric, where, subject)


def _many(groups: Groups, metric: str, where: Mapping[str, Parameter], subject: str) -> Sequence[float]:
    return series.values_at(groups, many_addresses.SCENARIO, metric, where, subject)


def _of_all(groups: Groups, metric: str, subject: str) -> Sequence[float]:
    """Return the value of each program of a subject."""
    made = Subject(subject)
    programs = (*made.programs, _RESPONDER) if made.ours else made.programs
    found = [_many(groups, metric, {"load": IDLE, "process": program}, subject) for program in programs]
    return [values[0] for values in found] if all(found) else ()
