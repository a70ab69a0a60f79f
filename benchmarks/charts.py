"""The charts of a report, as PNG files."""

import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import packets, series, stats
from benchmarks.series import Groups, Point, Units

mpl.use("Agg")

_COLOURS = (
    "#1f6fb4",
    "#e08214",
    "#4d9a3f",
    "#b2182b",
    "#7b4ea3",
    "#8c564b",
    "#d46fb0",
    "#7f7f7f",
    "#a8a420",
    "#30a5b5",
)
_DPI = 90


CAPTIONS = {
    "latency": "From the API server's response until the VIP answers or refuses",
    "way": "Where the time is spent (median)",
    "rules": "Rules on a node",
    "datapath": "Requests per second, as a share of kube-proxy's in nftables mode (with 95 % confidence)",
    "processor": "CPU time per request, as a share of kube-proxy's in nftables mode",
    "packets": "CPU time per packet, as a share of kube-proxy's in nftables mode",
    "limit": "Minimum time of kernel, netlink and nftlb (median)",
    "schedulers": "Servers with one second of delay",
    "scale": "Many Services",
    "intake": "Operator start-up",
    "cost": "Resource usage",
}
"""The titles of the charts, by name."""


def draw(groups: Groups, units: Units, folder: Path) -> dict[str, str]:
    """Draw all charts that have figures, and return the title of each file."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, figure in (
        ("latency", _latency(groups)),
        ("way", _way(groups)),
        ("rules", _rules(groups)),
        ("datapath", _datapath(groups)),
        ("processor", _processor(groups)),
        ("packets", _packets(groups)),
        ("limit", _limit(groups)),
        *((scenario, _any(groups, units, scenario)) for scenario in ("schedulers", "scale", "intake", "cost")),
    ):
        if figure is not None:
            figure.savefig(folder / f"{name}.png", dpi=_DPI, metadata={"Software": None})
            plt.close(figure)
            made[name] = CAPTIONS[name]
    return made


def _latency(groups: Groups) -> Figure | None:
    metrics = ("created until answered", "deleted until refused")
    found = {
        (metric, load): [
            (point, subjects)
            for (scenario, name, point), subjects in groups.items()
            if (scenario, name) == ("latency", metric) and ("load", load) in point
        ]
        for metric in metrics
        for load in ("idle", "steady")
    }
    if not any(found.values()):
        return None
    subjects = series.subjects_of(groups, lambda scenario, metric: scenario == "latency" and metric in metrics)
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharey=True, layout="constrained")
    for axis, ((metric, load), points) in zip(axes.flat, found.items(), strict=True):
        for number, subject in enumerate(subjects):
            places = [index + (number - (len(subjects) - 1) / 2) * 0.25 for index in range(len(points))]
            shown = [
                (place, values[subject]) for place, (_, values) in zip(places, points, strict=True) if subject in values
            ]
            if shown:
                axis.boxplot(
                    [values for _, values in shown],
                    positions=[place for place, _ in shown],
                    widths=0.2,
                    patch_artist=True,
                    boxprops={"facecolor": _COLOURS[number], "alpha": 0.6},
                    medianprops={"color": "black"},
                    flierprops={"markersize": 3},
                    whis=(0, 100),
                )
            axis.plot([], [], color=_COLOURS[number], linewidth=6, alpha=0.6, label=subject)
        labels = [f"{dict(point)['size']} pods\n{dict(point)['endpoints']}" for point, _ in points]
        axis.set_xticks(range(len(points)), labels, fontsize=8)
        axis.set_yscale("symlog", linthresh=10)
        axis.grid(axis="y", alpha=0.3)
        axis.set_title(f"{metric}, {'idle' if load == 'idle' else 'under steady change'}", fontsize=10)
        axis.set_ylabel("ms")
    axes.flat[0].legend(fontsize=8)
    return figure


def _way(groups: Groups) -> Figure | None:
    ways: dict[str, dict[str, float]] = {}
    for (scenario, metric, point), subjects in groups.items():
        if (scenario, metric) == ("latency", "segment"):
            for subject, values in subjects.items():
                way = f"{subject}, {dict(point)['size']} pods"
                ways.setdefault(way, {})[str(dict(point)["segment"])] = statistics.median(values)
    if not ways:
        return None
    segments = list(dict.fromkeys(segment for medians in ways.values() for segment in medians))
    figure, axes = plt.subplots(len(ways), 1, figsize=(10, 1.2 * len(ways) + 1), layout="constrained", squeeze=False)
    for axis, (way, medians) in zip(axes.flat, sorted(ways.items()), strict=True):
        left = 0.0
        # Draw last what comes last in the longest list of segments.
        for segment, length in sorted(medians.items(), key=lambda part: part[0].startswith("until ")):
            colour = _COLOURS[segments.index(segment) % len(_COLOURS)]
            axis.barh([way], [length], left=left, color=colour, label=f"{segment}: {length:.1f} ms")
            left += length
        axis.set_xlabel("ms", fontsize=8)
        axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _rules(groups: Groups) -> Figure | None:
    metrics = ("rules", "chains", "elements")
    subjects = series.subjects_of(groups, lambda scenario, metric: scenario == "latency" and metric in metrics)
    if not subjects:
        return None
    figure, axes = plt.subplots(1, len(metrics), figsize=(11, 3.5), layout="constrained")
    for axis, metric in zip(axes.flat, metrics, strict=True):
        points = [
            (point, v) for (scenario, name, point), v in groups.items() if (scenario, name) == ("latency", metric)
        ]
        numbers = [str(dict(point)["services"]) for point, _ in points]
        _bars(axis, numbers, [values for _, values in points], subjects)
        axis.set_title(metric, fontsize=10)
        axis.set_xlabel("Services of 10 endpoints more")
    axes.flat[0].legend(fontsize=8)
    return figure


def _datapath(groups: Groups) -> Figure | None:
    return _shares(groups, "requests per second")


def _processor(groups: Groups) -> Figure | None:
    return _shares(groups, "processor time per request")


def _packets(groups: Groups) -> Figure | None:
    return _shares(groups, packets.FIRST, packets.LATER)


def _shares(groups: Groups, *metrics: str) -> Figure | None:
    panels: list[tuple[str, dict[str, stats.Interval]]] = []
    for (scenario, name, point), values in groups.items():
        if scenario == "datapath" and name in metrics and series.NFTABLES in values:
            theirs = values[series.NFTABLES]
            whole = {subject: each for subject, each in values.items() if len(each) == len(theirs)}
            title = series.text_of((("", name), *point) if len(metrics) > 1 else point).strip()
            panels.append((title, {subject: stats.ratio(each, theirs) for subject, each in whole.items()}))
    if not panels:
        return None
    subjects = list(dict.fromkeys(subject for _, intervals in panels for subject in intervals))
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(12, 0.6 + 2 * rows), layout="constrained", squeeze=False, sharey=True
    )
    for axis, (title, intervals) in zip(axes.flat, panels, strict=False):
        shown = [(subject, intervals[subject]) for subject in reversed(subjects) if subject in intervals]
        spread = [
            [interval.value - interval.low for _, interval in shown],
            [interval.high - interval.value for _, interval in shown],
        ]
        colours = [_COLOURS[subjects.index(subject) % len(_COLOURS)] for subject, _ in shown]
        lengths = [interval.value for _, interval in shown]
        axis.barh([subject for subject, _ in shown], lengths, xerr=spread, color=colours, alpha=0.75, capsize=2)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(textwrap.fill(title, 50), fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    return figure


def _limit(groups: Groups) -> Figure | None:
    found: dict[str, dict[str, list[float]]] = {}
    for (scenario, metric, point), subjects in groups.items():
        if (scenario, metric) == ("limit", "time"):
            for subject, values in subjects.items():
                found.setdefault(subject, {})[f"{dict(point)['services']} Services"] = values
    if not found:
        return None
    numbers = list(dict.fromkeys(number for values in found.values() for number in values))
    figure, axis = plt.subplots(figsize=(11, 4.5), layout="constrained")
    _bars(axis, [textwrap.fill(subject, 18) for subject in found], list(found.values()), numbers)
    axis.tick_params(axis="x", labelsize=7)
    axis.set_ylabel("ms")
    axis.set_yscale("log")
    axis.legend(fontsize=8)
    return figure


def _any(groups: Groups, units: Units, scenario: str) -> Figure | None:
    """Draw a panel per metric of a scenario, with a group of bars per point and a bar per subject."""
    metrics: dict[str, list[tuple[Point, dict[str, list[float]]]]] = {}
    for (name, metric, point), values in groups.items():
        if name == scenario:
            metrics.setdefault(metric, []).append((point, values))
    if not metrics:
        return None
    subjects = series.subjects_of(groups, lambda name, _: name == scenario)
    rows = (len(metrics) + 1) // 2
    figure, axes = plt.subplots(rows, 2, figsize=(11, 3.2 * rows), layout="constrained", squeeze=False)
    for axis, (metric, points) in zip(axes.flat, metrics.items(), strict=False):
        labels = [series.text_of(point).replace(", ", "\n") for point, _ in points]
        _bars(axis, labels, [values for _, values in points], subjects)
        axis.set_title(series.with_unit(metric, units[scenario, metric]), fontsize=9)
        axis.tick_params(axis="x", labelsize=7)
    for axis in list(axes.flat)[len(metrics) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize=7)
    return figure


def _bars(axis: Axes, labels: Sequence[str], groups: Sequence[dict[str, list[float]]], subjects: Sequence[str]) -> None:
    """Draw medians side by side, with lines from the lowest to the highest value."""
    width = 0.8 / len(subjects)
    for number, subject in enumerate(subjects):
        shown = [(index, group[subject]) for index, group in enumerate(groups) if subject in group]
        medians = [statistics.median(values) for _, values in shown]
        spread = [
            [median - min(values) for median, (_, values) in zip(medians, shown, strict=True)],
            [max(values) - median for median, (_, values) in zip(medians, shown, strict=True)],
        ]
        places = [index + (number - (len(subjects) - 1) / 2) * width for index, _ in shown]
        colour = _COLOURS[number % len(_COLOURS)]
        axis.bar(places, medians, width=width, yerr=spread, color=colour, alpha=0.75, capsize=2, label=subject)
    axis.set_xticks(range(len(labels)), labels, fontsize=8)
    axis.grid(axis="y", alpha=0.3)
