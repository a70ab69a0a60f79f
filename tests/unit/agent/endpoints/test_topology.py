"""The backends that a node uses: kube-proxy's rules, one row each."""

from typing import Any

import pytest

from kube_nftlb.agent.endpoints.topology import choose
from kube_nftlb.agent.node.info import NodeFacts
from tests.builders import farm, raw_backend

HERE = NodeFacts("here", "a")


def backend(name: str, **changes: Any) -> dict[str, Any]:
    return raw_backend(name, f"10.244.0.{ord(name)}", **changes)


READY_HERE = backend("h", nodeName="here")
READY_THERE = backend("t", nodeName="there")
NOT_READY = {"ready": False, "serving": False}
LEAVING = {"ready": False, "serving": True, "terminating": True}
IN_A, IN_B = {"forZones": ["a"]}, {"forZones": ["b"]}


def names(backends: Any) -> str:
    return "".join(each.name for each in backends)


@pytest.mark.parametrize(
    ("backends", "cluster"),
    [
        pytest.param([], "", id="nobody"),
        pytest.param([READY_HERE, READY_THERE], "ht", id="all that are ready"),
        pytest.param([READY_HERE, backend("x", **NOT_READY)], "h", id="not one that is not ready"),
        pytest.param([READY_HERE, backend("x", **LEAVING)], "h", id="not one that terminates while another is ready"),
        pytest.param([backend("x", **LEAVING), backend("y", **NOT_READY)], "x", id="one that serves while it ends"),
        pytest.param(
            [backend("x", ready=False, serving=True)], "", id="not one that serves without being ready or terminating"
        ),
        pytest.param([backend("x", **IN_A), backend("y", **IN_B)], "x", id="the zone's"),
        pytest.param([backend("x", **IN_B), backend("y", **IN_B)], "xy", id="all where none is for the zone"),
        pytest.param([backend("x", **IN_A), backend("y")], "xy", id="all where one has no hint"),
        pytest.param(
            [backend("x", **IN_A), backend("y", **NOT_READY), backend("z", **IN_B)], "x", id="hints of ready ones count"
        ),
        pytest.param(
            [backend("x", **IN_A, **LEAVING), backend("z", **IN_B, **LEAVING)], "xz", id="the last resort has no zone"
        ),
        pytest.param(
            [backend("x", forNodes=["here"], **IN_A), backend("y", forNodes=["there"], **IN_A)], "x", id="the node's"
        ),
        pytest.param(
            [backend("x", forNodes=["there"], **IN_A), backend("y", forNodes=["there"], **IN_B)],
            "x",
            id="the zone's where none is for the node",
        ),
    ],
)
def test_the_backends_for_connections_that_may_leave_the_node(backends: list[dict[str, Any]], cluster: str) -> None:
    chosen = choose(farm(backends=backends).spec.backends, "Cluster", HERE)
    assert (names(chosen.cluster), names(chosen.local)) == (cluster, "")


@pytest.mark.parametrize(
    ("backends", "cluster", "local"),
    [
        pytest.param([READY_HERE, READY_THERE], "ht", "h", id="the node's own"),
        pytest.param([READY_THERE], "t", "", id="none here"),
        pytest.param([backend("x", nodeName="here", **LEAVING), READY_THERE], "t", "x", id="each list by itself"),
        pytest.param([backend("x", nodeName="here", **IN_B), backend("y", **IN_A)], "y", "x", id="hints not for local"),
        pytest.param([backend("x")], "x", "", id="one outside the cluster is never local"),
    ],
)
def test_the_traffic_policy_local(backends: list[dict[str, Any]], cluster: str, local: str) -> None:
    chosen = choose(farm(backends=backends).spec.backends, "Local", HERE)
    assert (names(chosen.cluster), names(chosen.local)) == (cluster, local)


def test_a_node_without_a_zone_ignores_zones() -> None:
    backends = farm(backends=[backend("x", forZones=[""]), backend("y", **IN_B)]).spec.backends
    assert names(choose(backends, "Cluster", NodeFacts("here")).cluster) == "xy"
