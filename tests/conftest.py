"""The distribution of tests over processes, the labs that these share, and how long all that took."""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import distribution, durations, labs, slow
from tests.durations import Durations

# The same examples in each run, however busy the machine is: no harmless change fails by chance.
settings.load_profile("ci")

_DURATIONS = "KUBE_NFTLB_TEST_DURATIONS"
"""The variable that names the file for how long all tests took: .ci/test has it for whole runs."""
_FAILURES = "failures"
"""The key of pytest's cache for what the tests that failed in the last run said."""
_LEFTOVERS = "leftovers"
"""The key of pytest's cache for what tests left in labs in the last run."""


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no type hints
    """Tests that share a fixture of their module, or disturb others, stay together; all others go one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return distribution.together(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    """Return the scheduler, which keeps the order of the tests."""
    config.option.loadscopereorder = False
    return _Scheduling(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what `make test-rest` alone runs: what any service proxy must do is elsewhere."""
    if distribution.is_feature(item.path):
        item.add_marker(pytest.mark.feature)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests: those that take longest first."""
    key = distribution.order([item.nodeid for item in items], slow.seconds())
    items.sort(key=lambda item: key(item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """End what tests shared that stay together, after the last of them."""
    try:
        return (yield)
    finally:
        if nextitem is None or distribution.together(nextitem.nodeid) != distribution.together(item.nodeid):
            labs.end_group(item.nodeid)


class _Watch:
    """Notes how long tests take, and ends the labs that they shared: once in a run, in its first process."""

    def __init__(self) -> None:
        self._durations = Durations()
        self._starts: list[tuple[str, float]] = []
        self._failures: dict[str, str] = {}

    def pytest_sessionstart(self) -> None:
        labs.remove_abandoned()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._durations.add(report.nodeid, report.when, report.duration, long="long" in report.keywords)
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self._failures.setdefault(report.nodeid, crash.message if crash is not None else report.longreprtext)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        from tests.functional import leftovers

        assert session.config.cache is not None, "a plugin of pytest's own"
        session.config.cache.set(_FAILURES, self._failures)
        session.config.cache.set(_LEFTOVERS, ["the look at what tests left has not come to its end"])
        self._starts = labs.starts()
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None, "pytest's own"
        try:
            found = [*labs.leftovers(), *leftovers.found(labs.running())]
            session.config.cache.set(_LEFTOVERS, found)
            for what in found:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
                reporter.write_line(f"\nFAILED at the end: {what}")
        finally:
            labs.remove()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._durations.tests:
            terminalreporter.section("durations")
            for line in self._durations.table(durations.budgets(), self._starts):
                terminalreporter.line(line)
            if file := os.environ.get(_DURATIONS):
                _add(self._durations.record(self._starts), Path(file))


def _add(record: dict[str, Any], file: Path) -> None:
    """Add what took how long to what earlier parts of this run noted."""
    earlier = json.loads(file.read_text()) if file.exists() else {"tests": {}, "starts": []}
    tests, starts = {**earlier["tests"], **record["tests"]}, [*earlier["starts"], *record["starts"]]
    file.write_text(json.dumps({"tests": tests, "starts": starts}, indent=0) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and have the first process of a run watch it."""
    for line in (
        "engines: it runs with each engine, as they may differ in it",
        "long: it proves depth, or takes longer than a test's budget; `make test` leaves it to `make test-rest`",
        "feature: it is in tests/functional/features or tests/e2e, which `make test` leaves to `make test-rest`",
        "alone: it keeps the whole machine busy, and runs after the others",
    ):
        config.addinivalue_line("markers", line)
    labs.run_id()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Watch(), "watch")
