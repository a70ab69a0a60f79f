"""The distribution of tests over processes, the labs that these share, and how long all that took."""

import functools
import json
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import durations, labs
from tests.durations import Durations

# The same examples in each run, however busy the machine is: no harmless change fails by chance.
settings.load_profile("ci")

_TESTS = Path(__file__).parent
_DURATIONS = _TESTS.parent / ".ci/durations.json"
_FAILURES = "failures"
"""The key of pytest's cache for what the tests that failed in the last run said."""
_ORDER = ("e2e", "functional", "image", "docs", "contract", "chart", "unit")
"""Those that take longest first: short ones fill the gaps at the end."""
_SHARING = ("functional", "functional/conformance", "functional/features")
"""The folders whose tests share a lab and disturb nobody: any process may run any of them."""
_DISTURBING = {
    "functional/disturbing": ("disturbed",),
    "functional/faults": ("disturbed",),
    "functional/features/disturbing": ("disturbed by features", "disturbed by more features"),
    "functional/features/announcing": ("announcing",),
    "functional/features/announcing_bgp": ("bgp",),
    "functional/features/gateway": ("gateway",),
    "functional/features/operations": ("operations",),
    "functional/conformance/disturbing": ("conformance disturbed",),
}
"""The labs of tests that disturb each other, among which a folder's files take turns; a process runs all of a lab's."""


@functools.cache
def _has_fixtures_of_its_own(file: Path) -> bool:
    return any(f'scope="{scope}"' in file.read_text() for scope in ("module", "package"))


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no type hints
    """Tests that share a fixture of their module, or disturb others, stay together; all others go one by one."""

    def _split_scope(self, nodeid: str) -> str:
        file = _TESTS.parent / nodeid.partition("::")[0]
        folder = file.parent.relative_to(_TESTS).as_posix()
        if labs_of_folder := _DISTURBING.get(folder):
            return labs_of_folder[sorted(file.parent.glob("test_*.py")).index(file) % len(labs_of_folder)]
        if folder.partition("/")[0] == "unit" or file.name == "test_pages.py":
            return nodeid
        return nodeid if folder in _SHARING and not _has_fixtures_of_its_own(file) else str(file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    """Return the scheduler, which keeps the order of the tests."""
    config.option.loadscopereorder = False
    return _Scheduling(config, log)


def _recorded() -> dict[str, float]:
    """The seconds that each test took in the last run that noted it."""
    if not _DURATIONS.exists():
        return {}
    return {nodeid: sum(phases.values()) for nodeid, phases in json.loads(_DURATIONS.read_text())["tests"].items()}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by ``_ORDER``, and where any process may run them, those that took longest first."""
    took = _recorded()

    def key(item: pytest.Item) -> tuple[int, bool, float]:
        folder = item.path.parent.relative_to(_TESTS).as_posix()
        shares = folder in _SHARING and not _has_fixtures_of_its_own(item.path)
        return _ORDER.index(folder.partition("/")[0]), shares, -took.get(item.nodeid, 0) if shares else 0

    items.sort(key=key)


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
        self._starts = labs.starts()
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None, "pytest's own"
        try:
            for what in leftovers.found(labs.running()):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
                reporter.write_line(f"\nFAILED at the end: {what}")
        finally:
            labs.remove()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._durations.tests:
            terminalreporter.section("durations")
            for line in self._durations.table(durations.budgets(), self._starts):
                terminalreporter.line(line)
            _DURATIONS.write_text(json.dumps(_merged(self._durations.record(self._starts)), indent=0) + "\n")


def _merged(record: dict[str, object]) -> dict[str, object]:
    """The record of this run, with what an earlier run noted of tests that did not run now."""
    earlier = json.loads(_DURATIONS.read_text()) if _DURATIONS.exists() else {"tests": {}}
    return {**record, "tests": {**earlier["tests"], **record["tests"]}}  # type: ignore[dict-item]  # as JSON gives it


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and have the first process of a run watch it."""
    for line in (
        "engines: it runs with each engine, as they may differ in it",
        "long: it proves depth, or takes longer than a test's budget; `make test` leaves it to `make test-rest`",
        "feature: it is in tests/functional/features, which `make test` leaves to `make test-rest`",
        "alone: it keeps the whole machine busy, and runs after the others",
    ):
        config.addinivalue_line("markers", line)
    labs.run_id()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Watch(), "watch")
