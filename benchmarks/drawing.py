"""What all charts of the report have in common."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks import colours
from benchmarks.records import Parameter
from benchmarks.series import Groups

mpl.use("Agg")

_PLAIN = FuncFormatter(lambda value, _: f"{value:,g}")
_ALL_DOTS = 0.84
"""The width of all subjects at one point."""


def find(groups: Groups, scenario: str, metric: str, where: Mapping[str, Parameter]) -> Mapping[str, Sequence[float]]:
    """Return the values of each subject at the first point that has these parameters."""
    return next(
        (
            values
            for (name, each, point), values in groups.items()
            if (name, each) == (scenario, metric) and where.items() <= dict(point).items()
        ),
        {},
    )


def dots(
    axis: Axes,
    rows: Iterable[tuple[str, Mapping[str, Sequence[float]]]],
    subjects: Sequence[str],
    lowest: float | None = None,
) -> bool:
    """Draw all samples of these subjects side by side, with a line at their median. Return True if there are any.

    Those below ``lowest``, in the unit of the axis, are drawn there.
    """
    points, width = list(rows), _ALL_DOTS / len(subjects)
    for number, subject in enumerate(subjects):
        colour, label = colours.of(subject), colours.NAMES[subject]
        for index, (_, values) in enumerate(points):
            if subject not in values:
                continue
            place = index + (number - (len(subjects) - 1) / 2) * width
            samples = [value if lowest is None else max(value, lowest) for value in values[subject]]
            axis.scatter([place] * len(samples), samples, color=colour, s=14, alpha=0.6, linewidths=0, label=label)
            median = statistics.median(samples)
            axis.hlines(median, place - width / 3, place + width / 3, color=colour, linewidth=2)
            label = ""
    axis.set_xticks(range(len(points)), [text for text, _ in points], fontsize=9)
    axis.grid(axis="y", alpha=0.3)
    return any(values for _, values in points)


def log_scale(axis: Axes) -> None:
    """Have a logarithmic axis of values, with plain numbers."""
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(_PLAIN)
    axis.yaxis.set_minor_formatter(NullFormatter())


def finished(figure: Figure, axis: Axes | None, drawn: bool, columns: int = 5) -> Figure | None:
    """Return a figure, with the legend of one of its axes above all, in so many columns; None if it is empty."""
    if not drawn:
        plt.close(figure)
        return None
    if axis is not None:
        labels = axis.get_legend_handles_labels()
        figure.legend(*labels, loc="outside upper center", ncols=columns, fontsize=8, frameon=False)
    return figure
