"""``python -m tests.upstream.report DIR --docs docs``: make docs/conformance-upstream.md from the records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.upstream import causes, groups, progress, records
from tests.upstream.records import FAILED, PASSED, SKIPPED, Outcome, Run
from tests.upstream.subjects import REFERENCE, SUBJECTS

PAGE = "conformance-upstream.md"

_INTRODUCTION = """
# Conformance: Kubernetes' own end-to-end tests

[Conformance](conformance.md) lists our own tests of what a service proxy does. This page has the outcomes of
Kubernetes' tests: those of `e2e.test` whose names begin with `[sig-network]` and concern a service proxy, run with
kube-proxy first and then with kube-nftlb, installed by its chart in the kube-proxy profile (`defaults.mode=dnat`,
`agent.proxyMode=true`).

<!-- not run: it takes hours -->
```sh
make conformance-upstream
```

It builds `e2e.test`, the programs of its images and CoreDNS from their Go modules, and starts six nodes in three zones
on one machine: each has a kubelet, containerd and runc. Services of type LoadBalancer get addresses from a small
provider, which routes them from the client outside the cluster to a node that passes the health check. A test that
fails is run again alone; if it passes then, it has passed.
"""

_Table = Mapping[str, Mapping[str, Outcome]]


def page(runs: Sequence[Run]) -> str:
    """Return the page of some runs, which are in the order of the subjects."""
    table = {run.subject: {each.test: each for each in run.outcomes} for run in runs}
    parts = [_INTRODUCTION.strip(), _runs(runs), _counts(table), _failures(table), _skipped(table), _left_out(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def read(folder: Path) -> list[Run]:
    """Return all runs that are kept in a folder."""
    found = (records.read(folder, subject.name) for subject in SUBJECTS)
    return [run for run in found if run is not None]


def defects(runs: Iterable[Run]) -> list[str]:
    """Return the tests that fail with kube-nftlb and did not with kube-proxy, perhaps as they were not run with it."""
    table = {run.subject: {each.test: each.outcome for each in run.outcomes} for run in runs}
    reference = table.pop(REFERENCE.name, {})
    return sorted(
        {
            test
            for outcomes in table.values()
            for test, outcome in outcomes.items()
            if outcome == FAILED and reference.get(test) != FAILED
        }
    )


def write(folder: Path, docs: Path) -> Path:
    """Make the page of the records in a folder. Return its path."""
    path = docs / PAGE
    path.write_text(page(read(folder)))
    return path


def _runs(runs: Sequence[Run]) -> str:
    rows = (
        f"| {_title(run.subject)} | {run.kubernetes} | {each['began']} | {each['commit']} "
        f"| {each['kernel']}, {each['cores']} | {each['load_average'][0]:.0f} | {each['tests']} | {each['minutes']} |"
        for run in runs
        for each in run.runs
    )
    head = "| Service proxy | Kubernetes | Began | Commit | Kernel, cores | Load | Tests | Minutes |"
    note = (
        "Load is the load average of the machine when a run began; a load above the number of cores means that other "
        "work ran too. If several runs include a test, the last one counts."
    )
    if any(each["commit"].endswith("-dirty") for run in runs for each in run.runs):
        note += " A commit with `-dirty` had changes that were not committed."
    return "\n".join(["## Runs", "", note, "", head, "|---|---|---|---|---|---|---|---|", *rows])


def _counts(table: _Table) -> str:
    names = list(table)
    lines = [
        "## Outcomes",
        "",
        "Passed, failed and skipped tests. Tests skip themselves, for the reasons below.",
        "",
        f"| Tests | {' | '.join(_title(name) for name in names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    for group in groups.GROUPS:
        cells = [_cell([each for each in table[name].values() if groups.of(each.test) == group]) for name in names]
        lines.append(f"| {group.title} | {' | '.join(cells)} |")
    lines.append(f"| **All** | {' | '.join(_cell(list(table[name].values())) for name in names)} |")
    return "\n".join(lines)


def _cell(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "not run"
    numbers = [sum(each.outcome == outcome for each in outcomes) for outcome in (PASSED, FAILED, SKIPPED)]
    words = [f"{number} {word}" for number, word in zip(numbers, (PASSED, FAILED, SKIPPED), strict=True) if number]
    if again := sum(each.outcome == PASSED and each.tries > 1 for each in outcomes):
        words[0] += f" ({again} at the second try)"
    return ", ".join(words)


def _failures(table: _Table) -> str:
    reference = table.get(REFERENCE.name, {})
    failed = {test for outcomes in table.values() for test, each in outcomes.items() if each.outcome == FAILED}
    if not failed:
        return "## Failed tests\n\nNone."
    chapters = (
        ("Tests that pass with kube-proxy", {PASSED}),
        ("Tests that fail with kube-proxy too", {FAILED}),
        ("Tests that have not been run with kube-proxy", {SKIPPED, None}),
    )
    lines = ["## Failed tests"]
    for title, expected in chapters:
        tests = sorted(test for test in failed if _outcome(reference, test) in expected)
        if tests:
            lines += ["", f"### {title}", "", "| Test | Fails with | Reason |", "|---|---|---|"]
            lines += [_failure(test, table) for test in tests]
    return "\n".join(lines)


def _outcome(outcomes: Mapping[str, Outcome], test: str) -> str | None:
    return outcomes[test].outcome if test in outcomes else None


def _failure(test: str, table: _Table) -> str:
    failing = [name for name in table if test in table[name] and table[name][test].outcome == FAILED]
    message = table[failing[0]][test].reason
    reason = causes.of(test) or f"not examined; it says: {message}"
    return f"| {_text(test)} | {', '.join(_title(name) for name in failing)} | {_text(reason)} |"


def _skipped(table: _Table) -> str:
    reasons: dict[str, set[str]] = {}
    for outcomes in table.values():
        for test, each in outcomes.items():
            if each.outcome == SKIPPED:
                reasons.setdefault(each.reason, set()).add(test)
    if not reasons:
        return ""
    rows = (f"| {_text(why)} | {'<br>'.join(map(_text, sorted(tests)))} |" for why, tests in sorted(reasons.items()))
    return "\n".join(["## Skipped tests", "", "| They say | Tests |", "|---|---|", *rows])


def _left_out(table: _Table) -> str:
    lines = ["## What is not run", ""]
    lines += [f"- {words};" for _, words in groups.LEFT_OUT]
    lines.append("- other groups of `[sig-network]`, such as NetworkPolicy: they do not concern a service proxy.")
    if missing := list(_missing(table)):
        lines += ["", "Not run yet:", "", *missing]
    return "\n".join(lines)


def _missing(table: _Table) -> Iterator[str]:
    known = {test for outcomes in table.values() for test in outcomes}
    for subject in SUBJECTS:
        run, lacking = table.get(subject.name, {}), []
        for group in groups.GROUPS:
            tests = {test for test in known if groups.of(test) == group}
            if not tests & set(run):
                lacking.append(group.title)
            elif not_run := tests - set(run):
                lacking.append(f"{len(not_run)} of {group.title}")
        if lacking:
            yield f"- {subject.title}: {', '.join(lacking)}"


def _title(name: str) -> str:
    return next(subject.title for subject in SUBJECTS if subject.name == name)


def _text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").removeprefix("[sig-network] ")


def main() -> None:
    """Make the page."""
    progress.make("tests.upstream.report", __doc__, write)


if __name__ == "__main__":
    main()
