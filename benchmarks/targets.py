"""Performance targets, and verdicts on them from the records of a run. Computation only."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks import cost, packets, series, stats, status
from benchmarks.expected import RATE
from benchmarks.processes import PEAK
from benchmarks.records import Parameter, Record
from benchmarks.series import Groups, Point, grouped, phrase_of
from benchmarks.subjects import EAGER, KUBE_PROXY, NFTABLES, NFTLB

OUTCOMES = REACHED, MISSED, OPEN, NOT_MEASURED = "reached", "missed", "not decided", "not measured"
_ENGINES = (NFTLB, NFTABLES)
_MODES = ("snat", "dnat")


class Verdict(NamedTuple):
    """The verdict on one target for one subject, with the point that is worst for us."""

    target: str
    subject: str
    outcome: str
    worst: str


class _Timed(NamedTuple):
    """A target for a time: at most ``most`` times that of ``theirs``, at each point."""

    target: str
    scenario: str
    metric: str
    load: str
    most: float
    theirs: str = KUBE_PROXY


_TIMED = (
    _Timed(
        "A Service under steady change: 10 times sooner than kube-proxy",
        "latency",
        "created until answered",
        "steady",
        0.1,
    ),
    _Timed("A Service when idle: no later than kube-proxy", "latency", "created until answered", "idle", 1.0),
    _Timed(
        "A deletion under steady change: no later than kube-proxy", "latency", "deleted until refused", "steady", 1.0
    ),
    _Timed("A deletion when idle: no later than kube-proxy", "latency", "deleted until refused", "idle", 1.0),
    _Timed(
        "An endpoint under steady change: 10 times sooner than kube-proxy",
        "endpoints",
        "ready until reached",
        "steady",
        0.1,
    ),
    _Timed("An endpoint when idle: no later than kube-proxy", "endpoints", "ready until reached", "idle", 1.0),
    *(
        _Timed(f"{text} {when}: no later than with minSyncPeriod 0", scenario, metric, load, 1.0, EAGER)
        for text, scenario, metric in (
            ("A Service", "latency", "created until answered"),
            ("A deletion", "latency", "deleted until refused"),
            ("An endpoint", "endpoints", "ready until reached"),
        )
        for when, load in (("under steady change", "steady"), ("when idle", "idle"))
    ),
)


class _Limited(NamedTuple):
    """A target for a figure of ours: below a limit, or below a multiple of kube-proxy's, whatever the point."""

    target: str
    subjects: tuple[str, ...]
    metrics: tuple[tuple[str, str], ...]
    where: Mapping[str, Parameter]
    limit: float
    unit: str
    relative: bool = False


_LARGE: Mapping[str, Parameter] = {"services": 8000, "endpoints": 30}


def _of_change(metric: str) -> tuple[tuple[str, str], ...]:
    """Return where the cost of a change is measured: of endpoints that replace others, and of more or fewer of them."""
    return ("endpoints", metric), ("status", metric)


