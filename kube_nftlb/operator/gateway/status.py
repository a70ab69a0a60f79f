"""The statuses of a Gateway, of its ListenerSets, and of the routes that refer to them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from kube_nftlb.api.gateway.gateway import Gateway
from kube_nftlb.api.gateway.route import ParentReference, Route
from kube_nftlb.operator.gateway.attachment import Attachment
from kube_nftlb.operator.gateway.backends import Backends
from kube_nftlb.operator.gateway.listeners import ListenerKey, Problem, Section
from kube_nftlb.operator.gateway.objects import AddressState
from kube_nftlb.operator.gateway.progress import Progress
from kube_nftlb.operator.gateway.wanted import (
    GatewayStatus,
    ListenerStatus,
    ParentStatus,
    ReleasedStatus,
    WantedCondition,
)
from kube_nftlb.prose import some_of
from kube_nftlb.reasons import GatewayReason

_MESSAGE_MAX: Final = 1024
"""The API server takes 32,768; a reader does not."""
_OK: Final = "nothing is wrong with it"

Status = Literal["True", "False"]


def condition(type_: str, status: Status, reason: GatewayReason, message: str, generation: int) -> WantedCondition:
    """Return a condition, with a message that is not too long."""
    return WantedCondition(type_, status, reason, message[:_MESSAGE_MAX], generation)


def judged(type_: str, problem: Problem | None, good: Problem, generation: int) -> WantedCondition:
    """Return a condition that is false for a problem, and else true for ``good``."""
    reason, message = problem or good
    return condition(type_, "True" if problem is None else "False", reason, message, generation)


class Facts(NamedTuple):
    """What the statuses of a Gateway and its ListenerSets tell."""

    refused: Problem | None
    """Why the Gateway is not accepted."""
    note: str
    """What its Accepted says besides; empty for nothing."""
    address: AddressState | None
    only_kept: bool
    """What it asks for cannot be had: its address is one that it had before."""
    routability: bool
    """Addresses have a routability, by the CustomResourceDefinition of Gateways."""
    attached: Callable[[ListenerKey], int]
    """Returns the number of routes attached to a listener."""
    progress: Callable[[Iterable[ListenerKey]], Progress]
    """Returns the progress of the farms of listeners."""


def gateway_status(own: Sequence[Section], sets: int, facts: Facts, generation: int) -> GatewayStatus:
    """Return the status of a Gateway with ``sets`` ListenerSets attached."""
    found = facts.progress([each.key for each in own])
    conditions = [
        judged("Accepted", facts.refused, _accepted(own, facts.note), generation),
        judged("Programmed", _unprogrammed(facts, found), Problem("Programmed", found.message), generation),
    ]
    listeners = tuple(_listener(each, facts, generation) for each in own)
    address = facts.address or AddressState()
    if not facts.routability:
        return GatewayStatus(tuple(conditions), listeners, address.addresses, sets)
    if facts.address is not None:
        good = Problem("AddressesAssigned", "it has all addresses that it asks for")
        conditions.append(judged("AddressesAssigned", _unassigned(address, facts.only_kept), good, generation))
    return GatewayStatus(tuple(conditions), listeners, address.addresses, sets, dict(address.routability))


def _unassigned(address: AddressState, only_kept: bool) -> Problem | None:
    """Return why AddressesAssigned is false; the reason says whether there are any that it asks for."""
    if not address.problem and not only_kept:
        return None
    partly = len(address.addresses) > address.unasked and not only_kept
    return Problem("PartiallyAssigned" if partly else "NotAssigned", address.message or "it has none that it asks for")


def released_status(before: GatewayStatus, now: Gateway) -> ReleasedStatus:
    """Return what to take back from a Gateway that had this status, and is not ours any more."""
    message = "its class is not one of kube-nftlb any more, which has taken its addresses back"
    pending = (
        condition(each, "False", "Pending", message, now.metadata.generation) for each in ("Accepted", "Programmed")
    )
    accepted = before.conditions[0]
    return ReleasedStatus(tuple(pending), before.addresses, accepted.generation, accepted)


def released_set(before: GatewayStatus, generation: int) -> ReleasedStatus:
    """Return what to take back from a ListenerSet that had this status, and has no Gateway of ours any more."""
    problem = Problem("ParentNotAccepted", "its Gateway is gone, or not one of kube-nftlb any more")
    return ReleasedStatus(refused_set(problem, generation).conditions, None, before.conditions[0].generation)


def none_usable(sections: Sequence[Section]) -> Problem | None:
    """Return why a Gateway or ListenerSet is not accepted whose listeners are all not valid; None if one is."""
    if any(each.usable for each in sections):
        return None
    return Problem("ListenersNotValid", "none of its listeners is valid; see their conditions")


def set_status(sections: Sequence[Section], facts: Facts, generation: int) -> GatewayStatus:
    """Return the status of a ListenerSet that its Gateway admits."""
    found = facts.progress([each.key for each in sections])
    refused = none_usable(sections)
    if facts.refused is not None:
        refused = Problem("ParentNotAccepted", "the Gateway is not accepted")
    programmed = refused
    if refused is None and (why := _unprogrammed(facts, found)) is not None:
        programmed = Problem("ParentNotProgrammed", why.message) if _lacks_address(facts) else why
    conditions = (
        judged("Accepted", refused, _accepted(sections), generation),
        judged("Programmed", programmed, Problem("Programmed", found.message), generation),
    )
    return GatewayStatus(conditions, tuple(_listener(each, facts, generation) for each in sections))


def refused_set(problem: Problem, generation: int) -> GatewayStatus:
    """Return the status of a ListenerSet that is not attached to its Gateway."""
    return GatewayStatus(
        tuple(condition(each, "False", *problem, generation) for each in ("Accepted", "Programmed")), ()
    )


def _accepted(sections: Sequence[Section], note: str = "") -> Problem:
    """Return what Accepted says of an accepted Gateway or ListenerSet, with a note at the end."""
    if bad := [each.key.name for each in sections if not each.usable or each.strange_kinds]:
        message = f"not valid: the listeners {some_of(bad)}; see their conditions{note}"
        return Problem("ListenersNotValid", message)
    return Problem("Accepted", f"its listeners are valid{note}")


def _lacks_address(facts: Facts) -> bool:
    return facts.address is None or bool(facts.address.problem)


def _unprogrammed(facts: Facts, found: Progress) -> Problem | None:
    """Return why Programmed is false for an accepted or refused Gateway with this progress of its farms."""
    if facts.refused is not None:
        return Problem("Invalid", f"it is not accepted: {facts.refused.message}")
    if facts.address is None:
        return Problem("AddressNotAssigned", "it has no address yet")
    if facts.address.problem:
        return Problem(facts.address.problem, facts.address.message)
    return None if found.done else Problem("Pending", found.message)


def _listener(section: Section, facts: Facts, generation: int) -> ListenerStatus:
    refused = section.refused or section.conflict
    found = facts.progress([section.key])
    strange = section.strange_kinds
    resolved = Problem("InvalidRouteKinds", f"it cannot have routes of the kinds {strange}") if strange else None
    conditions = [
        judged("Accepted", refused, Problem("Accepted", _OK), generation),
        judged("Programmed", _unserved(section, facts, found), Problem("Programmed", found.message), generation),
        judged("ResolvedRefs", resolved, Problem("ResolvedRefs", "all kinds of routes are supported"), generation),
    ]
    if section.conflict is not None:
        conditions.append(condition("Conflicted", "True", *section.conflict, generation))
    else:
        conditions.append(condition("Conflicted", "False", "NoConflicts", "no other listener has its port", generation))
    return ListenerStatus(section.key.name, section.kinds, facts.attached(section.key), tuple(conditions))


def _unserved(section: Section, facts: Facts, found: Progress) -> Problem | None:
    if section.conflict is not None:
        return section.conflict
    if section.refused is not None:
        return Problem("Invalid", section.refused.message)
    if not section.kinds:
        return Problem("Invalid", "it admits no kind of routes that can be served")
    if facts.refused is not None:
        return Problem("Invalid", "the Gateway is not accepted")
    if facts.address is None or not facts.address.addresses:
        return Problem("Pending", "the Gateway has no address")
    return None if found.done else Problem("Pending", found.message)


def parent_status(route: Route, attachment: Attachment, backends: Backends, note: str) -> ParentStatus:
    """Return the status of a route for one of its parentRefs; ``note`` is what to say about one that is accepted."""
    generation = route.metadata.generation
    good = Problem("Accepted", note)
    resolved = Problem("ResolvedRefs", "all backends exist, and may be used")
    return ParentStatus(
        reference_fields(route.spec.parent_refs[attachment.index]),
        (
            judged("Accepted", attachment.problem, good, generation),
            judged("ResolvedRefs", backends.problem, resolved, generation),
        ),
    )


def reference_fields(reference: ParentReference) -> dict[str, Any]:
    """Return a parentRef as the API server has it: with its defaults, and without what is not set."""
    return reference.model_dump(by_alias=True, exclude_none=True)
