"""What is wrong with Gateways and routes of Gateway API, by their statuses. Pure: no I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kube_nftlb import names
from kube_nftlb.commands.cluster.finding import Finding, since
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.resources import (
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    TCP_ROUTES,
    UDP_ROUTES,
    JsonObject,
    Resource,
)
from kube_nftlb.operator.gateway.objects import CLUSTER, CONTROLLER
from kube_nftlb.prose import some_of

KINDS: Final[Mapping[str, Resource]] = {
    each.kind.lower(): each for each in (GATEWAYS, LISTENER_SETS, TCP_ROUTES, UDP_ROUTES)
}
"""The kinds that can be asked for by KIND/NAME."""

NOT_RECONCILED: Final = "NotReconciled"
"""The reason of a finding about an object that no controller has decided about."""
_TODO: Final = "see docs/gateway.md"
_SEE_OPERATOR: Final = (
    "check the names in its spec, that the operator runs, and that gateway.enabled of the chart is set"
)
_PATIENCE_S: Final = 10
"""Maximum age in seconds of an object that no controller has reconciled yet."""
_TOLD_ELSEWHERE: Final = ("Conflicted", "AddressesAssigned")
"""Types of conditions: what they tell is a reason why Programmed is false."""


@dataclass(frozen=True)
class Parents:
    """What Gateways and routes name: it decides whose they are. None: the user may not know."""

    classes: Sequence[JsonObject] | None = ()
    gateways: Sequence[JsonObject] | None = ()
    listener_sets: Sequence[JsonObject] | None = ()

    def controller(self, raw: JsonObject) -> str | None:
        """Return the controller of a Gateway or ListenerSet; empty if it is not known, None if nobody is."""
        if raw["kind"] == LISTENER_SETS.kind:
            return self.controller_of_parent(raw["spec"].get("parentRef") or {}, raw["metadata"]["namespace"])
        if self.classes is None:
            return ""
        name = raw["spec"].get("gatewayClassName")
        found = next((each for each in self.classes if each["metadata"]["name"] == name), None)
        return str(found["spec"].get("controllerName")) if found is not None else None

    def controller_of_parent(self, reference: JsonObject, namespace: str) -> str | None:
        """Return the controller of a parent; ``namespace`` is that of the object that refers to it."""
        kind = reference.get("kind") or GATEWAYS.kind
        ours = reference.get("group", names.GATEWAY_API) == names.GATEWAY_API
        if not ours or kind not in (GATEWAYS.kind, LISTENER_SETS.kind):
            return ""
        known = self.gateways if kind == GATEWAYS.kind else self.listener_sets
        if known is None:
            return ""
        key = (reference.get("namespace") or namespace, reference.get("name"))
        found = next((raw for raw in known if (raw["metadata"]["namespace"], raw["metadata"]["name"]) == key), None)
        return self.controller({**found, "kind": kind}) if found is not None else None


def of_object(raw: JsonObject, parents: Parents) -> list[Finding]:
    """Return what is wrong with a Gateway, ListenerSet or route, as far as it is ours, or nobody's."""
    found: dict[tuple[str, str], Finding] = {}
    for where, condition in _conditions(raw.get("status") or {}):
        if condition.get("status") == "False" and condition.get("type") not in _TOLD_ELSEWHERE:
            finding = _finding(raw, condition["reason"], where + str(condition.get("message", "")), _TODO)
            found.setdefault((finding.reason, finding.message), finding._replace(since=since(condition)))
    unseen = [_finding(raw, NOT_RECONCILED, message, _SEE_OPERATOR) for message in dict.fromkeys(_unseen(raw, parents))]
    return [*unseen, *found.values()]


def _finding(raw: JsonObject, reason: str, message: str, todo: str) -> Finding:
    metadata = raw["metadata"]
    return Finding(str(raw["kind"]).lower(), metadata["namespace"], metadata["name"], reason, message, todo)


def _unseen(raw: JsonObject, parents: Parents) -> Iterator[str]:
    """Yield what no controller has reconciled, though ours should have, or there is none."""
    namespace = raw["metadata"]["namespace"]
    if raw["kind"] not in (GATEWAYS.kind, LISTENER_SETS.kind):
        for reference in raw["spec"].get("parentRefs") or ():
            where, controller = f"parent {reference.get('name')}", parents.controller_of_parent(reference, namespace)
            if controller is None:
                yield f"{where}: it does not exist, or its class does not"
            elif controller == CONTROLLER and not _is_seen(_of_parent(raw, reference)):
                yield f"{where}: no controller has reconciled it"
        return
    controller = parents.controller(raw)
    if controller is None and raw["kind"] == GATEWAYS.kind:
        yield f"there is no GatewayClass {raw['spec'].get('gatewayClassName')}"
    elif controller is None:
        yield "its Gateway does not exist, or its class does not"
    elif controller == CONTROLLER and not _is_seen((raw.get("status") or {}).get("conditions") or ()):
        yield "no controller has reconciled it"


