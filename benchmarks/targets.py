"""Performance targets, and verdicts on them from the records of a run. Computation only."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks import packets, stats
from benchmarks.processes import PEAK
from benchmarks.records import Parameter, Record
from benchmarks.series import (
    IPTABLES,
    MEANWHILE,
    NFTABLES,
    OPERATOR_STARTED,
    OURS,
    SINGLE_CHANGE,
    Groups,
    Point,
    grouped,
    text_of,
)

DATAPATH_OURS = ("kube-nftlb snat", "kube-nftlb dnat", "kube-nftlb dsr")
REACHED, MISSED, OPEN, NOT_MEASURED = "reached", "missed", "not decided", "not measured"


class Verdict(NamedTuple):
    """The verdict on one target, with the point that is worst for us."""

    target: str
    outcome: str
    worst: str
    key: str


def verdicts(records: Iterable[Record]) -> list[Verdict]:
    """Return verdicts on all targets, including those without records."""
    groups = grouped(records)
    return [
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
                1, " %", [("cost", "processor time")], {"services": 1000, "load": "idle", "process": "agent"}),
        _within(groups, "The agent with 1,000 Services: less than 250 MB",
                250, " MB", [("cost", PEAK), ("scale", PEAK), ("scale", "memory")],
                {"services": 1000, "process": "agent"}),
        _within(groups, "The operator with 8,000 Services: less than 400 MB",
                400, " MB", [("scale", "memory"), ("scale", PEAK), ("intake", PEAK)],
                {"services": 8000, "process": "operator"}),
        _within(groups, "The operator, started anew, takes 8,000 Services, their slices and farms in less than 15 s",
                15, " s", [("intake", OPERATOR_STARTED)], {"services": 8000}, "intake"),
        _within(groups, "A change with 8,000 Services, none of which changes: less than 0.5 s, each of them",
                500, " ms", [("scale", SINGLE_CHANGE)], {"services": 8000}, "single"),
        _within(groups, "A change while all of 8,000 Services change: less than 0.5 s",
                500, " ms", [("scale", MEANWHILE)], {"services": 8000}, "meanwhile"),
    ]  # fmt: skip


def _latency(
    groups: Groups, load: str, metric: str, others: tuple[str, ...], most: float, key: str, target: str
) -> Verdict:
    """Judge if our times are at most ``most`` times those of each other subject at each point."""
    shares, reached, missed = [], 0, 0
    for (scenario, name, point), subjects in groups.items():
        if (scenario, name) == ("latency", metric) and ("load", load) in point and OURS in subjects:
            ours = subjects[OURS]
            for other in set(others) & set(subjects):
                theirs = subjects[other]
                rounds = min(len(ours), len(theirs))
                above = stats.difference(ours[:rounds], theirs[:rounds], most)
                reached += above.decides and above.high <= 0
                missed += above.decides and above.low > 0
                our, their = statistics.median(ours), statistics.median(theirs)
                # Times start at the API server's response, which may arrive late.
                share = our / their if their > 0 else float("inf") if our > their else 1.0
                shares.append((share, f"{our:.1f} ms beside {their:.1f} ms of {other} ({text_of(point)})"))
    if not shares:
        return _not_measured(target)
    return _at_points(target, key, len(shares), reached, missed, max(shares)[1])


def _within(
    groups: Groups,
    target: str,
    limit: float,
    unit: str,
    figures: Sequence[tuple[str, str]],
    where: Mapping[str, Parameter],
    key: str = "",
) -> Verdict:
    """Judge if the highest of our values of some figures (scenario and metric) is below a limit."""
    found = [
        (max(subjects[OURS]), point)
        for (scenario, metric, point), subjects in groups.items()
        if (scenario, metric) in figures and OURS in subjects and where.items() <= dict(point).items()
    ]
    if not found:
        return _not_measured(target)
    value, point = max(found)
    return Verdict(target, REACHED if value < limit else MISSED, f"{value:,.2f}{unit} ({text_of(point)})", key)


def _rules(groups: Groups) -> Verdict:
    counts = sorted(
        (int(dict(point)["services"]), subjects[OURS][-1])
        for (scenario, metric, point), subjects in groups.items()
        if (scenario, metric) == ("latency", "rules") and OURS in subjects
    )
    target = "The number of rules grows no faster than the number of Services"
    if len(counts) < 3:
        return _not_measured(target)
    (base, at_base), (few, at_few), *_, (many, at_many) = counts
    first, last = (at_few - at_base) / (few - base), (at_many - at_base) / (many - base)
    return Verdict(
        target,
        REACHED if last <= first else MISSED,
        f"{first:.1f} rules for each of the first {few}, {last:.1f} for each of {many}",
        "rules",
    )


def _datapath(groups: Groups) -> Verdict:
    target = "Data path: within 2 % of kube-proxy in nftables mode, or better, at every point"
    ratios = list(datapath_ratios(groups))
    if not ratios:
        return _not_measured(target)
    reached = sum(share.low >= 0.98 for _, _, share in ratios if share.decides)
    missed = sum(share.high < 0.98 for _, _, share in ratios if share.decides)
    worst = min(ratios, key=lambda each: each[2].value)
    return _at_points(target, "datapath", len(ratios), reached, missed, _where("its requests per second", *worst))


def _per_packet(groups: Groups) -> Verdict:
    target = "The same for the processor time of one packet, which is less noisy"
    ratios = [(metric, *each) for metric in (packets.FIRST, packets.LATER) for each in datapath_ratios(groups, metric)]
    if not ratios:
        return _not_measured(target)
    reached = sum(share.high <= 1.02 for *_, share in ratios if share.decides)
    missed = sum(share.low > 1.02 for *_, share in ratios if share.decides)
    metric, ours, point, share = max(ratios, key=lambda each: each[3].value)
    return _at_points(target, "packets", len(ratios), reached, missed, _where(f"the {metric}", ours, point, share))


def _not_measured(target: str) -> Verdict:
    return Verdict(target, NOT_MEASURED, "", "")


def _at_points(target: str, key: str, points: int, reached: int, missed: int, worst: str) -> Verdict:
    """Judge a target at each of several points; points that are neither reached nor missed are lost in noise."""
    outcome = MISSED if missed else REACHED if reached == points else OPEN
    counts = f"of {points} points {reached} reached, {missed} missed, the others undecided; worst: {worst}"
    return Verdict(target, outcome, counts, key)


def _where(metric: str, ours: str, point: Point, share: stats.Interval) -> str:
    return f"{ours}: {share.value:.2f} of {metric} ({share.low:.2f} to {share.high:.2f}; {text_of(point)})"


def datapath_ratios(groups: Groups, wanted: str = "requests per second") -> Iterator[tuple[str, Point, stats.Interval]]:
    """Return our metric in each mode as a share of kube-proxy's in the same round."""
    for (scenario, metric, point), subjects in groups.items():
        if (scenario, metric) == ("datapath", wanted) and NFTABLES in subjects:
            theirs = subjects[NFTABLES]
            for ours in DATAPATH_OURS:
                rounds = min(len(subjects.get(ours, ())), len(theirs))
                if rounds:
                    yield ours, point, stats.ratio(subjects[ours][:rounds], theirs[:rounds])
