"""A cluster of two nodes with real containers, in which each test installs the chart if it is missing."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube_nftlb import errors
from lab import components, programs
from lab.containers import probe
from tests import labs
from tests.e2e.real import RealCluster
from tests.image import build

NAME = f"e2e-{os.getpid()}"


@pytest.fixture(scope="package")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Nodes that have the image, and no service proxy."""
    if os.geteuid() != 0:
        pytest.skip("needs root: containers")
    found = programs.ensure("none", _ignore, components.CONTAINERS)
    folder = tmp_path_factory.mktemp("image")
    try:
        probe.check(found["pause"], found["runc"], folder)
    except errors.LabError as error:
        pytest.skip(str(error))
    image = build.build()
    image.save(folder / "image.tar")
    lab = labs.up(NAME, nodes=2, zones=["a", "b"], proxy="none", runtime=components.CONTAINERS)
    try:
        lab.load_image(folder / "image.tar")
        (folder / "image.tar").unlink()
        with contextlib.closing(RealCluster(lab, programs.helm(_ignore), image.name)) as cluster:
            yield cluster
    finally:
        lab.down()
        labs.note_leftovers(f"the lab left the control group {each} behind" for each in _leftovers())


@pytest.fixture
def cluster(bare_cluster: RealCluster) -> RealCluster:
    """With kube-nftlb."""
    if not bare_cluster.is_installed():
        bare_cluster.install()
    return bare_cluster


@pytest.fixture
def namespace(cluster: RealCluster) -> Iterator[str]:
    with cluster.namespace() as name:
        yield name


def _leftovers() -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"**/*{NAME}.*"))


def _ignore(_: str) -> None:
    pass