def _of_parent(raw: JsonObject, reference: JsonObject) -> Sequence[JsonObject]:
    """Return our conditions of a route for one of its parents."""
    keys = ("kind", "namespace", "name", "sectionName", "port")
    found: Sequence[JsonObject] = ()
    for each in (raw.get("status") or {}).get("parents") or ():
        about = {"kind": GATEWAYS.kind, "namespace": raw["metadata"]["namespace"], **(each.get("parentRef") or {})}
        wanted = {"kind": GATEWAYS.kind, "namespace": raw["metadata"]["namespace"], **reference}
        if each.get("controllerName") == CONTROLLER and all(about.get(key) == wanted.get(key) for key in keys):
            found = each.get("conditions") or ()
    return found


def _is_seen(conditions: Sequence[JsonObject]) -> bool:
    """Return True if a controller has decided: the API server itself writes conditions that are Unknown."""
    accepted = any(each.get("type") == "Accepted" for each in conditions)
    return accepted and all(each.get("status") != "Unknown" for each in conditions)


def is_of_another(raw: JsonObject, parents: Parents) -> bool:
    """Return True if an object is of other controllers alone."""
    namespace = raw["metadata"]["namespace"]
    if raw["kind"] in (GATEWAYS.kind, LISTENER_SETS.kind):
        of = [parents.controller(raw)]
    else:
        of = [parents.controller_of_parent(each, namespace) for each in raw["spec"].get("parentRefs") or ()]
    return bool(of) and all(controller and controller != CONTROLLER for controller in of)


def addresses_of(raw: JsonObject) -> list[str]:
    """Return a line for each address of a Gateway that says where it is from; none for other objects."""
    return [
        f"address {each.get('value')}: {_origin(each)}"
        for each in (raw.get("status") or {}).get("addresses") or ()
        if raw["kind"] == GATEWAYS.kind
    ]


def _origin(address: JsonObject) -> str:
    if address.get("routability") != CLUSTER:
        return "of an address pool"
    return f"a cluster IP, for clients inside the cluster (kubectl get ipaddress {address.get('value')})"


def _conditions(status: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield conditions with the part of the object that they are about."""
    for each in status.get("conditions") or ():
        yield "", each
    for listener in status.get("listeners") or ():
        for each in listener.get("conditions") or ():
            yield f"listener {listener.get('name')}: ", each
    for parent in status.get("parents") or ():
        if parent.get("controllerName") == CONTROLLER:
            reference = parent.get("parentRef") or {}
            for each in parent.get("conditions") or ():
                yield f"parent {reference.get('name')}: ", each


def of_all(objects: Iterable[JsonObject], parents: Parents, now: datetime) -> list[Finding]:
    """Return what is wrong with all objects that are ours, or nobody's; new ones may wait for a moment."""
    found = []
    for raw in objects:
        if raw["kind"] in (GATEWAYS.kind, LISTENER_SETS.kind) and parents.controller(raw) not in (CONTROLLER, None):
            continue
        created = timestamps.parse(raw["metadata"].get("creationTimestamp"))
        fresh = created is not None and (now - created).total_seconds() < _PATIENCE_S
        found += [each for each in of_object(raw, parents) if not (fresh and each.reason == NOT_RECONCILED)]
    return sorted(found, key=lambda each: (each.namespace, each.kind, each.name))


def not_judged(objects: Iterable[JsonObject], parents: Parents) -> str:
    """Say which objects ``of_all`` leaves out because the user may not know whose they are; empty if none."""
    known = {GATEWAY_CLASSES: parents.classes, GATEWAYS: parents.gateways}
    lacking = [each.kind for each, listed in known.items() if listed is None]
    unclear = [raw for raw in objects if raw["kind"] in (GATEWAYS.kind, LISTENER_SETS.kind)]
    unclear = [raw for raw in unclear if parents.controller(raw) == ""] if lacking else []
    shown = [f"{raw['kind'].lower()}/{raw['metadata']['name']}" for raw in unclear]
    why = f"you may not list every {' and every '.join(lacking)}, so it is unknown which controller is theirs"
    return f"not judged: {some_of(shown)}: {why}; 'why {shown[0]}' shows conditions" if shown else ""


def farms_of(raw: JsonObject, farms: Iterable[JsonObject]) -> Sequence[JsonObject]:
    """Return the farms that were made of a route, or for a Gateway or ListenerSet, by their labels."""
    wanted = tuple(names.shorten(raw["metadata"][each], names.LABEL_VALUE_MAX) for each in ("namespace", "name"))

    def belongs(farm: JsonObject) -> bool:
        labels, metadata = farm["metadata"].get("labels") or {}, farm["metadata"]
        if raw["kind"] == GATEWAYS.kind:
            return (labels.get(names.LABEL_GATEWAY_NAMESPACE), labels.get(names.LABEL_GATEWAY)) == wanted
        if raw["kind"] == LISTENER_SETS.kind:
            # An older operator named no namespace, and its farms stay as they are.
            namespace = labels.get(names.LABEL_LISTENER_SET_NAMESPACE, wanted[0])
            return (namespace, labels.get(names.LABEL_LISTENER_SET)) == wanted
        owners = metadata.get("ownerReferences") or ()
        return any(each.get("uid") == raw["metadata"]["uid"] for each in owners)

    return [farm for farm in farms if belongs(farm)]
