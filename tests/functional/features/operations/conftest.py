"""The lab of the tests in this folder: what an administrator may switch on is on, two operators elect a leader.

Its nftlb ends over a farm of the Service ``deadly``, and nft refuses of it what a test asks for. The tests restart and
break what it has, one after the other.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import build
from lab.programs import cache_folder
from tests import engine
from tests.functional.cluster import running
from tests.functional.conftest import Used
from tests.functional.features.operations import deadly_nftlb, refusing_nftlb

OPERATORS = ("operator", "operator-2")
_OPERATOR = {
    **engine.OPERATOR,
    "KUBE_NFTLB_READINESS_GATE": "on",
    "KUBE_NFTLB_SERVICE_STATUS": "on",
    "KUBE_NFTLB_NOT_PROGRAMMED_SECONDS": "5",
}


@pytest.fixture(scope="package")
def _programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bin")


@pytest.fixture(scope="package")
def refused(_programs: Path) -> Path:
    """The file with the text that nft refuses of nftlb."""
    return _programs / "refused"


@pytest.fixture(scope="package")
def _lab(_programs: Path, refused: Path) -> Iterator[Used]:
    refusing = refusing_nftlb.program(_programs / "refusing", str(build.nftlb(cache_folder(), print)))
    folder = deadly_nftlb.folder(_programs / "deadly", str(refusing))
    nftlb = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "KUBE_NFTLB_TEST_DEADLY": deadly_nftlb.FARM,
        "KUBE_NFTLB_TEST_REFUSED": str(refused),
    }
    settings = {**dict.fromkeys(OPERATORS, _OPERATOR), "nftlb": nftlb}
    with running("operations", nodes=2, operators=len(OPERATORS), settings=settings) as cluster:
        yield Used(cluster, [])
