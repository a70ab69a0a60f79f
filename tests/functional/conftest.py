"""A lab for the session, and for each test a namespace with a client pod on the first node."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from kube_nftlb.lab.lab import Lab
from tests.functional.cluster import Cluster, client_pod

NAME = f"functional-{os.getpid()}"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes, in two zones, with kube-nftlb."""
    lab = Lab.up(NAME, nodes=2, zones=["a", "b"])
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
