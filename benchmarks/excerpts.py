"""What documents say of the records: the README figures and the targets missed, others sizes, and addresses.

Computation only. ``python -m benchmarks.report`` writes each between two comments of its document.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from benchmarks import address_table, colours, headline, series, targets
from benchmarks.headline import Headline
from benchmarks.processes import PEAK
from benchmarks.records import Parameter, Record
from benchmarks.series import Groups
from benchmarks.subjects import EAGER, KUBE_PROXY, NFTABLES, NFTLB

DOCUMENTS: Final = {"figures": "README.md", "sizes": "docs/scaling.md", "addresses": "docs/addresses-l2.md"}
"""The documents that have an excerpt, from the top of the checkout, by the excerpt's name."""
_BEGIN, _END = "<!-- made by python -m benchmarks.report: {} -->\n", "<!-- end of {} -->"

_SUBJECTS: Final = (NFTLB, NFTABLES, KUBE_PROXY, EAGER)
_FIXED: Final = (1, 37)
"""The first Kubernetes whose kube-proxy does not list its whole table at each sync."""
_READY: Mapping[str, Parameter] = {"size": 1000, "load": "steady"}
_FIRST: Mapping[str, Parameter] = {"load": "idle", "endpoints": "made before", "size": 10}
_OWN = (
    Headline("the same with 10 endpoints that are there first, when nothing else changes", "latency",
             "created until answered", _FIRST, "ms"),
    Headline("the same of 1,000", "endpoints", "ready until reached", _READY, "ms"),
)  # fmt: skip
_CHOSEN: Final = (
    "a Service is created: its VIP answers, while others change",
    "a Service is deleted: its VIP refuses, while others change",
    "an endpoint of 100 becomes ready: it is reached, while others change",
    "beside 1,000 Services of 10 endpoints, one more is created",
    "8,000 Services are scaled to 30 endpoints: all in the kernel",
    "beside them, one more Service is created",
    "memory on a node, 1,000 Services of 10 endpoints: agent and nftlb, or kube-proxy",
    "the same, 8,000 Services of 30 endpoints",
    "memory of the API server then",
    "CPU time of the API server while 8,000 Services are created",
    "the same while they are scaled to 30 endpoints",
    "CPU of all programs on a node and of the operator, 1,000 Services, 10 changes a second",
    "CPU time of the API server for a change of endpoints, 10 a second over 50 Services",
    "CPU time of a connection's first packet, 1,000 other Services",
)
_SIZED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "agent, engine nftables": (NFTABLES, ("agent",)),
    "agent and nftlb, engine nftlb": (NFTLB, ("agent", "nftlb")),
    "kube-proxy": (KUBE_PROXY, ("kube-proxy",)),
    "operator": (NFTABLES, ("operator",)),
    "API server": (NFTABLES, ("apiserver",)),
    "API server with kube-proxy": (KUBE_PROXY, ("apiserver",)),
}
"""The columns of what clusters of several sizes need: whose records, and the programs that are added up."""
_SIZES: Final = ((1000, 10), (2000, 20), (8000, 30), (20_000, 10))


class _Run(NamedTuple):
    """The run of a figure."""

    kube_proxy: str
    """The version of Kubernetes."""
    committed: bool


