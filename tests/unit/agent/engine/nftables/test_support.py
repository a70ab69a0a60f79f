"""Farms that the engine nftables does not serve."""

from typing import Any

import pytest

from kube_nftlb.agent.engine.nftables.support import unsupported
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from tests.builders import farm, raw_backend


def backends(number: int, weight: int) -> list[dict[str, Any]]:
    return [raw_backend(f"b{each}", f"10.244.{each // 250}.{each % 250 + 1}", weight=weight) for each in range(number)]


ONE = raw_backend("one", "10.245.0.1", weight=1)


@pytest.mark.parametrize(
    ("spec", "served"),
    [
        pytest.param({"backends": backends(3000, 100)}, True, id="equal weights count once"),
        pytest.param({"backends": [*backends(3000, 100), ONE]}, False, id="an exact share of each takes too many"),
        pytest.param({"backends": [*backends(3000, 100), {**ONE, "state": "drain"}]}, True, id="one drains"),
        pytest.param({"backends": [*backends(3000, 100), ONE], "trafficPolicy": "Local"}, False, id="of other nodes"),
    ],
)
def test_weights_count_as_they_are_placed(spec: dict[str, Any], served: bool) -> None:
    blocker = unsupported(node_farm(farm(engine="nftables", **spec), NodeFacts("here"), None))
    assert (blocker is None) == served
