"""``python -m benchmarks.report DIR``: make a page and its charts from the records in a folder."""

import argparse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    address_charts,
    address_table,
    charts,
    colours,
    excerpts,
    expected,
    headline,
    machine,
    records,
    series,
    stats,
    targets,
    texts,
)
from benchmarks.records import Record
from benchmarks.series import Groups, Units

_PAGE = "performance.md"
_SMALL = 0.1
"""Shares below are told as fractions."""


def page(measured: Sequence[Record], runs: Sequence[Mapping[str, Any]], shown: Mapping[str, str]) -> str:
    """Return the page. ``runs`` describes the origin of the records; ``shown`` maps chart files to their titles."""
    groups = series.grouped(measured)
    units = series.units_of(measured)
    lines = ["# Performance", "", texts.INTRODUCTION.strip(), "", *_headlines(groups), ""]
    lines += _pictures(shown, charts.CAPTIONS.keys() - address_charts.CAPTIONS.keys())
    lines += [
        "## Targets",
        "",
        *_targets(measured),
        "",
        "## Addresses",
        "",
        " ".join(texts.ADDRESSES.split()),
        "",
        *address_table.lines(groups),
        "",
        *_pictures(shown, address_charts.CAPTIONS.keys()),
        "## All figures",
        "",
        *(f"- {each}" for each in texts.TERMS),
        "",
    ]
    for chapter in texts.CHAPTERS:
        if any(record.scenario == chapter.scenario for record in measured) or any(expected.of(chapter.scenario)):
            lines += [*_chapter(chapter, measured, runs, groups, units), ""]
    return "\n".join(lines).rstrip() + "\n"


def _pictures(shown: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Return the lines of the pictures of these names that are shown, in the order of all."""
    return [
        line
        for name in charts.CAPTIONS
        if name in names and name in shown
        for line in (f"![{shown[name]}](performance/{name}.png)", "")
    ]


def _headlines(groups: Groups) -> Iterator[str]:
    subjects = [
        subject for subject in headline.SUBJECTS if any(subject in values for _, values in headline.rows(groups))
    ]
    yield f"| | {' | '.join(colours.NAMES[subject] for subject in subjects)} | n | measured by |"
    yield "|---|" + "---|" * len(subjects) + "---|---|"
    for row, values in headline.rows(groups):
        cells = []
        for subject in subjects:
            share = headline.ratio(row, values, subject)
            cell = f"{series.cell(values[subject])} {row.unit}".rstrip() if subject in values else targets.NOT_MEASURED
            cells.append(cell + (f", {_share(share)}" if share is not None else ""))
        numbers = list(dict.fromkeys(str(len(values[subject])) for subject in subjects if subject in values))
        yield f"| {row.text} | {' | '.join(cells)} | {' / '.join(numbers)} | `{row.scenario}` |"


def _share(share: stats.Interval) -> str:
    """Return a share of kube-proxy's as people say it, in bold, and its interval in the same form."""
    small = share.low > 0 and share.high < _SMALL
    value, low, high = (
        f"1/{1 / each:.0f}" if small else f"{each:.{2 if abs(each) >= _SMALL else 3}f} ×"
        for each in (share.value, share.low, share.high)
    )
    return f"**{value}**" + (f" ({low} to {high})" if share.low < share.high else "")


def _chapter(
    chapter: texts.Chapter,
    measured: Sequence[Record],
    runs: Sequence[Mapping[str, Any]],
    groups: Groups,
    units: Units,
) -> Iterator[str]:
    """Yield a folded section: what was measured, by which runs, and all medians."""
    yield f"<details><summary>{chapter.title}</summary>"
    yield ""
    yield " ".join(chapter.text.split())
    yield ""
    yield from _runs(chapter.scenario, runs)
    yield ""
    yield from _tables(groups, chapter.scenario, units)
    yield from (f"- not measured: {text}" for text in _missing(measured, chapter.scenario))
    yield ""
    yield "</details>"


def _runs(scenario: str, runs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the runs that measured this scenario, each with its machine and versions."""
    for run in runs:
        if scenario in run["scenarios"]:
            hardware = f"{run['cpu']}, {run['cores']} cores, {run['memory_mb']} MB, Linux {run['kernel']}"
            versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
            when = f"{run['began'][:10]}, commit {run['commit']}"
            ended = "" if scenario in run.get("seconds", ()) else "; whether it ended is not recorded"
            load = f"load average at the start {run['load_average'][0]}"
            yield f"- `{run['command']}`, {when}{ended}; {load}; {hardware}; {versions}, Python {run['python']}"


def _targets(measured: Sequence[Record]) -> Iterator[str]:
    yield "| target, beside kube-proxy | engine | outcome | worst point |"
    yield "|---|---|---|---|"
    for verdict in targets.verdicts(measured):
        engine = colours.NAMES[verdict.subject].rpartition(" ")[2]
        yield f"| {verdict.target} | {engine} | **{verdict.outcome}** | {verdict.worst} |"


def _tables(groups: Groups, scenario: str, units: Units) -> Iterator[str]:
    metrics: dict[str, None] = dict.fromkeys(metric for name, metric, _ in groups if name == scenario)
    for metric in metrics:
        rows = [(point, values) for (name, each, point), values in groups.items() if (name, each) == (scenario, metric)]
        if metric == "failed requests" and not any(sum(values) for _, row in rows for values in row.values()):
            yield "No request failed."
            yield ""
            continue
        subjects = list(dict.fromkeys(subject for _, values in rows for subject in values))
        yield f"**{series.with_unit(metric, units[scenario, metric])}**"
        yield ""
        yield f"| | {' | '.join(subjects)} |"
        yield "|---|" + "---|" * len(subjects)
        for point, values in rows:
            cells = [series.cell(values[subject]) if subject in values else "-" for subject in subjects]
            yield f"| {series.text_of(point)} | {' | '.join(cells)} |"
        yield ""


def _missing(measured: Sequence[Record], scenario: str) -> list[str]:
    found = [record for record in measured if record.missing and record.scenario == scenario]
    points = [series.text_of(series.point_of(record)) for record in found]
    reasons = dict.fromkeys(
        f"{record.subject}: {record.missing}{f' ({point})' if point else ''}"
        for record, point in zip(found, points, strict=True)
    )
    lost = expected.lacking(scenario, measured)
    return [*reasons, *(f"{subject}: {', '.join(metrics)}" for subject, metrics in lost.items())]


def write(run: Path, docs: Path) -> None:
    """Write the page and the charts for the folder of a run, and what other documents say of it, if they are there."""
    measured, runs = records.read(run), machine.read(run)
    # A machine without a kube-proxy has no version of it.
    versions = sorted({run["versions"].get("kube-proxy", "") for run in runs if "scale" in run["scenarios"]} - {""})
    shown = charts.draw(series.grouped(measured), docs / "performance", ", ".join(versions))
    (docs / _PAGE).write_text(page(measured, runs, shown), encoding="utf-8")
    for name, document in excerpts.DOCUMENTS.items():
        path = docs.parent / document
        if docs.name == "docs" and path.exists():
            made = excerpts.made(name, measured, runs)
            path.write_text(excerpts.put(path.read_text(encoding="utf-8"), name, made), encoding="utf-8")


def main() -> None:
    """Make the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=write.__doc__)
    parser.add_argument("run", type=Path, metavar="DIR", help="folder of a run")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="folder for the page; default: the folder of the run")
    arguments = parser.parse_args()
    write(arguments.run, arguments.docs or arguments.run)
    print((arguments.docs or arguments.run) / _PAGE)


if __name__ == "__main__":
    main()
