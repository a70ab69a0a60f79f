"""The charts of the report, as PNG files."""

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks import address_charts, colours, drawing, packets, series, stats
from benchmarks.expected import RATE
from benchmarks.headline import SUBJECTS
from benchmarks.processes import PEAK
from benchmarks.records import Parameter
from benchmarks.series import Groups
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB

_DPI = 90
_WIDTH = 0.26
_LOWEST_MS = 1.0
"""Where shorter times are drawn: they may even be negative, as watch events may overtake responses."""

CAPTIONS = {
    "one-more": "How long until one more Service answers, beside Services that are there already (every sample; lower "
    "is better; by default kube-proxy syncs at most once a second, minSyncPeriod: 1s)",
    "changes": "How soon a change has effect, every sample, in ms (lower is better; by default kube-proxy syncs at "
    "most once a second, minSyncPeriod: 1s; what took less than 1 ms is at the lower edge)",
    "datapath": "CPU time of packets and requests per second: median of the ratios to kube-proxy in the same rounds, "
    "with its 95 % interval",
    "memory": "Memory at most, of all programs on a node, and of operator and API server",
    **address_charts.CAPTIONS,
}
"""The titles of the charts, by name."""

_CHANGES: Sequence[tuple[str, str, str, Mapping[str, Parameter]]] = (
    ("Service\ncreated", "latency", "created until answered", {"size": 100, "endpoints": "found by selector"}),
    ("Service created\nafter its slice", "latency", "created until answered", {"size": 10, "endpoints": "made before"}),
    ("Service\ndeleted", "latency", "deleted until refused", {"size": 100, "endpoints": "found by selector"}),
    ("endpoint ready,\nof 10", "endpoints", "ready until reached", {"size": 10}),
    ("endpoint ready,\nof 1,000", "endpoints", "ready until reached", {"size": 1000}),
)
_BESIDE = ((1000, 10), (2000, 20), (8000, 30), (20_000, 10))
"""Services and endpoints of each, beside which one more is created."""
_NODE_BARS = ((NFTLB, ("agent", "nftlb")), (NFTABLES, ("agent",)), (KUBE_PROXY, ("kube-proxy",)))
_CONTROL_PLANE = ("apiserver", "operator")
_HATCHES = {"nftlb": "//", "operator": "//"}


