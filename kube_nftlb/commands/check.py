"""``kube-nftlb check``: check that every node serves Services, according to the API server, and by connections."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kube_nftlb import errors, names
from kube_nftlb.commands import connections
from kube_nftlb.commands.agent_nodes import AGENTS, selected
from kube_nftlb.commands.cluster.asking import Target, connected, list_if_allowed
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import DAEMON_SETS, FARMS, NFTLB_NODES, NODES, SERVICES, JsonObject

_AGAIN_S = 1.0
_KUBERNETES = {"namespace": "default", "service": "kubernetes"}
"""The one Service that every cluster has."""


class Service(NamedTuple):
    """A Service to connect to, whose pods run ``kube-nftlb echo``."""

    namespace: str
    name: str
    pods: int
    """Minimum number of pods that must answer."""


class Checked(NamedTuple):
    """The result: a summary, and a sentence per problem."""

    summary: str
    problems: tuple[str, ...]


async def check(target: Target, wait_s: float, service: Service | None = None) -> Checked:
    """Check until there are no problems, for at most ``wait_s`` seconds, then connect to ``service`` likewise.

    Raises KubeError if a request is refused, KubeUnreachableError if the API server cannot be reached when the time is
    up, and UsageError if there is no such Service, or it has no address to connect to.
    """
    deadline = time.monotonic() + wait_s
    async with connected(target, "kube-nftlb-check") as kube:
        while True:
            over = time.monotonic() >= deadline
            try:
                checked = await _look(kube)
                if service and not checked.problems:
                    checked = await _connect(kube, service, checked.summary)
                if not checked.problems or over:
                    return checked
            except errors.KubeUnreachableError:
                if over:
                    raise
            await asyncio.sleep(_AGAIN_S)


async def _look(kube: Kube) -> Checked:
    selector = f"{names.LABEL_SERVICE}={_KUBERNETES['service']}"
    nodes = await kube.list(NODES)
    reports = await kube.list(NFTLB_NODES)
    farms = await kube.list(FARMS, _KUBERNETES["namespace"], label_selector=selector)
    daemon_sets = await list_if_allowed(kube, DAEMON_SETS, field_selector=AGENTS)
    return judge(nodes.items, reports.items, farms.items, daemon_sets)


async def _connect(kube: Kube, service: Service, summary: str) -> Checked:
    """Connect to each cluster IP and port. One after another: a node that drops packets drops them all."""
    try:
        found = await kube.get(SERVICES, service.name, service.namespace)
    except errors.NotFoundError:
        raise errors.UsageError(f"there is no Service {service.name!r} in the namespace {service.namespace}") from None
    tried = [await connections.connect(target) for target in connections.targets(found)]
    return Checked("\n".join([summary, *connections.summary(tried)]), tuple(connections.problems(tried, service.pods)))


def judge(
    nodes: Sequence[JsonObject],
    reports: Iterable[JsonObject],
    farms: Iterable[JsonObject],
    daemon_sets: Iterable[JsonObject] | None = None,
) -> Checked:
    """Return the problems that Nodes, NftlbNodes and the farms of the Service ``kubernetes`` show. No I/O.

    A node that the agents' DaemonSet does not select counts only if it has an agent nevertheless.
    """
    by_name = {report["metadata"]["name"]: report for report in reports}
    there = sorted(selected(nodes, daemon_sets) | ({node["metadata"]["name"] for node in nodes} & by_name.keys()))
    problems = [problem for name in there if (problem := _node_problem(name, by_name.get(name)))]
    made = list(farms)
    service = "{namespace}/{service}".format(**_KUBERNETES)
    if not made:
        problems.append(f"Service {service} has no farm: is the operator running?")
    problems.extend(
        f"farm {farm['metadata']['name']} is not programmed on every node: {message}"
        for farm in made
        if (message := _untrue(farm, "Programmed"))
    )
    return Checked(f"{len(there)} nodes have a ready agent and serve {service}", tuple(problems))


def _node_problem(name: str, report: JsonObject | None) -> str | None:
    if report is None:
        return f"node {name} has no status from an agent: does it have a pod of the DaemonSet?"
    message = _untrue(report, "Ready")
    return f"the agent of node {name} is not ready: {message}" if message else None


def _untrue(raw: JsonObject, kind: str) -> str | None:
    """Return why a condition is not True, or None if it is."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    found = next((each for each in conditions if each["type"] == kind), None)
    if found is None:
        return f"condition {kind} is missing"
    return None if found["status"] == "True" else str(found.get("message") or found["reason"])
