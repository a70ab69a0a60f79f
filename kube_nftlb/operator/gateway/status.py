"""The statuses of a Gateway, of its ListenerSets, and of the routes that refer to them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from kube_nftlb.api.gateway.route import ParentReference, Route
from kube_nftlb.operator.gateway.attachment import Attachment
from kube_nftlb.operator.gateway.backends import Backends
from kube_nftlb.operator.gateway.listeners import ListenerKey, Problem, Section
from kube_nftlb.operator.gateway.objects import AddressState
from kube_nftlb.operator.gateway.progress import Progress
from kube_nftlb.operator.gateway.wanted import GatewayStatus, ListenerStatus, ParentStatus, WantedCondition
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
    attached: Callable[[ListenerKey], int]
    """Returns the number of routes attached to a listener."""
    progress: Callable[[Iterable[ListenerKey]], Progress]
    """Returns the progress of the farms of listeners."""


def gateway_status(own: Sequence[Section], sets: int, facts: Facts, generation: int) -> GatewayStatus:
    """Return the status of a Gateway with ``sets`` ListenerSets attached."""
    bad = [each.key.name for each in own if not _valid(each)]
    if facts.refused is not None:
        accepted = condition("Accepted", "False", *facts.refused, generation)
    elif bad:
        message = f"not valid: the listeners {some_of(bad)}; see their conditions{facts.note}"
        accepted = condition("Accepted", "True", "ListenersNotValid", message, generation)
    else:
        accepted = condition("Accepted", "True", "Accepted", f"its listeners are valid{facts.note}", generation)
    programmed = judged(
        "Programmed",
        _unprogrammed(facts, [each.key for each in own]),
        Problem("Programmed", facts.progress([each.key for each in own]).message),
        generation,
    )
    listeners = tuple(_listener(each, facts, generation) for each in own)
    addresses = facts.address.addresses if facts.address is not None else ()
    return GatewayStatus((accepted, programmed), listeners, addresses, sets)


def none_usable(own: Sequence[Section]) -> Problem | None:
    """Return why a Gateway is not accepted whose listeners are all not valid; None if one is."""
    if any(each.usable for each in own):
        return None
    return Problem("ListenersNotValid", "none of its listeners is valid; see their conditions")


def set_status(found: Sequence[Section], facts: Facts, generation: int) -> GatewayStatus:
    """Return the status of a ListenerSet that its Gateway admits."""
    bad = [each.key.name for each in found if not _valid(each)]
    keys = [each.key for each in found]
    listeners = tuple(_listener(each, facts, generation) for each in found)
    refused: Problem | None = None
    if facts.refused is not None:
        refused = Problem("ParentNotAccepted", "the Gateway is not accepted")
    elif not any(each.usable for each in found):
        refused = Problem("ListenersNotValid", "none of its listeners is valid; see their conditions")
    good = Problem("Accepted", "its listeners are valid")
    if bad:
        good = Problem("ListenersNotValid", f"not valid: the listeners {some_of(bad)}; see their conditions")
    programmed = refused
    if refused is None and (why := _unprogrammed(facts, keys)) is not None:
        programmed = Problem("ParentNotProgrammed", why.message) if _lacks_address(facts) else why
    done = Problem("Programmed", facts.progress(keys).message)
    return GatewayStatus(
        (judged("Accepted", refused, good, generation), judged("Programmed", programmed, done, generation)), listeners
    )


def refused_set(problem: Problem, generation: int) -> GatewayStatus:
    """Return the status of a ListenerSet that is not attached to its Gateway."""
    return GatewayStatus(
        tuple(condition(each, "False", *problem, generation) for each in ("Accepted", "Programmed")), ()
    )


def _valid(section: Section) -> bool:
    return section.usable and not section.strange_kinds


def _lacks_address(facts: Facts) -> bool:
    return facts.address is None or bool(facts.address.problem)


def _unprogrammed(facts: Facts, listeners: Iterable[ListenerKey]) -> Problem | None:
    """Return why Programmed is false for an accepted or refused Gateway with these listeners."""
    if facts.refused is not None:
        return Problem("Invalid", f"it is not accepted: {facts.refused.message}")
    if facts.address is None:
        return Problem("AddressNotAssigned", "it has no address yet")
    if facts.address.problem:
        return Problem(facts.address.problem, facts.address.message)
    found = facts.progress(listeners)
    return None if found.done else Problem("Pending", found.message)


def _listener(section: Section, facts: Facts, generation: int) -> ListenerStatus:
    refused = section.refused or section.conflict
    strange = section.strange_kinds
    resolved = Problem("InvalidRouteKinds", f"it cannot have routes of the kinds {strange}") if strange else None
    conditions = [
        judged("Accepted", refused, Problem("Accepted", _OK), generation),
        judged("Programmed", _unserved(section, facts), _programmed(section, facts), generation),
        judged("ResolvedRefs", resolved, Problem("ResolvedRefs", "all kinds of routes are supported"), generation),
    ]
    if section.conflict is not None:
        conditions.append(condition("Conflicted", "True", *section.conflict, generation))
    else:
        conditions.append(condition("Conflicted", "False", "NoConflicts", "no other listener has its port", generation))
    return ListenerStatus(section.key.name, section.kinds, facts.attached(section.key), tuple(conditions))


def _programmed(section: Section, facts: Facts) -> Problem:
    return Problem("Programmed", facts.progress([section.key]).message)


def _unserved(section: Section, facts: Facts) -> Problem | None:
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
    found = facts.progress([section.key])
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
