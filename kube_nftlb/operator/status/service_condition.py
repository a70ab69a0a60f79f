"""Decide the condition kube-nftlb.io/Programmed of a Service, from what is told of it and of its farms. No I/O."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.api.kubernetes.service import ServiceCondition
from kube_nftlb.operator.status.farm_endpoints import Problem
from kube_nftlb.prose import counted, some_of
from kube_nftlb.reasons import ServiceReason

_MESSAGE_MAX = 1024
_SERVED = frozenset(
    {"InvalidAnnotation", "InvalidSourceRange", "TooManyOverrides", "TooManyEndpoints", "InvalidEndpoint"}
)
"""Problems of a Service all of whose addresses are served, if not quite as it asks."""


class FarmState(NamedTuple):
    """The state of a farm that a Service's condition depends on."""

    name: str
    engine: str
    programmed: bool
    problems: tuple[Problem, ...]


class ServiceVerdict(NamedTuple):
    """The condition of a Service: its status, a reason in CamelCase and a message for people."""

    status: Literal["True", "False"]
    reason: ServiceReason
    message: str


def farm_state(name: str, engine: str, status: FarmStatus, problems: Iterable[Problem]) -> FarmState:
    """Return the state of a farm. Nodes that are not ready count as its status counts them."""
    programmed = any((each.type, each.status) == ("Programmed", "True") for each in status.conditions)
    return FarmState(name, engine, programmed, tuple(problems))


def decide(problems: Sequence[Problem], farms: Sequence[FarmState], lacking: Sequence[str]) -> ServiceVerdict:
    """Return the condition of a Service with these farms; ``lacking`` are those that do not exist yet.

    The message names no nodes but those of a problem: it would change with each.
    """
    found = [(each.reason, each.message) for each in problems]
    found += [(each.reason, f"farm {farm.name}: {each.message}") for farm in farms for each in farm.problems]
    found.sort(key=lambda each: each[0] in _SERVED)
    more = f" (and {counted(len(found) - 1, 'more problem')}, see its Events)" if len(found) > 1 else ""
    if found and found[0][0] not in _SERVED:
        reason, message = found[0]
        return ServiceVerdict("False", reason, _cut(message, more))
    pending = [*lacking, *(farm.name for farm in farms if not farm.programmed)]
    if pending or not farms:
        named = some_of(pending, 1, "farms") or "no farm"
        return ServiceVerdict("False", "Pending", f"{named}: not on all nodes yet")
    if found:
        reason, message = found[0]
        return ServiceVerdict("True", reason, _cut(message, more))
    engines = " and ".join(sorted({farm.engine for farm in farms}))
    return ServiceVerdict("True", "AllNodes", f"all nodes have its farms ({len(farms)}), served by {engines}")


def _cut(message: str, more: str) -> str:
    return message[: _MESSAGE_MAX - len(more)] + more


def condition(verdict: ServiceVerdict, before: ServiceCondition | None, now: str) -> dict[str, Any]:
    """Return the condition to write; ``now`` (RFC 3339) is the time of one whose status changes."""
    since = before.last_transition_time if before is not None and before.status == verdict.status else now
    return {
        "type": names.SERVICE_CONDITION,
        "status": verdict.status,
        "reason": verdict.reason,
        "message": verdict.message,
        "lastTransitionTime": since or now,
    }


def is_written(verdict: ServiceVerdict, before: ServiceCondition | None) -> bool:
    """Return True if a Service has the condition already."""
    return before is not None and (before.status, before.reason, before.message) == tuple(verdict)
