"""How long the tests of a run took, by suite, beside what ``budgets.toml`` allows. No I/O but ``budgets``."""

import tomllib
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "budgets.toml"


@dataclass(frozen=True)
class Budgets:
    """Seconds of all tests of a suite added up, by suite; and of one test, unless it has the marker ``long``."""

    suites: Mapping[str, float]
    test: float
    """Without its setup, which may start a lab or wait for one."""


def budgets() -> Budgets:
    """Return what the repository allows."""
    found = tomllib.loads(_FILE.read_text())
    return Budgets(found["suites"], found["test"])


def suite(nodeid: str) -> str:
    """Return the suite of a test: its folder below tests; of those but functional, what is below them is one suite."""
    folders = nodeid.partition("::")[0].split("/")[1:-1]
    return "/".join(folders if folders[0] == "functional" else folders[:1])


@dataclass
class Durations:
    """Seconds by test and phase (setup, call, teardown)."""

    tests: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    long: set[str] = field(default_factory=set)
    """The tests that may take longer than a test's budget."""

    def add(self, nodeid: str, phase: str, seconds: float, *, long: bool) -> None:
        """Note a phase of a test; of one that runs twice, the sum."""
        phases = self.tests[nodeid]
        phases[phase] = round(phases.get(phase, 0) + seconds, 3)
        if long:
            self.long.add(nodeid)

    def by_suite(self, known: Container[str] = ()) -> dict[str, tuple[int, float]]:
        """Return the number of tests and their seconds, by suite; those of long tests apart if they are known so."""
        sums: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
        for nodeid, phases in self.tests.items():
            name = suite(nodeid)
            if nodeid in self.long and (apart := f"{name}, long") in known:
                name = apart
            number, seconds = sums[name]
            sums[name] = (number + 1, seconds + sum(phases.values()))
        return dict(sums)

    def table(self, allowed: Budgets, starts: list[tuple[str, float]]) -> list[str]:
        """Return the lines for the end of a run: suites, starts of labs, and what was over its budget."""
        lines = [f"{'suite':<34}{'tests':>7}{'seconds':>10}{'budget':>8}"]
        for name, (number, seconds) in sorted(self.by_suite(allowed.suites).items(), key=lambda each: -each[1][1]):
            budget = allowed.suites.get(name)
            over = "  OVER ITS BUDGET" if budget is not None and seconds > budget else ""
            lines.append(f"{name:<34}{number:>7}{seconds:>10.1f}{budget or '-':>8}{over}")
        if starts:
            lines.append(f"{'starts of labs':<34}{len(starts):>7}{sum(took for _, took in starts):>10.1f}")
        for nodeid, phases in sorted(self.tests.items(), key=lambda each: -sum(each[1].values())):
            took = sum(seconds for phase, seconds in phases.items() if phase != "setup")
            if took > allowed.test and nodeid not in self.long:
                lines.append(f"over {allowed.test:g} s: {nodeid} {took:.1f}")
        return lines

    def record(self, starts: list[tuple[str, float]]) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {"tests": dict(sorted(self.tests.items())), "starts": starts}
