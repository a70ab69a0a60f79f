"""Services that have no farm, or not for all of their ports, and why. Pure: no I/O."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from kube_nftlb import names
from kube_nftlb.api.base import first_error
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.values import Mode
from kube_nftlb.commands.cluster.finding import Finding, condition, is_older, since
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.operator.farms.builder import Profile, build
from kube_nftlb.operator.farms.ports import port_keys, serves
from kube_nftlb.prose import some_of
from kube_nftlb.reasons import ServiceReason

_PATIENCE_S: Final = 30
"""Maximum age in seconds of a Service without farms: the operator is about to make them."""
_WELL: Final = ("AllNodes", "Pending")
_IN_PART: Final[tuple[ServiceReason, ...]] = (
    "FarmNameTaken",
    "FarmRefused",
    "FarmNotWritten",
    "InvalidSourceRange",
    "TooManyAddresses",
    "TooManyPorts",
    "TooManySourceRanges",
)
"""Reasons of the condition of Services that have farms, and of which these say nothing."""
_NOBODY: Final = "the operator has not made any yet, or is not running"
_SEE_OPERATOR: Final = "see whether the operator runs, and its log"
_SEE_REASON: Final = "docs/conditions.md says what to do about this reason"

_Ports = set[tuple[str, str]]
"""Names of ports, with families."""


def why_not_served(raw: JsonObject) -> str:
    """Return why nobody makes farms of a Service; empty for one that is served."""
    spec, labels = raw.get("spec") or {}, raw["metadata"].get("labels") or {}
    if names.LABEL_PROXY_NAME in labels:
        return f"it is of another proxy, by the label {names.LABEL_PROXY_NAME}"
    if spec.get("type") == "ExternalName":
        return "it is of the type ExternalName"
    if spec.get("clusterIP") == "None":
        return "it is headless"
    try:
        service = Service.model_validate(raw)
    except ValidationError as error:
        return f"the operator cannot read it: {first_error(error)}"
    if not serves(service):
        return "it has no cluster IP"
    return "" if service.spec.ports else "it has no ports"


def unserved(services: Iterable[JsonObject], farms: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the Services that should be served, and of which something is not."""
    present = _present(farms)
    ours = (raw for raw in services if not why_not_served(raw) and not raw["metadata"].get("deletionTimestamp"))
    return [raw for raw in ours if _missing(raw, present) or _in_part(raw) is not None]


def find(view: ClusterView, now: datetime) -> list[Finding]:
    """Return a finding for each Service of which something is not served, though the operator had the time."""
    present, found, events = _present(view.farms), [], defaultdict[object, list[JsonObject]](list)
    for each in view.events:
        events[(each.get("involvedObject") or {}).get("uid")].append(each)
    for raw in view.unserved:
        if is_older(raw, now, _PATIENCE_S) and (missing := _missing(raw, present)):
            partly = bool(present.get(_key(raw)))
            ports = sorted({port for port, _ in missing}) if partly else ()
            found.append(_no_farm(raw, events[raw["metadata"].get("uid")], ports))
        elif (in_part := _in_part(raw)) is not None:
            reason, message = in_part["reason"], in_part.get("message", "")
            found.append(Finding("service", *_key(raw), reason, message, _SEE_REASON, since(in_part)))
    return sorted(found, key=lambda each: (each.namespace, each.name))


def no_farm(raw: JsonObject, events: Iterable[JsonObject]) -> Finding:
    """Return the finding about a Service without any farm, however young it is."""
    return _no_farm(raw, events, ())


def ignored(raw: JsonObject, mode: Mode) -> Iterator[str]:
    """Yield what of a Service is not used as it is written, as the operator decides it; ``mode`` is that of its farms.

    What the administrator forbids is not among it: no object tells.
    """
    try:
        service = Service.model_validate(raw)
    except ValidationError:
        return
    for each in build(service, profile=Profile(mode, ports_max=len(service.spec.ports))).problems:
        yield f"service {'/'.join(_key(raw))}: {each.reason}: {each.message}"


def _no_farm(raw: JsonObject, events: Iterable[JsonObject], ports: Sequence[str]) -> Finding:
    """Return the finding about a Service that has no farm, or none for some ports."""
    named = some_of([port or "without a name" for port in ports])
    what = f"it has no farm for the ports {named}" if ports else "it has no farm"
    why = reported(raw, events)
    todo = _SEE_REASON if why else _SEE_OPERATOR
    return Finding("service", *_key(raw), "NoFarm", f"{what}: {why or _NOBODY}", todo)


def note(raw: JsonObject, events: Iterable[JsonObject]) -> str:
    """Return why a Service has no farm."""
    return why_not_served(raw) or reported(raw, events) or _NOBODY


def reported(raw: JsonObject, events: Iterable[JsonObject]) -> str:
    """Return what the operator has said about a Service: its newest Warning, or its condition; empty if nothing."""
    about = [each for each in events if (each.get("involvedObject") or {}).get("uid") == raw["metadata"].get("uid")]
    if about:
        newest = max(about, key=lambda each: str(each.get("lastTimestamp") or ""))
        return f"{newest.get('reason')}: {newest.get('message', '')}"
    found = condition(raw, names.SERVICE_CONDITION)
    return (
        f"{found['reason']}: {found.get('message', '')}" if found is not None and found["reason"] not in _WELL else ""
    )


def _in_part(raw: JsonObject) -> JsonObject | None:
    """Return the condition of a Service that is not served as it asks, and of which its farms say nothing."""
    found = condition(raw, names.SERVICE_CONDITION)
    return found if found is not None and found["reason"] in _IN_PART else None


def _key(raw: JsonObject) -> ServiceKey:
    return ServiceKey(raw["metadata"]["namespace"], raw["metadata"]["name"])


def _present(farms: Iterable[JsonObject]) -> dict[ServiceKey, _Ports]:
    """Return the ports that have a farm, by Service."""
    present = defaultdict[ServiceKey, _Ports](set)
    for raw in farms:
        labels = raw["metadata"].get("labels") or {}
        if service := labels.get(names.LABEL_SERVICE):
            port = (labels.get(names.LABEL_SERVICE_PORT, ""), labels.get(names.LABEL_FAMILY, ""))
            present[ServiceKey(raw["metadata"]["namespace"], service)].add(port)
    return present


def _missing(raw: JsonObject, present: dict[ServiceKey, _Ports]) -> _Ports:
    service = Service.model_validate(raw)
    wanted: _Ports = {(key.port, key.family) for key in port_keys(service, len(service.spec.ports))}
    return wanted - present.get(_key(raw), set())