_LIMITED = (
    _Limited("The API server's CPU time for an endpoint change: at most 1.5 times kube-proxy's", _ENGINES,
             _of_change("processor time of apiserver per change"), {}, 1.5, "", relative=True),
    _Limited("Bytes to etcd for an endpoint change: at most 1.5 times kube-proxy's", _ENGINES,
             _of_change("bytes to etcd per change"), {}, 1.5, "", relative=True),
    _Limited("Bytes to a node for an endpoint change: at most 1.5 times kube-proxy's", _ENGINES,
             _of_change("bytes to the node per change"), {}, 1.5, "", relative=True),
    _Limited("8,000 Services: each step in the kernel sooner than with kube-proxy", (NFTABLES,),
             (("scale", series.ALL_THERE),), {"services": 8000}, 1, "", relative=True),
    _Limited("8,000 Services: all in the kernel in less than 10 s after the last write", (NFTABLES,),
             (("scale", series.AFTER_WRITES),), {"services": 8000}, 10, " s"),
    _Limited("20,000 Services: all in the kernel sooner than with kube-proxy", (NFTABLES,),
             (("scale", series.ALL_THERE),), {"services": 20_000}, 1, "", relative=True),
    _Limited("One more Service beside 8,000 × 30: less than 50 ms", (NFTABLES,),
             (("scale", series.SINGLE_CHANGE),), _LARGE, 50, " ms"),
    _Limited("One more while all of 8,000 Services change: less than 0.5 s", (NFTABLES,),
             (("scale", series.MEANWHILE),), {"services": 8000}, 500, " ms"),
    _Limited("The agent restarted with 8,000 × 30: a new Service answers in less than 20 s", (NFTABLES,),
             (("scale", cost.RESTARTED),), _LARGE, 20, " s"),
    _Limited("The agent with 8,000 × 30: less memory than kube-proxy", (NFTABLES,),
             (("scale", PEAK),), _LARGE, 1, "", relative=True),
    _Limited("The operator with 8,000 × 30: less than 200 MB", (NFTABLES,),
             (("scale", PEAK),), {**_LARGE, "process": "operator"}, 200, " MB"),
    _Limited("The agent without nftlb, 1,000 Services: less than 250 MB", _ENGINES,
             (("cost", PEAK), ("scale", PEAK)), {"services": 1000, "process": "agent"}, 250, " MB"),
    _Limited("An idle agent with 1,000 Services: less than 1 % of a core", _ENGINES,
             (("cost", "processor time"),), {"services": 1000, "load": "idle", "process": "agent"}, 1, " %"),
    _Limited("Counts of farms, 5 changes a second over 200: 99 of 100 right within 1 s", _ENGINES,
             (("status", status.SHOWN),),
             {"services": 200, "changes per s": 5, "quantile": 0.99}, 1000, " ms"),
    _Limited("Counts of farms, 10 changes a second over 50: all right within 5 s", _ENGINES,
             (("status", status.SHOWN),),
             {"services": 50, "changes per s": 10, "quantile": 1.0}, 5000, " ms"),
    _Limited("8,000 Services at once: all statuses right within 30 s after the kernel has them", (NFTABLES,),
             (("scale", series.STATUSES_RIGHT),), {"services": 8000}, 30, " s"),
    _Limited("The operator, started anew, takes 8,000 Services in less than 15 s", (NFTLB,),
             (("intake", series.OPERATOR_STARTED),), {"services": 8000}, 15, " s"),
)  # fmt: skip


def verdicts(records: Iterable[Record]) -> list[Verdict]:
    """Return the verdicts on all targets; one without records is not measured."""
    groups = grouped(records)
    found = [_timed(groups, each, subject) for each in _TIMED for subject in _ENGINES]
    found += [_limited(groups, each, subject) for each in _LIMITED for subject in each.subjects]
    found += [_datapath(groups, subject) for subject in _ENGINES]
    found += [_packets(groups, subject, metric) for metric in (packets.FIRST, packets.LATER) for subject in _ENGINES]
    return [*found, *(_rules(groups, subject) for subject in _ENGINES)]


def _timed(groups: Groups, wanted: _Timed, subject: str) -> Verdict:
    shares, reached, missed = [], 0, 0
    for (scenario, name, point), values in groups.items():
        if (scenario, name) != (wanted.scenario, wanted.metric) or ("load", wanted.load) not in point:
            continue
        if subject not in values or wanted.theirs not in values:
            continue
        ours, theirs = values[subject], values[wanted.theirs]
        rounds = min(len(ours), len(theirs))
        above = stats.difference(ours[:rounds], theirs[:rounds], wanted.most)
        reached += above.decides and above.high <= 0
        missed += above.decides and above.low > 0
        # Times start at the API server's response, which may arrive late: a share of a negative time means nothing.
        share = stats.share(ours[:rounds], theirs[:rounds], paired=True)
        medians = f"{statistics.median(ours):.1f} ms beside {statistics.median(theirs):.1f} ms"
        value = share.value if share is not None else wanted.most + above.value / abs(statistics.median(theirs))
        shown = _shown(medians, share) if share is not None else medians
        shares.append((value, f"{shown}; n = {rounds}; {phrase_of(point)}"))
    return _at_points(wanted.target, subject, shares, reached, missed)


