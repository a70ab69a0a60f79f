"""The charts of announced addresses: all samples of each subject, with a line at their median."""

from collections.abc import Callable, Mapping
from typing import Final

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks import drawing, handovers, new_addresses
from benchmarks.announcers import IDLE, SCENARIO, STEADY
from benchmarks.handovers import LINK_DOWN, MOVE, POWER_OFF, RESTART
from benchmarks.records import Parameter
from benchmarks.series import Groups
from benchmarks.subjects import ANNOUNCING

CAPTIONS: Final = {
    "addresses-new": "How soon after its Service was created a client is served at a new address, and how much of that "
    "after the first answer for it, every sample, in ms (lower is better; what took less than 1 ms is at the lower "
    "edge)",
    "addresses-moves": "The longest time without a connection as endpoints move, and the connections that fail then, "
    "every sample (lower is better)",
    "addresses-failover": "How long a client cannot connect when the node fails that has the address, every sample, in "
    "s (lower is better)",
}
"""The titles of the charts, by name."""
_LOWEST_MS = 1.0
_LOADS: Final = {IDLE: "nothing else\nchanges", STEADY: "ten endpoints of\nothers change\neach second"}
_CHANGES: Final = {MOVE: "the only endpoint\nmoves", RESTART: "three pods are\nreplaced"}
_FAULTS: Final = {POWER_OFF: "power off", LINK_DOWN: "link down"}


def _new(groups: Groups) -> Figure | None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    drawn = False
    for axis, metric, title in (
        (axes.flat[0], new_addresses.CREATED, "Service created until served"),
        (axes.flat[1], new_addresses.GAP, "first answer until served"),
    ):
        drawn = _samples(axis, groups, metric, "load", _LOADS, lowest=_LOWEST_MS) or drawn
        axis.set_title(title, fontsize=10)
        drawing.log_scale(axis)
    axes.flat[0].set_ylabel("ms")
    return drawing.finished(figure, axes.flat[0], drawn)


def _moves(groups: Groups) -> Figure | None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    longest, failed = axes.flat
    drawn = _samples(longest, groups, handovers.LONGEST, "change", _CHANGES)
    longest.set_ylabel("ms")
    longest.set_title("longest time without a connection", fontsize=10)
    drawing.dots(failed, [(text, _all_failed(groups, {"change": each})) for each, text in _CHANGES.items()], ANNOUNCING)
    failed.set_ylabel("connections")
    failed.yaxis.set_major_locator(MaxNLocator(integer=True))
    failed.set_title("connections that fail: refused, timed out or cut", fontsize=10)
    for axis in axes.flat:
        axis.set_ylim(bottom=0)
    return drawing.finished(figure, longest, drawn)


def _failover(groups: Groups) -> Figure | None:
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    drawn = _samples(axis, groups, handovers.ANEW, "fault", _FAULTS, share=1000)
    axis.set_ylabel("s until a client connects anew")
    axis.set_ylim(bottom=0)
    return drawing.finished(figure, axis, drawn)


def _samples(
    axis: Axes,
    groups: Groups,
    metric: str,
    by: str,
    points: Mapping[str, str],
    *,
    lowest: float | None = None,
    share: float = 1,
) -> bool:
    """Draw the samples of a metric, divided by ``share``, at the points of a parameter. Return True if it has some."""
    rows = []
    for point, text in points.items():
        where: Mapping[str, Parameter] = {by: point}
        found = drawing.find(groups, SCENARIO, metric, where)
        rows.append((text, {subject: [value / share for value in values] for subject, values in found.items()}))
    return drawing.dots(axis, rows, ANNOUNCING, lowest)


def _all_failed(groups: Groups, where: Mapping[str, Parameter]) -> dict[str, list[float]]:
    """Return for each subject how many connections failed in each repetition."""
    found = [drawing.find(groups, SCENARIO, metric, where) for metric in handovers.FAILED.values()]
    return {
        subject: [sum(each) for each in zip(*(values[subject] for values in found), strict=True)]
        for subject in ANNOUNCING
        if all(subject in values for values in found)
    }


CHARTS: Final[Mapping[str, Callable[[Groups], Figure | None]]] = {
    "addresses-new": _new,
    "addresses-moves": _moves,
    "addresses-failover": _failover,
}
"""What draws each."""