def draw(groups: Groups, folder: Path, kube_proxy: str = "") -> dict[str, str]:
    """Draw the charts that have figures, and return the title of each file.

    ``kube_proxy`` is the version of kube-proxy beside many Services, or several.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    charts: Mapping[str, Callable[[Groups], Figure | None]] = {
        "one-more": functools.partial(_one_more, kube_proxy=kube_proxy),
        "changes": _changes,
        "datapath": _datapath,
        "memory": _memory,
        **address_charts.CHARTS,
    }
    for name, chart in charts.items():
        if (figure := chart(groups)) is not None:
            figure.savefig(folder / f"{name}.png", dpi=_DPI, metadata={"Software": None})
            plt.close(figure)
            made[name] = CAPTIONS[name]
    return made


def _one_more(groups: Groups, kube_proxy: str) -> Figure | None:
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    measured = [
        (services, endpoints, values)
        for services, endpoints in _BESIDE
        if (
            values := drawing.find(
                groups, "scale", series.SINGLE_CHANGE, {"services": services, "endpoints": endpoints}
            )
        )
    ]
    for subject in SUBJECTS:
        shown = [
            (services, [value / 1000 for value in values[subject]])
            for services, _, values in measured
            if subject in values
        ]
        if not shown:
            continue
        colour = colours.of(subject)
        for services, samples in shown:
            axis.scatter([services] * len(samples), samples, color=colour, s=22, alpha=0.8)
        medians = [statistics.median(samples) for _, samples in shown]
        axis.plot([services for services, _ in shown], medians, color=colour, linewidth=1, alpha=0.6)
        services, last = shown[-1][0], medians[-1]
        name = colours.NAMES[subject].replace("kube-proxy", f"kube-proxy {kube_proxy}".strip())
        label = f"{name}: {_seconds(last)}"
        offset, align = ((-6, 9), "right") if services == measured[-1][0] else ((8, -3), "left")
        axis.annotate(label, (services, last), offset, textcoords="offset points", ha=align, color=colour, fontsize=9)
    axis.set_xscale("log")
    axis.set_xticks([number for number, _, _ in measured], [f"{number:,}\n× {each}" for number, each, _ in measured])
    axis.xaxis.set_minor_formatter(NullFormatter())
    drawing.log_scale(axis)
    axis.margins(y=0.12)
    axis.set_xlabel("Services × endpoints that are there already")
    axis.set_ylabel("s until one more answers")
    axis.grid(axis="y", alpha=0.3)
    return drawing.finished(figure, None, bool(measured))


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value * 1000:.0f} ms"


def _changes(groups: Groups) -> Figure | None:
    figure, axes = plt.subplots(1, 2, figsize=(12, 4), sharey=True, layout="constrained")
    drawn = False
    for axis, load in zip(axes.flat, ("idle", "steady"), strict=True):
        rows = [
            (text, drawing.find(groups, scenario, metric, {**where, "load": load}))
            for text, scenario, metric, where in _CHANGES
        ]
        drawn = drawing.dots(axis, rows, SUBJECTS, _LOWEST_MS) or drawn
        axis.set_title("nothing else changes" if load == "idle" else "ten endpoints of others change each second")
        drawing.log_scale(axis)
    axes.flat[0].set_ylabel("ms")
    return drawing.finished(figure, axes.flat[0], drawn)


def _datapath(groups: Groups) -> Figure | None:
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True, layout="constrained")
    new = {"users": 500, "connections": "new for each request"}
    drawn = False
    for axis, metric, where, title in zip(
        axes.flat,
        (packets.FIRST, packets.LATER, RATE),
        ({}, {}, new),
        (
            "first packet, CPU time (lower is better)",
            "later packets, CPU time (lower is better)",
            "requests per second (higher is better)",
        ),
        strict=True,
    ):
        by_others = {
            int(dict(point)["others"]): values
            for (scenario, name, point), values in groups.items()
            if (scenario, name) == ("datapath", metric)
            and where.items() <= dict(point).items()
            and KUBE_PROXY in values
        }
        points = sorted(by_others.items())
        subjects = [(NFTLB, f"{NFTLB} dnat"), (NFTABLES, f"{NFTABLES} dnat")]
        if metric != RATE:
            # It has a single server, which limits the rate of new connections.
            subjects.append(("one static rule",) * 2)
        for number, (subject, name) in enumerate(subjects):
            shown = [
                (index, stats.ratio(values[name], values[KUBE_PROXY]))
                for index, (_, values) in enumerate(points)
                if len(values.get(name, ())) == len(values[KUBE_PROXY])
            ]
            if not shown:
                continue
            drawn = True
            spread = [[each.value - each.low for _, each in shown], [each.high - each.value for _, each in shown]]
            axis.errorbar(
                [index + (number - 1) * 0.1 for index, _ in shown],
                [each.value for _, each in shown],
                yerr=spread,
                color=colours.of(subject),
                label=colours.NAMES.get(subject, subject),
                linestyle="none",
                marker="o",
                capsize=3,
            )
        axis.axhline(1, color=colours.of(KUBE_PROXY), linewidth=2, label="kube-proxy")
        axis.set_xticks(range(len(points)), [f"{others:,}" for others, _ in points])
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("other Services")
        axis.set_xlim(-0.5, max(len(points), 1) - 0.5)
        axis.grid(axis="y", alpha=0.3)
    axes.flat[0].set_ylabel("share of kube-proxy's")
    return drawing.finished(figure, axes.flat[0], drawn)


def _memory(groups: Groups) -> Figure | None:
    figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    drawn = False
    measured = [
        (services, endpoints)
        for services, endpoints in _BESIDE
        if drawing.find(groups, "scale", PEAK, {"services": services, "endpoints": endpoints, "process": "apiserver"})
    ]
    for axis, title in zip(axes.flat, ("on each node", "API server (plain) and operator (hatched), once"), strict=True):
        labelled: set[str] = set()
        for index, (services, endpoints) in enumerate(measured):
            for number, (subject, on_node) in enumerate(_NODE_BARS):
                processes = on_node if axis is axes.flat[0] else _CONTROL_PLANE
                where = {"services": services, "endpoints": endpoints}
                found = {name: drawing.find(groups, "scale", PEAK, {**where, "process": name}) for name in processes}
                heights = {name: max(values[subject]) for name, values in found.items() if subject in values}
                place, foot = index + (number - 1) * _WIDTH, 0.0
                if not heights:
                    axis.text(
                        place, 0, " not measured", rotation=90, ha="center", va="bottom", fontsize=7, color="gray"
                    )
                for name, height in heights.items():
                    label = _memory_label(subject, name) if axis is axes.flat[0] else ""
                    axis.bar(
                        place, height, _WIDTH * 0.9, bottom=foot, color=colours.of(subject), hatch=_HATCHES.get(name),
                        edgecolor="white", linewidth=0.5, label=label if label not in labelled else "",
                    )  # fmt: skip
                    labelled.add(label)
                    foot, drawn = foot + height, True
        axis.set_xticks(range(len(measured)), [f"{s:,}\n× {endpoints}" for s, endpoints in measured])
        axis.set_xlabel("Services × endpoints")
        axis.set_ylabel("MB")
        axis.set_title(title, fontsize=10)
        axis.grid(axis="y", alpha=0.3)
    return drawing.finished(figure, axes.flat[0], drawn)


def _memory_label(subject: str, process: str) -> str:
    return "kube-proxy" if subject == KUBE_PROXY else f"{colours.NAMES[subject]}: {process}"
