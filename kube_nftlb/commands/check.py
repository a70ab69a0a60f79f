"""``kube-nftlb check``: whether Services are served on every node, as the API server tells."""

import asyncio
import time
from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb import errors, names
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import FARMS, NFTLB_NODES, NODES, JsonObject

_AGAIN_S = 1.0
_KUBERNETES = {"namespace": "default", "service": "kubernetes"}
"""The one Service that every cluster has."""


class Checked(NamedTuple):
    """What was found: a sentence that sums it up, and one for each thing that is not as it should be."""

    summary: str
    problems: tuple[str, ...]


async def check(wait_s: float) -> Checked:
    """Ask until all is well, or for so many seconds. Raises KubeError where a question is refused."""
    deadline = time.monotonic() + wait_s
    async with await Kube.connect(user_agent="kube-nftlb-check") as kube:
        while True:
            try:
                checked = await _look(kube)
            except errors.KubeUnreachableError as error:
                checked = Checked("", (f"the API server cannot be reached: {error}",))
            if not checked.problems or time.monotonic() >= deadline:
                return checked
            await asyncio.sleep(_AGAIN_S)


async def _look(kube: Kube) -> Checked:
    selector = f"{names.LABEL_SERVICE}={_KUBERNETES['service']}"
    nodes = await kube.list(NODES)
    reports = await kube.list(NFTLB_NODES)
    farms = await kube.list(FARMS, _KUBERNETES["namespace"], label_selector=selector)
    return judge(nodes.items, reports.items, farms.items)


def judge(nodes: Iterable[JsonObject], reports: Iterable[JsonObject], farms: Iterable[JsonObject]) -> Checked:
    """What Nodes, NftlbNodes and the farms of the Service ``kubernetes`` tell. Computation only."""
    by_name = {report["metadata"]["name"]: report for report in reports}
    there = sorted(node["metadata"]["name"] for node in nodes)
    problems = [problem for name in there if (problem := _node_problem(name, by_name.get(name)))]
    made = list(farms)
    service = "{namespace}/{service}".format(**_KUBERNETES)
    if not made:
        problems.append(f"there is no farm of the Service {service}: does an operator run?")
    problems.extend(
        f"the farm {farm['metadata']['name']} is not on every node: {message}"
        for farm in made
        if (message := _untrue(farm, "Programmed"))
    )
    return Checked(f"{len(there)} nodes have an agent that works, and serve {service}", tuple(problems))


def _node_problem(name: str, report: JsonObject | None) -> str:
    if report is None:
        return f"the node {name} has no agent that has reported: is there a pod of the DaemonSet on it?"
    message = _untrue(report, "Ready")
    return f"the agent of the node {name} is not ready: {message}" if message else ""


def _untrue(raw: JsonObject, kind: str) -> str:
    """Why a condition is not True; empty where it is."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    found = next((each for each in conditions if each["type"] == kind), None)
    if found is None:
        return f"it has no condition {kind} yet"
    return "" if found["status"] == "True" else found.get("message") or found["reason"]
