"""What is wrong with Gateways and routes of Gateway API, by their statuses. Pure: no I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kube_nftlb import names
from kube_nftlb.commands.cluster.finding import Finding, since
from kube_nftlb.kube.resources import GATEWAYS, LISTENER_SETS, TCP_ROUTES, UDP_ROUTES, JsonObject, Resource
from kube_nftlb.operator.gateway.objects import CLUSTER, CONTROLLER

KINDS: Final[Mapping[str, Resource]] = {
    each.kind.lower(): each for each in (GATEWAYS, LISTENER_SETS, TCP_ROUTES, UDP_ROUTES)
}
"""The kinds that can be asked for by KIND/NAME."""

_TODO: Final = "see docs/gateway.md"
_TOLD_ELSEWHERE: Final = ("Conflicted", "AddressesAssigned")
"""Types of conditions: what they tell is a reason why Programmed is false."""


def of_object(raw: JsonObject) -> list[Finding]:
    """Return what the status of a Gateway, ListenerSet or route says is wrong, as far as it is ours."""
    metadata, kind = raw["metadata"], str(raw["kind"])
    found: dict[tuple[str, str], Finding] = {}
    for where, condition in _conditions(raw.get("status") or {}):
        if condition.get("status") != "False" or condition.get("type") in _TOLD_ELSEWHERE:
            continue
        message = where + str(condition.get("message", ""))
        finding = Finding(
            kind.lower(), metadata["namespace"], metadata["name"], condition["reason"], message, _TODO, since(condition)
        )
        found.setdefault((finding.reason, message), finding)
    return list(found.values())


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


def of_all(classes: Iterable[JsonObject], objects: Iterable[JsonObject]) -> list[Finding]:
    """Return what is wrong with all objects that are ours."""
    ours = {raw["metadata"]["name"] for raw in classes if raw["spec"].get("controllerName") == CONTROLLER}
    objects = list(objects)
    gateways = {
        (raw["metadata"]["namespace"], raw["metadata"]["name"])
        for raw in objects
        if raw["kind"] == GATEWAYS.kind and raw["spec"].get("gatewayClassName") in ours
    }

    def is_ours(raw: JsonObject) -> bool:
        namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
        if raw["kind"] == LISTENER_SETS.kind:
            parent = raw["spec"].get("parentRef") or {}
            return (parent.get("namespace") or namespace, parent.get("name")) in gateways
        return raw["kind"] != GATEWAYS.kind or (namespace, name) in gateways

    findings = (finding for raw in objects if is_ours(raw) for finding in of_object(raw))
    return sorted(findings, key=lambda each: (each.namespace, each.kind, each.name))


def farms_of(raw: JsonObject, farms: Iterable[JsonObject]) -> Sequence[JsonObject]:
    """Return the farms that were made of a route, or for a Gateway or ListenerSet, by their labels."""
    namespace, name = raw["metadata"]["namespace"], names.shorten(raw["metadata"]["name"], names.LABEL_VALUE_MAX)

    def belongs(farm: JsonObject) -> bool:
        labels, metadata = farm["metadata"].get("labels") or {}, farm["metadata"]
        if raw["kind"] == GATEWAYS.kind:
            of_namespace = names.shorten(namespace, names.LABEL_VALUE_MAX)
            return (labels.get(names.LABEL_GATEWAY_NAMESPACE), labels.get(names.LABEL_GATEWAY)) == (of_namespace, name)
        if raw["kind"] == LISTENER_SETS.kind:
            return bool(labels.get(names.LABEL_LISTENER_SET) == name)
        owners = metadata.get("ownerReferences") or ()
        return any(each.get("uid") == raw["metadata"]["uid"] for each in owners)

    return [farm for farm in farms if belongs(farm)]
