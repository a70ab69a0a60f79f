"""The lab of the tests in this folder: what an administrator may switch on is on, two operators elect a leader.

Its nftlb ends over a farm of the Service ``deadly``. The tests restart and break what it has, one after the other.
"""

import os
from collections.abc import Iterator

import pytest

from lab import build
from lab.programs import cache_folder
from tests import engine
from tests.functional.cluster import running
from tests.functional.conftest import Used
from tests.functional.features.operations import deadly_nftlb

OPERATORS = ("operator", "operator-2")
SILENT_S = 75
"""Longer than the minute after which agents report if nothing changes, and what a busy machine adds."""
_OPERATOR = {
    **engine.OPERATOR,
    "KUBE_NFTLB_READINESS_GATE": "on",
    "KUBE_NFTLB_SERVICE_STATUS": "on",
    "KUBE_NFTLB_NOT_PROGRAMMED_SECONDS": "5",
    "KUBE_NFTLB_AGENT_SILENT_SECONDS": str(SILENT_S),
}


@pytest.fixture(scope="package")
def _lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Used]:
    folder = deadly_nftlb.folder(tmp_path_factory.mktemp("bin") / "deadly", str(build.nftlb(cache_folder(), print)))
    nftlb = {"PATH": f"{folder}:{os.environ['PATH']}", "KUBE_NFTLB_TEST_DEADLY": deadly_nftlb.FARM}
    settings = {**dict.fromkeys(OPERATORS, _OPERATOR), "nftlb": nftlb}
    with running("operations", nodes=2, operators=len(OPERATORS), settings=settings) as cluster:
        yield Used(cluster, [])
