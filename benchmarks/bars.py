"""What is asked of this project's speed, and whether a run's records show it. Computation only."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from benchmarks import packets, stats
from benchmarks.records import Parameter, Record

OURS = "kube-nftlb"
NFTABLES, IPTABLES = "kube-proxy-nftables", "kube-proxy-iptables"
DATAPATH_OURS = ("kube-nftlb snat", "kube-nftlb dnat", "kube-nftlb dsr")
REPEATS = frozenset({"repetition", "round"})
"""Parameters that tell one repetition from the other."""

REACHED, MISSED, OPEN = "reached", "missed", "not decided"

SINGLE_CHANGE = "one change afterwards"
OPERATOR_STARTED = "started until a new Service has its farm"

Point = tuple[tuple[str, Parameter], ...]
Groups = dict[tuple[str, str, Point], dict[str, list[float]]]


class Verdict(NamedTuple):
    """One bar, and its point that is worst for us."""

    bar: str
    outcome: str
    worst: str
    key: str


def point_of(record: Record) -> Point:
    """The parameters of a record, but those that tell repetitions apart."""
    return tuple((key, value) for key, value in record.parameters.items() if key not in REPEATS)


def grouped(records: Iterable[Record]) -> Groups:
    """The values of all repetitions, in their order, by (scenario, metric, point) and then by subject."""
    groups: Groups = {}
    for record in records:
        if not record.missing:
            subjects = groups.setdefault((record.scenario, record.metric, point_of(record)), {})
            subjects.setdefault(record.subject, []).append(record.value)
    return groups


def text_of(point: Point) -> str:
    """A point as a person reads it."""
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in point)


def verdicts(records: Iterable[Record]) -> list[Verdict]:
    """All bars for which there are records."""
    groups = grouped(records)
    candidates = (
        _latency(groups, "steady", "created until answered", (NFTABLES, IPTABLES), 0.1, "steady",
                 "Creation under steady change: at least 10 times faster than kube-proxy in either mode"),
        _latency(groups, "idle", "created until answered", (NFTABLES,), 1.0, "idle",
                 "Creation when idle: no slower than kube-proxy in nftables mode"),
        _latency(groups, "idle", "deleted until refused", (NFTABLES, IPTABLES), 1.0, "deletion",
                 "Deletion when idle: no slower than kube-proxy in either mode"),
        _latency(groups, "steady", "deleted until refused", (NFTABLES, IPTABLES), 1.0, "deletion",
                 "Deletion under steady change: no slower than kube-proxy in either mode"),
        _rules(groups),
        _datapath(groups),
        _per_packet(groups),
        _within(groups, "An idle agent with 1,000 Services: less than 1 % of a core",
                1, " %", ("cost", "processor time"), {"services": 1000, "load": "idle", "process": "agent"}),
        _within(groups, "The agent with 1,000 Services: less than 250 MB",
                250, " MB", ("cost", "memory"), {"services": 1000, "process": "agent"}),
        _within(groups, "The operator with 8,000 Services: less than 400 MB",
                400, " MB", ("scale", "memory"), {"services": 8000, "process": "operator"}),
        _within(groups, "The operator, started anew, takes 8,000 Services, their slices and farms in less than 15 s",
                15, " s", ("intake", OPERATOR_STARTED), {"services": 8000}),
        _within(groups, "Every single change with 8,000 Services: less than 0.5 s",
                500, " ms", ("scale", SINGLE_CHANGE), {"services": 8000}),
    )  # fmt: skip
    return [verdict for verdict in candidates if verdict is not None]


def _latency(
    groups: Groups, load: str, metric: str, others: tuple[str, ...], most: float, key: str, bar: str
) -> Verdict | None:
    shares = []
    for (scenario, name, point), subjects in groups.items():
        if (scenario, name) == ("latency", metric) and ("load", load) in point and OURS in subjects:
            ours = statistics.median(subjects[OURS])
            for other in set(others) & set(subjects):
                theirs = statistics.median(subjects[other])
                # The times count from the API's answer, which may come after the fact.
                share = ours / theirs if theirs > 0 else float("inf") if ours > theirs else 1.0
                where = f"{ours:.1f} ms beside {theirs:.1f} ms of {other} ({text_of(point)})"
                shares.append((share, where))
    if not shares:
        return None
    share, where = max(shares)
    return Verdict(bar, REACHED if share <= most else MISSED, where, key)


def _within(
    groups: Groups,
    bar: str,
    limit: float,
    unit: str,
    figure: tuple[str, str],
    where: Mapping[str, Parameter],
) -> Verdict | None:
    """Whether our highest median of a figure (scenario and metric) is below a limit, wherever it was taken."""
    found = [
        (statistics.median(subjects[OURS]), point)
        for (scenario, metric, point), subjects in groups.items()
        if (scenario, metric) == figure and OURS in subjects and where.items() <= dict(point).items()
    ]
    if not found:
        return None
    value, point = max(found)
    return Verdict(bar, REACHED if value < limit else MISSED, f"{value:,.2f}{unit} ({text_of(point)})", "")


def _rules(groups: Groups) -> Verdict | None:
    counts = sorted(
        (int(dict(point)["services"]), subjects[OURS][-1])
        for (scenario, metric, point), subjects in groups.items()
        if (scenario, metric) == ("latency", "rules") and OURS in subjects
    )
    if len(counts) < 3:
        return None
    (base, at_base), (few, at_few), *_, (many, at_many) = counts
    first, last = (at_few - at_base) / (few - base), (at_many - at_base) / (many - base)
    bar = "The number of rules grows no faster than the number of Services"
    return Verdict(
        bar,
        REACHED if last <= first else MISSED,
        f"{first:.1f} rules for each of the first {few}, {last:.1f} for each of {many}",
        "rules",
    )


def _datapath(groups: Groups) -> Verdict | None:
    bar = "Data path: within 2 % of kube-proxy in nftables mode, or better, at every point"
    ratios = list(datapath_ratios(groups))
    if not ratios:
        return None
    reached = sum(share.low >= 0.98 for _, _, share in ratios)
    missed = sum(share.high < 0.98 for _, _, share in ratios)
    worst = min(ratios, key=lambda each: each[2].value)
    return _at_points(bar, "datapath", len(ratios), reached, missed, _where("its requests per second", *worst))


def _per_packet(groups: Groups) -> Verdict | None:
    bar = "The same for the kernel's time for one packet, which is less noisy"
    ratios = [(metric, *each) for metric in (packets.FIRST, packets.LATER) for each in datapath_ratios(groups, metric)]
    if not ratios:
        return None
    reached = sum(share.high <= 1.02 for *_, share in ratios)
    missed = sum(share.low > 1.02 for *_, share in ratios)
    metric, ours, point, share = max(ratios, key=lambda each: each[3].value)
    return _at_points(bar, "packets", len(ratios), reached, missed, _where(f"the {metric}", ours, point, share))


def _at_points(bar: str, key: str, points: int, reached: int, missed: int, worst: str) -> Verdict:
    """A bar that is to be reached at each of some points; where it is neither reached nor missed, noise hides it."""
    outcome = MISSED if missed else REACHED if reached == points else OPEN
    counts = f"of {points} points {reached} reached, {missed} missed, the others within the noise; worst: {worst}"
    return Verdict(bar, outcome, counts, key)


def _where(metric: str, ours: str, point: Point, share: stats.Interval) -> str:
    return f"{ours}: {share.value:.2f} of {metric} ({share.low:.2f} to {share.high:.2f}; {text_of(point)})"


def datapath_ratios(groups: Groups, wanted: str = "requests per second") -> Iterator[tuple[str, Point, stats.Interval]]:
    """What our modes have of a metric, as a share of kube-proxy's in the same round."""
    for (scenario, metric, point), subjects in groups.items():
        if (scenario, metric) == ("datapath", wanted) and NFTABLES in subjects:
            theirs = subjects[NFTABLES]
            for ours in DATAPATH_OURS:
                rounds = min(len(subjects.get(ours, ())), len(theirs))
                if rounds:
                    yield ours, point, stats.ratio(subjects[ours][:rounds], theirs[:rounds])


def subjects_of(groups: Groups, keep: Callable[[str, str], bool]) -> list[str]:
    """The subjects of the scenarios and metrics that are to be kept, in the order of their first records."""
    found: dict[str, None] = defaultdict()
    for (scenario, metric, _), subjects in groups.items():
        if keep(scenario, metric):
            found.update(dict.fromkeys(subjects))
    return list(found)
