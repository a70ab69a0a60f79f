"""The lab of the tests in this folder: three nodes that announce addresses on the client's own segment.

The tests break nodes one after the other, and mend them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import engine
from tests.functional.cluster import running
from tests.functional.conftest import Used
from tests.functional.segment import POOL

LEASES = Path(__file__).parents[4] / "charts/kube-nftlb/admission-addresses/address-leases.yaml"
_NUMBERS = iter(range(1, 255))
_ON = {"KUBE_NFTLB_ADDRESSES": "on"}


@pytest.fixture(scope="package")
def _lab() -> Iterator[Used]:
    settings = {"operator": {**engine.OPERATOR, **_ON}, "agent": _ON}
    with running("announcing", nodes=3, settings=settings) as cluster:
        # The lab has the rights of the chart, but not its admission policies.
        cluster.kubectl("apply", "-f", "-", stdin=LEASES.read_text())
        cluster.apply(POOL)
        yield Used(cluster, [])


@pytest.fixture
def pair() -> tuple[str, str]:
    """An IPv4 and an IPv6 address that no Service of an earlier test has, which may be about to go."""
    number = next(_NUMBERS)
    return f"172.31.2.{number}", f"fd00:31::2:{number}"
