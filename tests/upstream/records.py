"""The outcomes of the tests, as kept: one file per service proxy. Reading and writing of files, and computation."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_OUTCOMES = {"passed": PASSED, "skipped": SKIPPED}
_REASON_LENGTH = 240
_UNIQUE = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|0x[0-9a-f]{6,}|\b\w+-\d{3,5}\b")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test."""

    test: str
    outcome: str
    seconds: float
    reason: str = ""
    """The first line of the failure, or why it was skipped."""
    tries: int = 1
    """Number of runs until it passed."""


@dataclass(frozen=True)
class Run:
    """The results of the tests of one service proxy."""

    subject: str
    kubernetes: str
    runs: list[dict[str, Any]]
    """When, from which commit, on which machine, how long."""
    outcomes: list[Outcome]


def outcomes(report: Iterable[Mapping[str, Any]]) -> list[Outcome]:
    """Return the outcomes in a report of ginkgo, as JSON, without the tests that were not selected."""
    found = []
    for suite in report:
        for spec in suite.get("SpecReports") or []:
            if spec["LeafNodeType"] != "It" or (spec["State"] == "skipped" and not spec.get("Failure")):
                continue
            if spec["State"] in ("pending", "interrupted"):
                continue
            name = " ".join([*(spec.get("ContainerHierarchyTexts") or []), spec["LeafNodeText"]])
            outcome = _OUTCOMES.get(spec["State"], FAILED)
            failure = (spec.get("Failure") or {}).get("Message", "")
            found.append(Outcome(name, outcome, round(spec["RunTime"] / 1e9, 1), _reason(failure)))
    return sorted(found, key=lambda each: each.test)


def retried(first: Run, again: Run) -> Run:
    """Return a run whose failed tests were run again: what passes then has passed, at the second try."""
    second = {each.test: replace(each, tries=2) for each in again.outcomes}
    return replace(first, outcomes=[second.get(each.test, each) for each in first.outcomes])


def merged(old: Run | None, new: Run) -> Run:
    """Return the outcomes of both, the new one of a test that was run again."""
    if old is None or old.kubernetes != new.kubernetes:
        return new
    by_name = {each.test: each for each in (*old.outcomes, *new.outcomes)}
    return Run(new.subject, new.kubernetes, [*old.runs, *new.runs], [by_name[name] for name in sorted(by_name)])


def read(folder: Path, subject: str) -> Run | None:
    """Return what is kept of a service proxy, or None."""
    path = folder / f"{subject}.json"
    if not path.exists():
        return None
    kept = json.loads(path.read_text())
    return Run(**{**kept, "outcomes": [Outcome(**each) for each in kept["outcomes"]]})


def write(folder: Path, run: Run) -> None:
    """Keep a run, with one line for each test."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(asdict(each))}" for each in run.outcomes)
    head = json.dumps({"subject": run.subject, "kubernetes": run.kubernetes, "runs": run.runs}, indent=1)
    (folder / f"{run.subject}.json").write_text(f'{head[:-2]},\n "outcomes": [\n{lines}\n ]\n}}\n')


def _reason(message: str) -> str:
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return _UNIQUE.sub("...", first)[:_REASON_LENGTH]
