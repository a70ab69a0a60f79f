"""A lab for the session, with the engine of ``tests.engine``, and for each test a namespace with a client pod.

If a test fails, pytest shows what the labs' programs logged during it.
"""

import contextlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from lab.lab import Lab
from lab.state import LabFiles
from tests import engine
from tests.builders.manifests import client_pod
from tests.functional.cluster import Cluster

NAME = f"functional-{os.getpid()}"
_SIZES = pytest.StashKey[dict[Path, int]]()
_LINES, _WIDTH = 40, 300
FIRST = "nftlb"
"""The engine with which all tests run."""
OPERATOR = {**engine.OPERATOR, "KUBE_NFTLB_ANNOTATION_MARKS": "0x10,0xa000", "KUBE_NFTLB_ANNOTATION_QUEUES": "0-3"}
"""The operator's settings: annotations may ask for these."""
AGENT = {"KUBE_NFTLB_METRICS_PER_FARM": "on"}
"""The agents' settings: Prometheus gets all series that there are."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engine(name, reason): it is about this engine alone")
    config.addinivalue_line("markers", "alone: it keeps the whole machine busy; `make test` runs it after the others")
    config.addinivalue_line("markers", f"once(about): the engine makes no difference; it runs with {FIRST} alone")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("engine"):
            if mark.args[0] != engine.ENGINE:
                item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]} only: {mark.args[1]}"))
        for mark in item.iter_markers("once"):
            if engine.ENGINE != FIRST:
                item.add_marker(
                    pytest.mark.skip(reason=f"run with {FIRST}, which makes no difference to {mark.args[0]}")
                )


def _logs() -> Iterator[Path]:
    """The logs of the labs that this process has started, which end in its id."""
    return LabFiles.of(NAME).root.parent.glob(f"*-{os.getpid()}/logs/*.log")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[_SIZES] = {log: log.stat().st_size for log in _logs()}
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and report.failed:
        for log in sorted(_logs()):
            with log.open(errors="replace") as opened:
                opened.seek(item.stash[_SIZES].get(log, 0))
                if lines := [line[:_WIDTH] for line in opened.read().splitlines()[-_LINES:]]:
                    report.sections.append((f"the end of {log.stem} of {log.parent.parent.name}", "\n".join(lines)))
    return report


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes, in two zones, with kube-nftlb."""
    lab = Lab.up(NAME, nodes=2, zones=["a", "b"], settings={"operator": OPERATOR, "agent": AGENT})
    try:
        with contextlib.closing(Cluster(lab)) as cluster:
            yield cluster
    finally:
        lab.down()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace() as name:
        yield name


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> str:
    """A pod on the first node from which connections are made."""
    cluster.apply(client_pod("client", namespace, cluster.nodes[0]))
    cluster.wait("pod", "client", "Ready", namespace)
    return f"{namespace}/client"
