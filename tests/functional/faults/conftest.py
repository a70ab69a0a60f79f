"""The Service under load; and a lab of one node whose state has a folder of its own, for faults of disk and kernel."""

from collections.abc import Iterator

import pytest

from tests import engine
from tests.functional.cluster import Cluster, running
from tests.functional.faults.load import Web

STATE = "/run/state"
"""In the lab's own /run, a tmpfs."""


@pytest.fixture
def web(cluster: Cluster, own_namespace: str) -> Web:
    return Web.start(cluster, own_namespace)


@pytest.fixture(scope="package")
def small() -> Iterator[Cluster]:
    """Its folder for the state is missing at first: programs that cannot write it go on."""
    on_node = {"KUBE_NFTLB_STATE_DIR": STATE}
    settings = {"operator": engine.OPERATOR, "agent": on_node, "nftlb": on_node}
    with running("faults", nodes=1, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def small_web(small: Cluster) -> Iterator[Web]:
    with small.namespace() as namespace:
        yield Web.start(small, namespace)
