"""The lab of the tests in this folder: two nodes that serve Gateways, and announce their addresses to the client."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import engine
from tests.builders.gateways import GATEWAY_CLASS
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.conftest import Used
from tests.functional.segment import POOL

_CHART = Path(__file__).parents[4] / "charts/kube-nftlb"
_ADMISSION = ("admission-addresses/address-leases.yaml", "admission/farm-ownership.yaml")
_ON = {"KUBE_NFTLB_ADDRESSES": "on"}
OPERATOR = {
    **engine.OPERATOR,
    **engine.GATEWAYS,
    **_ON,
    "KUBE_NFTLB_GATEWAY": "on",
    "KUBE_NFTLB_READINESS_GATE": "on",
}
_NUMBERS = itertools.count(100)
_KINDS = ("tcproute", "udproute", "listenerset", "gateway", "referencegrant")


@pytest.fixture(scope="package")
def _lab() -> Iterator[Used]:
    settings = {"operator": OPERATOR, "agent": _ON}
    with running("gateway", nodes=2, settings=settings, gateway_api=True) as cluster:
        # The lab has the rights of the chart, but not its admission policies.
        for policy in _ADMISSION:
            cluster.kubectl("apply", "-f", "-", stdin=(_CHART / policy).read_text())
        cluster.apply(POOL, GATEWAY_CLASS)
        cluster.wait("gatewayclass", "kube-nftlb", "Accepted")
        yield Used(cluster, [])


@pytest.fixture
def namespace(cluster: Cluster, namespace: str) -> Iterator[str]:
    """The stage's namespace, which is without Gateways and routes afterwards."""
    yield namespace
    forget(cluster, namespace)


@pytest.fixture
def ip() -> str:
    """An address of the pool that no Gateway of an earlier test has, which may be about to go."""
    return f"172.31.0.{next(_NUMBERS)}"


def forget(cluster: Cluster, namespace: str) -> None:
    """Delete what is of the Gateway API, and wait until no farm is left of it."""
    for kind in _KINDS:
        cluster.api.delete_all(kind, namespace)
    selector = "kube-nftlb.io/gateway"
    eventually(
        lambda: not cluster.get("farm", namespace=namespace, labelSelector=selector)["items"], "no route has a farm", 60
    )
