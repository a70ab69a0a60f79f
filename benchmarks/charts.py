"""The five charts of the report, as PNG files."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks import colours, packets, series, stats
from benchmarks.headline import SUBJECTS
from benchmarks.processes import PEAK
from benchmarks.records import Parameter
from benchmarks.series import Groups
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB
from benchmarks.targets import RATE

mpl.use("Agg")

_DPI = 90
_PLAIN = FuncFormatter(lambda value, _: f"{value:,g}")
_WIDTH = 0.26

CAPTIONS = {
    "changes": "How soon a change has effect: median, and the whole range, in ms",
    "scale": "8,000 Services on one Deployment that is scaled, and one more Service in the meantime and afterwards",
    "datapath": "CPU time of packets, and requests per second, as a share of kube-proxy's, with 95 % confidence",
    "memory": "Memory of the programs on a node, and of the operator, at most",
    "rules": "Rules on a node",
}
"""The titles of the charts, by name."""

_CHANGES: Sequence[tuple[str, str, str, Mapping[str, Parameter]]] = (
    ("Service created", "latency", "created until answered", {"size": 100, "endpoints": "found by selector"}),
    ("Service deleted", "latency", "deleted until refused", {"size": 100, "endpoints": "found by selector"}),
    ("endpoint ready,\nof 10", "endpoints", "ready until reached", {"size": 10}),
    ("endpoint ready,\nof 1,000", "endpoints", "ready until reached", {"size": 1000}),
)


def draw(groups: Groups, folder: Path) -> dict[str, str]:
    """Draw the charts that have figures, and return the title of each file."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    charts: Mapping[str, Callable[[Groups], Figure | None]] = {
        "changes": _changes,
        "scale": _scale,
        "datapath": _datapath,
        "memory": _memory,
        "rules": _rules,
    }
    for name, chart in charts.items():
        if (figure := chart(groups)) is not None:
            figure.savefig(folder / f"{name}.png", dpi=_DPI, metadata={"Software": None})
            plt.close(figure)
            made[name] = CAPTIONS[name]
    return made


def _find(groups: Groups, scenario: str, metric: str, where: Mapping[str, Parameter]) -> Mapping[str, Sequence[float]]:
    """Return the values of each subject at the first point that has these parameters."""
    return next(
        (
            values
            for (name, each, point), values in groups.items()
            if (name, each) == (scenario, metric) and where.items() <= dict(point).items()
        ),
        {},
    )


def _changes(groups: Groups) -> Figure | None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    drawn = False
    for axis, load in zip(axes.flat, ("idle", "steady"), strict=True):
        bars = [
            (text, _find(groups, scenario, metric, {**where, "load": load}))
            for text, scenario, metric, where in _CHANGES
        ]
        drawn = _bars(axis, bars) or drawn
        axis.set_title("nothing else changes" if load == "idle" else "ten endpoints of others change each second")
        _log_scale(axis)
    axes.flat[0].set_ylabel("ms")
    return _drawn(figure, axes.flat[0], drawn)


def _scale(groups: Groups) -> Figure | None:
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    drawn = False
    sizes = [
        point
        for scenario, metric, point in groups
        if (scenario, metric) == ("scale", series.ALL_THERE) and ("services", 8000) in point
    ]
    for axis, metric, title, factor in zip(
        axes.flat,
        (series.ALL_THERE, series.MEANWHILE, series.SINGLE_CHANGE),
        ("all in the kernel", "one more Service meanwhile", "one more Service afterwards"),
        (1, 1000, 1000),
        strict=True,
    ):
        bars = []
        for point in sizes:
            values = _find(groups, "scale", metric, dict(point))
            endpoints = dict(point)["endpoints"]
            bars.append((f"{endpoints}", {name: [each / factor for each in some] for name, some in values.items()}))
        drawn = _bars(axis, bars, SUBJECTS[1:]) or drawn
        axis.set_title(title, fontsize=10)
        axis.set_ylabel("s")
        axis.set_xlabel("endpoints of each Service")
        if metric != series.ALL_THERE:
            _log_scale(axis)
    return _drawn(figure, axes.flat[0], drawn)


