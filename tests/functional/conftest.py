"""Labs that all processes share, and for each test a namespace with a client pod.

The tests of the folders ``disturbing`` and ``faults`` restart and break what others use: a process that runs some has
a lab for them.
If a test fails, pytest shows what the labs' programs logged during it.
"""

import contextlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import engine, labs
from tests.functional import leftovers, stage
from tests.functional.cluster import Cluster
from tests.functional.stage import Stage

_SIZES = pytest.StashKey[dict[Path, int]]()
_FAILED = pytest.StashKey[bool]()
_LINES, _WIDTH = 40, 300
OPERATOR = {**engine.OPERATOR, "KUBE_NFTLB_ANNOTATION_MARKS": "0x10,0xa000", "KUBE_NFTLB_ANNOTATION_QUEUES": "0-3"}
"""The operator's settings: annotations may ask for these."""
LAB: dict[str, Any] = {"nodes": 2, "zones": ["a", "b"], "settings": {"operator": OPERATOR}}
_COUNTING: dict[str, Any] = {
    **LAB,
    "settings": {"operator": OPERATOR, "agent": {"KUBE_NFTLB_METRICS_PER_FARM": "on"}},
}
"""Prometheus gets all series that there are, for which the agents keep counting connections."""
_DISTURBING = {
    "disturbing": ("disturbed", LAB),
    "faults": ("disturbed", LAB),
    "features/disturbing": ("features-disturbed", _COUNTING),
}
"""The labs of the tests of a folder, of which each process has its own: a name, and options."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if any(metafunc.definition.iter_markers("engines")):
        metafunc.parametrize("_engine", engine.BOTH, indirect=True)


@pytest.fixture(autouse=True)
def _engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """The manifests of the test ask for the engine with which it runs."""
    engine.use(getattr(request, "param", engine.DEFAULT))
    yield
    engine.use(engine.DEFAULT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[_SIZES] = sizes = {}
    for log in labs.logs():
        with contextlib.suppress(FileNotFoundError):  # another process has ended its lab
            sizes[log] = log.stat().st_size
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = report.failed or item.stash.get(_FAILED, False)
    if call.when == "call" and report.failed:
        for log in sorted(labs.logs()):
            with contextlib.suppress(FileNotFoundError), log.open(errors="replace") as opened:
                opened.seek(item.stash[_SIZES].get(log, 0))
                if lines := [line[:_WIDTH] for line in opened.read().splitlines()[-_LINES:]]:
                    report.sections.append((f"the end of {log.stem} of {log.parent.parent.name}", "\n".join(lines)))
    return report


class Used(NamedTuple):
    """A lab that this process uses, and its stage there."""

    cluster: Cluster
    stage: list[Stage]


@pytest.fixture(scope="session")
def _used() -> Iterator[dict[str, Used]]:
    with contextlib.ExitStack() as stack:
        used: dict[str, Used] = {}
        yield used
        for each in used.values():
            stack.enter_context(contextlib.closing(each.cluster))


@pytest.fixture(scope="module")
def _lab(request: pytest.FixtureRequest, _used: dict[str, Used]) -> Used:
    folder = request.path.parent.relative_to(Path(__file__).parent).as_posix()
    kind, options = _DISTURBING.get(folder, ("functional", LAB))
    if folder in _DISTURBING:
        # A process runs all that it has of a group of disturbing tests, which are in no order with those of another.
        kind += f"-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    if kind not in _used:
        _used[kind] = Used(Cluster(labs.shared(kind, **options)), [])
        if folder in _DISTURBING:

            def forget() -> None:
                _used.pop(kind).cluster.close()

            leftovers.end_with_group(request.node.nodeid, kind, _used[kind].cluster.lab, forget)
    return _used[kind]


@pytest.fixture(scope="module")
def module_cluster(_lab: Used) -> Cluster:
    """The same for the fixtures of a module; there is no stage."""
    return _lab.cluster


@pytest.fixture
def cluster(_lab: Used) -> Cluster:
    """Two nodes, in two zones, with kube-nftlb."""
    _lab.cluster.stage = None
    return _lab.cluster


@pytest.fixture
def namespace(request: pytest.FixtureRequest, cluster: Cluster, _lab: Used) -> Iterator[str]:
    """The stage's namespace; nothing is in it but the stage's pods."""
    stages = _lab.stage
    if not stages:
        stages.append(Stage(cluster))
    cluster.stage = stages[0]
    yield stages[0].namespace
    # What a failed test leaves is not known: the next one gets a new stage.
    if request.node.stash.get(_FAILED, False) or not stages[0].is_tidy():
        cluster.delete("namespace", stages.pop().namespace)


@pytest.fixture
def own_namespace(cluster: Cluster) -> Iterator[str]:
    """An empty namespace for a test of Events, budgets or hostile objects."""
    with cluster.namespace() as name:
        yield name


@pytest.fixture
def client(namespace: str) -> str:
    """A pod on the first node from which connections are made."""
    return f"{namespace}/{stage.CLIENT}"


@pytest.fixture
def far(namespace: str) -> str:
    """A pod on the second node from which connections are made."""
    return f"{namespace}/{stage.FAR}"
