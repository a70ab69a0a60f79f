"""Merge statuses that we want into those that the API server has: what others wrote stays."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kube_nftlb import names
from kube_nftlb.operator.gateway.objects import CONTROLLER
from kube_nftlb.operator.gateway.wanted import (
    ClassStatus,
    GatewayStatus,
    ListenerStatus,
    ParentStatus,
    ReleasedStatus,
    WantedCondition,
)

OWN: Final = frozenset(
    ("Accepted", "Programmed", "ResolvedRefs", "Conflicted", "SupportedVersion", "AddressesAssigned")
)
"""The types of the conditions that we write; others are not ours, whatever object has them."""

Raw = dict[str, Any]


def merge_conditions(before: Any, wanted: Iterable[WantedCondition], now: str) -> list[Raw]:
    """Return the conditions that an object is to have: those of others in their places, and ours.

    ``before`` is what the API server has, of any form. ``now`` (RFC 3339) becomes the lastTransitionTime of a condition
    whose status changes. Its observedGeneration may be a higher one than ours: an object that is restored from a backup
    begins anew with generation 1.
    """
    new = {each.type: each for each in wanted}
    merged: list[Raw] = []
    for raw in _dicts(before):
        kind = raw.get("type")
        if kind not in OWN:
            merged.append(raw)
        elif (each := new.pop(str(kind), None)) is not None:
            merged.append(_condition(each, raw, now))
    return [*merged, *(_condition(each, {}, now) for each in new.values())]


def _dicts(value: Any) -> list[Raw]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _generation(raw: Mapping[str, Any]) -> int:
    generation = raw.get("observedGeneration")
    return generation if isinstance(generation, int) else 0


def _condition(wanted: WantedCondition, before: Mapping[str, Any], now: str) -> Raw:
    since = before.get("lastTransitionTime") if before.get("status") == wanted.status else None
    return {
        "type": wanted.type,
        "status": wanted.status,
        "reason": wanted.reason,
        "message": wanted.message,
        "observedGeneration": wanted.generation,
        "lastTransitionTime": since or now,
    }


def merge_class(before: Mapping[str, Any], wanted: ClassStatus, now: str) -> Raw | None:
    """Return the status of a GatewayClass, or None if it has it."""
    return _changed(
        before,
        {
            "conditions": merge_conditions(before.get("conditions"), wanted.conditions, now),
            "supportedFeatures": [{"name": name} for name in wanted.features],
        },
    )


def merge_gateway(before: Mapping[str, Any], wanted: GatewayStatus, now: str) -> Raw | None:
    """Return the status of a Gateway or ListenerSet, or None if it has it."""
    status: Raw = {
        "conditions": merge_conditions(before.get("conditions"), wanted.conditions, now),
        "listeners": _listeners(before.get("listeners"), wanted.listeners, now),
    }
    if wanted.listener_sets is not None:
        status["addresses"] = [
            {"type": "IPAddress", "value": ip, **_routability(ip, wanted.routability)} for ip in wanted.addresses
        ]
        status["attachedListenerSets"] = wanted.listener_sets
    return _changed(before, status)


def _routability(ip: str, of: Mapping[str, str] | None) -> Raw:
    return {"routability": of.get(ip, "")} if of is not None else {}


def merge_released(before: Mapping[str, Any], wanted: ReleasedStatus, now: str) -> Raw | None:
    """Return the status of a Gateway or ListenerSet without our listeners and addresses.

    None if it has none of us, or is another controller's by now.
    """
    values = {str(each.get("value")) for each in _dicts(before.get("addresses"))}
    conditions = before.get("conditions")
    own = [each for each in _dicts(conditions) if each.get("type") in OWN]
    if any(_generation(each) > wanted.generation for each in own):
        return None
    status: Raw = {"conditions": merge_conditions(conditions, wanted.conditions, now), "listeners": []}
    if wanted.addresses is None or wanted.accepted is None:
        return _changed(before, status) if own else None
    if not values <= set(wanted.addresses) or not any(_is(wanted.accepted, each) for each in own):
        return None
    return _changed(before, {**status, "addresses": [], "attachedListenerSets": 0})


def _is(wanted: WantedCondition, raw: Mapping[str, Any]) -> bool:
    return (raw.get("type"), raw.get("reason"), raw.get("message")) == (wanted.type, wanted.reason, wanted.message)


def _listeners(before: Any, wanted: Iterable[ListenerStatus], now: str) -> list[Raw]:
    had = {each.get("name"): each for each in _dicts(before)}
    return [
        {
            "name": each.name,
            "supportedKinds": [{"group": names.GATEWAY_API, "kind": kind} for kind in each.kinds],
            "attachedRoutes": each.attached,
            "conditions": merge_conditions(had.get(each.name, {}).get("conditions"), each.conditions, now),
        }
        for each in wanted
    ]


def merge_route(before: Mapping[str, Any], wanted: Sequence[ParentStatus], now: str) -> Raw | None:
    """Return the status of a route, or None if it has it. Entries of other controllers stay in their places."""
    new = {_identity(each.reference): each for each in wanted}
    parents: list[Raw] = []
    for raw in _dicts(before.get("parents")):
        if raw.get("controllerName") != CONTROLLER:
            parents.append(raw)
        elif (each := new.pop(_identity(raw.get("parentRef")), None)) is not None:
            parents.append(_parent(each, raw.get("conditions"), now))
    parents.extend(_parent(each, None, now) for each in new.values())
    return _changed(before, {"parents": parents})


def _identity(reference: Any) -> tuple[Any, ...]:
    """Return what tells the parentRefs of a route from each other."""
    fields = reference if isinstance(reference, Mapping) else {}
    defaults = {"group": names.GATEWAY_API, "kind": "Gateway"}
    keys = ("group", "kind", "namespace", "name", "sectionName", "port")
    return tuple(str(fields.get(key, defaults.get(key, ""))) for key in keys)


def _parent(wanted: ParentStatus, conditions: Any, now: str) -> Raw:
    return {
        "parentRef": dict(wanted.reference),
        "controllerName": CONTROLLER,
        "conditions": merge_conditions(conditions, wanted.conditions, now),
    }


def _changed(before: Mapping[str, Any], ours: Raw) -> Raw | None:
    """Return a status with our fields, and all others as before; None if that is the same."""
    empty: Any
    for key, value in ours.items():
        empty = 0 if isinstance(value, int) else []
        if before.get(key, empty) != value:
            return {**before, **ours}
    return None