def _datapath(groups: Groups) -> Figure | None:
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    new = {"users": 500, "connections": "new for each request"}
    drawn = False
    for axis, metric, where, title in zip(
        axes.flat,
        (packets.FIRST, packets.LATER, RATE),
        ({}, {}, new),
        ("first packet of a connection, CPU time", "later packets, CPU time", "requests per second, 500 users"),
        strict=True,
    ):
        points = [
            (dict(point)["others"], values)
            for (scenario, name, point), values in groups.items()
            if (scenario, name) == ("datapath", metric)
            and where.items() <= dict(point).items()
            and KUBE_PROXY in values
        ]
        subjects = [(NFTLB, f"{NFTLB} dnat"), (NFTABLES, f"{NFTABLES} dnat")]
        if metric != RATE:
            # It has a single server, which limits the rate of new connections.
            subjects.append(("one static rule",) * 2)
        for number, (subject, name) in enumerate(subjects):
            shown = [
                (others, stats.ratio(values[name], values[KUBE_PROXY]))
                for others, values in points
                if len(values.get(name, ())) == len(values[KUBE_PROXY])
            ]
            if not shown:
                continue
            drawn = True
            spread = [[each.value - each.low for _, each in shown], [each.high - each.value for _, each in shown]]
            axis.errorbar(
                [index + (number - 1) * 0.1 for index, _ in enumerate(shown)],
                [each.value for _, each in shown],
                yerr=spread,
                color=colours.of(subject),
                label=colours.NAMES.get(subject, subject),
                marker="o",
                capsize=3,
            )
        axis.axhline(1, color=colours.of(KUBE_PROXY), linewidth=2, label="kube-proxy")
        axis.set_xticks(range(len(points)), [f"{others:,}" for others, _ in points])
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("other Services")
        axis.grid(axis="y", alpha=0.3)
    axes.flat[0].set_ylabel("share of kube-proxy's")
    return _drawn(figure, axes.flat[0], drawn)


def _memory(groups: Groups) -> Figure | None:
    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    programs = ((NFTLB, "agent"), (NFTLB, "nftlb"), (NFTABLES, "agent"), (NFTABLES, "operator"), (KUBE_PROXY,) * 2)
    hatches = {"nftlb": "//", "operator": ".."}
    found: dict[tuple[int, int], dict[tuple[str, str], float]] = {}
    for (scenario, metric, point), values in groups.items():
        where = dict(point)
        if (scenario, metric) != ("scale", PEAK):
            continue
        for subject, process in programs:
            if subject in values and where["process"] == process.removesuffix("-nftables"):
                size = (int(where["services"]), int(where["endpoints"]))
                found.setdefault(size, {})[subject, process] = max(values[subject])
    found = dict(sorted(found.items()))
    width = 0.16
    there = [program for program in programs if any(program in each for each in found.values())]
    for number, (subject, process) in enumerate(there):
        shown = [(index, each) for index, each in enumerate(found.values()) if (subject, process) in each]
        label = "kube-proxy" if subject == KUBE_PROXY else f"{colours.NAMES[subject]}: {process}"
        left = [index + (number - (len(there) - 1) / 2) * width for index, _ in shown]
        heights = [each[subject, process] for _, each in shown]
        colour, hatch = colours.of(subject), hatches.get(process)
        axis.bar(left, heights, width, color=colour, hatch=hatch, alpha=0.8, label=label)
    axis.set_xticks(range(len(found)), [f"{services:,}\n× {endpoints}" for services, endpoints in found], fontsize=8)
    axis.set_xlabel("Services × endpoints")
    axis.set_ylabel("MB")
    axis.grid(axis="y", alpha=0.3)
    return _drawn(figure, axis, bool(found), columns=3)


def _rules(groups: Groups) -> Figure | None:
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    drawn = False
    for subject in SUBJECTS:
        counts = series.rule_counts(groups, subject)
        if counts:
            drawn = True
            axis.plot(*zip(*counts, strict=True), marker="o", color=colours.of(subject), label=colours.NAMES[subject])
    axis.set_xscale("symlog", linthresh=1)
    axis.xaxis.set_major_formatter(_PLAIN)
    _log_scale(axis)
    axis.set_xlabel("Services of 10 endpoints, beside 50 others")
    axis.set_ylabel("rules")
    axis.grid(alpha=0.3)
    return _drawn(figure, axis, drawn)


def _bars(
    axis: Axes, bars: Iterable[tuple[str, Mapping[str, Sequence[float]]]], subjects: Sequence[str] = SUBJECTS
) -> bool:
    """Draw medians side by side, with lines from the lowest to the highest value. Return True if there are any."""
    groups = list(bars)
    for number, subject in enumerate(subjects):
        shown = [(index, values[subject]) for index, (_, values) in enumerate(groups) if subject in values]
        medians = [statistics.median(values) for _, values in shown]
        spread = [
            [median - min(values) for median, (_, values) in zip(medians, shown, strict=True)],
            [max(values) - median for median, (_, values) in zip(medians, shown, strict=True)],
        ]
        places = [index + (number - (len(subjects) - 1) / 2) * _WIDTH for index, _ in shown]
        name = colours.NAMES[subject]
        axis.bar(places, medians, _WIDTH, yerr=spread, color=colours.of(subject), alpha=0.8, capsize=2, label=name)
    axis.set_xticks(range(len(groups)), [text for text, _ in groups], fontsize=8)
    axis.grid(axis="y", alpha=0.3)
    return any(values for _, values in groups)


def _log_scale(axis: Axes) -> None:
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(_PLAIN)
    axis.yaxis.set_minor_formatter(NullFormatter())


def _drawn(figure: Figure, axis: Axes, drawn: bool, columns: int = 5) -> Figure | None:
    """Return a figure with the legend of one of its axes above all, in so many columns; None if it is empty."""
    if not drawn:
        plt.close(figure)
        return None
    labels = axis.get_legend_handles_labels()
    figure.legend(*labels, loc="outside upper center", ncols=columns, fontsize=8, frameon=False)
    return figure
