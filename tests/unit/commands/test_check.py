from typing import Any

import pytest

from kube_nftlb.commands.check import judge
from tests.builders import raw_node as node


def stated(name: str, kind: str, status: str, message: str = "") -> dict[str, Any]:
    condition = {"type": kind, "status": status, "reason": "Why", "message": message}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}


NODES = [node("a"), node("b")]
REPORTS = [stated("a", "Ready", "True"), stated("b", "Ready", "True")]
FARMS = [stated("kubernetes--https", "Programmed", "True")]


def test_nodes_with_agents_that_serve_the_api_server_pass() -> None:
    assert judge(NODES, REPORTS, FARMS) == ("2 nodes have a ready agent and serve default/kubernetes", ())


@pytest.mark.parametrize(
    ("nodes", "reports", "farms", "problem"),
    [
        (NODES, REPORTS[:1], FARMS, "node b has no status from an agent"),
        (NODES, [REPORTS[0], stated("b", "Ready", "False", "no nftlb")], FARMS, "of node b is not ready: no nftlb"),
        (NODES, [REPORTS[0], node("b")], FARMS, "of node b is not ready: condition Ready is missing"),
        (NODES, REPORTS, [], "Service default/kubernetes has no farm: is the operator running?"),
        (
            NODES,
            REPORTS,
            [stated("f", "Programmed", "False", "waits")],
            "farm f is not programmed on every node: waits",
        ),
        (NODES, REPORTS, [stated("f", "Programmed", "Unknown")], "farm f is not programmed on every node: Why"),
    ],
)
def test_problems_are_reported(
    nodes: list[dict[str, Any]], reports: list[dict[str, Any]], farms: list[dict[str, Any]], problem: str
) -> None:
    (told,) = judge(nodes, reports, farms).problems
    assert problem in told


def test_nodes_that_should_have_no_agent_do_not_count() -> None:
    windows = node("w", labels={"kubernetes.io/os": "windows"})
    daemon_set = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}}
    for daemon_sets in (None, [], [daemon_set]):
        nodes = [node(name, labels={"kubernetes.io/os": "linux"}) for name in ("a", "b")]
        checked = judge([*nodes, windows], REPORTS, FARMS, daemon_sets)
        assert checked == ("2 nodes have a ready agent and serve default/kubernetes", ())