def figures(measured: Sequence[Record], runs: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of what users notice beside kube-proxy, and how many targets are reached and missed."""
    groups = series.grouped(measured)
    described = {run["began"]: _Run(run["versions"]["kube-proxy"], "dirty" not in run["commit"]) for run in runs}
    lines = [f"| | {' | '.join(colours.NAMES[subject] for subject in _SUBJECTS)} | n | Kubernetes |"]
    lines.append("|---" * (len(_SUBJECTS) + 3) + "|")
    shown: set[_Run] = set()
    for row in _rows():
        values = {subject: headline.values_of(groups, row, subject) for subject in _SUBJECTS}
        run = described[_run_of(measured, row)]
        shown.add(run)
        cells = [f"{series.cell(found)} {row.unit}" if found else targets.NOT_MEASURED for found in values.values()]
        numbers = dict.fromkeys(str(len(found)) for found in values.values() if found)
        origin = run.kube_proxy if run.committed else f"{run.kube_proxy}, of code that was not committed"
        lines.append(f"| {row.text} | {' | '.join(cells)} | {' / '.join(numbers)} | {origin} |")
    if any(line.count("(-") for line in lines):
        lines += ["", "A time is negative where the node had the change before the API server's response was there."]
    old = sorted({run.kube_proxy for run in shown if _minor(run.kube_proxy) < _FIXED})
    if old:
        lines += ["", f"kube-proxy {' and '.join(old)} lists its whole table by `nft` at each sync, a known defect"]
        lines[-1] += " (kubernetes/kubernetes#139513): beside thousands of Services that is most of its time."
    return "\n".join([*lines, "", *_targets(measured)])


def sizes(measured: Sequence[Record]) -> str:
    """Return tables of each program's memory, in MB at most, by Services × endpoints, and of its CPU time."""
    groups = series.grouped(measured)
    lines = list(_size_head("Services × endpoints"))
    for services, endpoints in _SIZES:
        where: Mapping[str, Parameter] = {"services": services, "endpoints": endpoints}
        lines.append(_size_row(f"{services:,} × {endpoints}", groups, ("scale", PEAK), where, ",.0f"))
    lines += ["", "CPU time of each program, in % of a core, with 1,000 × 10:", ""]
    lines += _size_head("")
    for load, text in (("idle", "idle"), ("10 changes a second", "10 endpoints are replaced each second")):
        where = {"services": 1000, "endpoints": 10, "load": load}
        lines.append(_size_row(text, groups, ("cost", "processor time"), where, ".1f"))
    return "\n".join(lines)


def _size_head(first: str) -> Iterator[str]:
    yield f"| {first} | {' | '.join(_SIZED)} |"
    yield "|---" * (len(_SIZED) + 1) + "|"


def _size_row(
    text: str, groups: Groups, of: tuple[str, str], where: Mapping[str, Parameter], number_format: str
) -> str:
    """Return a row of what programs needed; ``of`` is a scenario and its metric."""
    cells = []
    for subject, programs in _SIZED.values():
        total = headline.summed(groups, of, where, subject, programs)
        cells.append(f"{total:{number_format}}" if total is not None else targets.NOT_MEASURED)
    return f"| {text} | {' | '.join(cells)} |"


def addresses(measured: Iterable[Record]) -> str:
    """Return the table of announced addresses."""
    return "\n".join(address_table.lines(series.grouped(measured)))


def made(name: str, measured: Sequence[Record], runs: Iterable[Mapping[str, Any]]) -> str:
    """Return an excerpt by its name."""
    if name == "figures":
        return figures(measured, runs)
    return sizes(measured) if name == "sizes" else addresses(measured)


def put(text: str, name: str, excerpt: str) -> str:
    """Return a document with an excerpt in its place. Raises ValueError if it has no place for it."""
    begin, end = _BEGIN.format(name), _END.format(name)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"no line {begin.strip()!r}, followed by {end!r}")
    return f"{before}{begin}\n{excerpt}\n\n{end}{after}"


def _rows() -> Iterator[Headline]:
    known = {row.text: row for row in headline.HEADLINES}
    created, deleted, ready, *others = (known[text] for text in _CHOSEN)
    yield from (created, _OWN[0], deleted, ready, _OWN[1], *others)


def _run_of(measured: Iterable[Record], row: Headline) -> str:
    """Return when the run of a row began."""
    where = {**row.where, "process": row.process} if row.process == "apiserver" else row.where
    return next(
        record.run
        for record in measured
        if (record.scenario, record.metric) == (row.scenario, row.metric)
        and record.subject == KUBE_PROXY
        and where.items() <= record.parameters.items()
    )


def _targets(measured: Sequence[Record]) -> Iterator[str]:
    """Yield how many targets each engine reaches and misses, and for the engine nftables those that it misses."""
    verdicts = targets.verdicts(measured)
    for subject, engine in ((NFTLB, "nftlb, the default of the chart"), (NFTABLES, "nftables")):
        counted = Counter(verdict.outcome for verdict in verdicts if verdict.subject == subject)
        outcomes = ", ".join(f"{counted[outcome]} {outcome}" for outcome in targets.OUTCOMES if counted[outcome])
        yield f"Of {counted.total()} [targets](docs/performance.md#targets) of the engine {engine}: {outcomes}."
        yield ""
    yield "The engine nftables misses these. A ratio with an interval is the median of the rounds' ratios, not the"
    yield "ratio of the medians beside it."
    yield ""
    for verdict in verdicts:
        if (verdict.subject, verdict.outcome) == (NFTABLES, targets.MISSED):
            what, _, wanted = verdict.target.partition(": ")
            target = f"{what}; target: {wanted}" if wanted else what
            yield f"- {target}; measured: {verdict.worst.rpartition('worst: ')[2]}"


def _minor(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