def _limited(groups: Groups, wanted: _Limited, subject: str) -> Verdict:
    found = []
    for (scenario, metric, point), values in groups.items():
        if (scenario, metric) not in wanted.metrics:
            continue
        if not wanted.relative and subject in values and wanted.where.items() <= dict(point).items():
            found.append((max(values[subject]), point))
        if wanted.relative and (share := _share(groups, (scenario, metric, point), wanted, subject)) is not None:
            found.append((share, point))
    if not found:
        return Verdict(wanted.target, subject, NOT_MEASURED, "")
    value, point = max(found)
    outcome = REACHED if value < wanted.limit or (wanted.relative and value <= wanted.limit) else MISSED
    unit = " times kube-proxy's" if wanted.relative else wanted.unit
    return Verdict(wanted.target, subject, outcome, f"{value:,.2f}{unit}" + (f" ({phrase_of(point)})" if point else ""))


def _share(groups: Groups, key: tuple[str, str, Point], wanted: _Limited, subject: str) -> float | None:
    """Return our median as a share of kube-proxy's; processes with different names do the same on a node."""
    scenario, metric, point = key
    if not wanted.where.items() <= dict(point).items() or subject not in groups[key]:
        return None
    at = dict(point)
    if at.get("process") not in (None, "agent"):
        return None
    theirs = tuple((name, "kube-proxy" if name == "process" else value) for name, value in point)
    values = groups.get((scenario, metric, theirs), {}).get(KUBE_PROXY)
    return statistics.median(groups[key][subject]) / statistics.median(values) if values else None


def _datapath(groups: Groups, subject: str) -> Verdict:
    ratios = list(_ratios(groups, subject, RATE))
    reached = sum(share.low >= 0.98 for _, share in ratios if share.decides)
    missed = sum(share.high < 0.98 for _, share in ratios if share.decides)
    worst = [(1 / share.value, _shown(where, share)) for where, share in ratios]
    return _at_points("Requests per second: as many, within 2 %", subject, worst, reached, missed)


def _packets(groups: Groups, subject: str, metric: str) -> Verdict:
    ratios = list(_ratios(groups, subject, metric))
    reached = sum(share.high <= 1.02 for _, share in ratios if share.decides)
    missed = sum(share.low > 1.02 for _, share in ratios if share.decides)
    worst = [(share.value, _shown(where, share)) for where, share in ratios]
    kind = "first packet" if metric == packets.FIRST else "later packets"
    return _at_points(f"CPU time of a connection's {kind}: no more, within 2 %", subject, worst, reached, missed)


def _ratios(groups: Groups, subject: str, wanted: str) -> Iterator[tuple[str, stats.Interval]]:
    """Yield our metric in each mode as a share of kube-proxy's in the same rounds."""
    for (scenario, metric, point), values in groups.items():
        if (scenario, metric) != ("datapath", wanted) or KUBE_PROXY not in values:
            continue
        for ours in (f"{subject} {mode}" for mode in _MODES):
            if rounds := min(len(values.get(ours, ())), len(values[KUBE_PROXY])):
                share = stats.ratio(values[ours][:rounds], values[KUBE_PROXY][:rounds])
                yield f"{ours.removeprefix(subject).strip()}, {phrase_of(point)}", share


def _rules(groups: Groups, subject: str) -> Verdict:
    counts = series.rule_counts(groups, subject)
    target = "The number of rules grows no faster than the number of Services"
    if len(counts) < 3:
        return Verdict(target, subject, NOT_MEASURED, "")
    (base, at_base), (few, at_few), *_, (many, at_many) = counts
    first, last = (at_few - at_base) / (few - base), (at_many - at_base) / (many - base)
    worst = f"{first:.1f} rules for each of the first {few}, {last:.1f} for each of {many}"
    return Verdict(target, subject, REACHED if last <= first else MISSED, worst)


def _at_points(target: str, subject: str, points: Sequence[tuple[float, str]], reached: int, missed: int) -> Verdict:
    """Judge a target at each of several points; those that are neither reached nor missed are lost in noise."""
    if not points:
        return Verdict(target, subject, NOT_MEASURED, "")
    outcome = MISSED if missed else REACHED if reached == len(points) else OPEN
    undecided = len(points) - reached - missed
    counts = f"{reached} of {len(points)} points reached, {missed} missed, {undecided} undecided"
    return Verdict(target, subject, outcome, f"{counts}; worst: {max(points)[1]}")


def _shown(where: str, share: stats.Interval) -> str:
    return f"{share.value:.2f} times kube-proxy's ({share.low:.2f} to {share.high:.2f}; {where})"
