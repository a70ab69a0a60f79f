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


def test_all_is_well_if_every_node_reports_and_the_api_is_served() -> None:
    assert judge(NODES, REPORTS, FARMS) == ("2 nodes have an agent that works, and serve default/kubernetes", ())


@pytest.mark.parametrize(
    ("nodes", "reports", "farms", "problem"),
    [
        (NODES, REPORTS[:1], FARMS, "the node b has no agent that has reported"),
        (NODES, [REPORTS[0], stated("b", "Ready", "False", "no nftlb")], FARMS, "of the node b is not ready: no nftlb"),
        (NODES, [REPORTS[0], node("b")], FARMS, "of the node b is not ready: it has no condition Ready yet"),
        (NODES, REPORTS, [], "no farm of the Service default/kubernetes: does an operator run?"),
        (NODES, REPORTS, [stated("f", "Programmed", "False", "waits")], "the farm f is not on every node: waits"),
        (NODES, REPORTS, [stated("f", "Programmed", "Unknown")], "the farm f is not on every node: Why"),
    ],
)
def test_a_problem_is_told_in_a_sentence(
    nodes: list[dict[str, Any]], reports: list[dict[str, Any]], farms: list[dict[str, Any]], problem: str
) -> None:
    (told,) = judge(nodes, reports, farms).problems
    assert problem in told
