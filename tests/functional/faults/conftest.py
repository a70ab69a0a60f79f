"""The Service under load; and a lab of one node whose state has a folder of its own, for faults of disk and kernel."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from lab.lab import Lab
from tests import engine
from tests.functional.cluster import Cluster
from tests.functional.faults.load import Web

STATE = "/run/state"
"""In the lab's own /run, a tmpfs."""


@pytest.fixture
def web(cluster: Cluster, namespace: str) -> Web:
    return Web.start(cluster, namespace)


@pytest.fixture(scope="package")
def small() -> Iterator[Cluster]:
    """Its folder for the state is missing at first: programs that cannot write it go on."""
    on_node = {"KUBE_NFTLB_STATE_DIR": STATE}
    settings = {"operator": engine.OPERATOR, "agent": on_node, "nftlb": on_node}
    lab = Lab.up(f"faults-{os.getpid()}", nodes=1, settings=settings)
    try:
        with contextlib.closing(Cluster(lab)) as cluster:
            yield cluster
    finally:
        lab.down()


@pytest.fixture
def small_web(small: Cluster) -> Iterator[Web]:
    with small.namespace() as namespace:
        yield Web.start(small, namespace)
