"""Findings about Services. Pure: no I/O.

The operator's own functions say what of them it would refuse.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from kube_nftlb.commands import manifests
from kube_nftlb.commands.before.finding import Finding
from kube_nftlb.commands.render import render
from kube_nftlb.kube.resources import NODES, SERVICES, JsonObject
from kube_nftlb.settings import DefaultEngine


def of_services(
    services: Iterable[JsonObject], nodes: Iterable[JsonObject], engine: DefaultEngine
) -> Iterator[Finding]:
    """Yield what of these Services is refused or treated differently, with this default engine."""
    # Objects in a list have no kind of their own.
    listed = [{**raw, "kind": SERVICES.kind} for raw in services]
    raws = [*({**raw, "kind": NODES.kind} for raw in nodes), *listed]
    yield from _refused(render(manifests.complete(raws), engine=engine).problems)
    yield from _uses(
        [(f"{raw['metadata']['namespace']}/{raw['metadata']['name']}", raw.get("spec") or {}) for raw in listed]
    )


def _refused(problems: Iterable[str]) -> Iterator[Finding]:
    by_reason: dict[str, list[str]] = defaultdict(list)
    messages: dict[str, str] = {}
    for problem in problems:
        where, _, message = problem.partition(": ")
        reason, _, message = message.partition(": ")
        by_reason[reason].append(where)
        messages.setdefault(reason, message)
    for reason, objects in sorted(by_reason.items()):
        action = f"change the Services, or the chart's values: docs/conditions.md explains {reason}"
        yield Finding(
            "blocks", reason, f"kube-nftlb refuses a part of Services: {messages[reason]}", action, tuple(objects)
        )


def _uses(specs: list[tuple[str, Any]]) -> Iterator[Finding]:
    sticky = tuple(name for name, spec in specs if spec.get("sessionAffinity") == "ClientIP")
    if sticky:
        yield Finding(
            "differs",
            "SessionsForgotten",
            "sessions of kube-proxy (sessionAffinity) are not taken over: on each node that moves, the next connection"
            " of a client may go to another endpoint",
            "move the nodes when that does no harm; open connections stay where they are",
            sticky,
        )
    external = tuple(name for name, spec in specs if spec.get("externalIPs"))
    if external:
        yield Finding(
            "note",
            "ExternalIPs",
            "Services have spec.externalIPs, which are served as by kube-proxy, but never at addresses of nodes",
            "set externalIPs.ranges or externalIPs.enabled of the chart if tenants are not trusted",
            external,
        )
    health = tuple(name for name, spec in specs if spec.get("healthCheckNodePort"))
    if health:
        yield Finding(
            "note",
            "HealthCheckNodePorts",
            "the agent answers on healthCheckNodePorts; while kube-proxy still has one, it tries again every 5 s",
            "nothing to do; a load balancer may see a moment without an answer",
            health,
        )
