"""Decide the status of a farm, from its conflicts and the reports of nodes. No I/O."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from kube_nftlb import addresses
from kube_nftlb.api.base import Condition
from kube_nftlb.api.conflicts import Conflict, Loss
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.api.farm.status import AddressStatus
from kube_nftlb.api.listeners import ALL_PORTS, Listener, is_node_port
from kube_nftlb.kube.events import Lasting
from kube_nftlb.operator.cache.farm_record import FarmRecord, Owner
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.operator.model.failures import describe
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.operator.status.farm_endpoints import FarmEndpoints
from kube_nftlb.prose import IF_IT_LASTS, some_of
from kube_nftlb.reasons import ConditionReason

_CONFLICTS_SHOWN_MAX = 3

NO_NODES = "no node runs an agent; see whether the pods of the agent are there, and their logs"


class Verdict(NamedTuple):
    """One condition: its status, a reason in CamelCase and a message for people."""

    status: Literal["True", "False"]
    reason: ConditionReason
    message: str


def decide(
    farm: FarmRecord,
    endpoints: FarmEndpoints,
    loss: Loss | None,
    nodes: Iterable[NodeRecord],
    now: str,
    refused_ips: Sequence[Rejection] = (),
    refused: str | None = None,
) -> FarmStatus:
    """Return the status of a farm; ``now`` (RFC 3339) is the time of conditions that change.

    ``loss`` are the listeners that other farms have (``conflicts.Conflicts.get``), ``refused_ips`` the external IPs
    that its Service does not get; ``refused`` says why the farm does not fit the budget of its namespace, None if it
    does. ``reason`` is the first of: not accepted, failed on a node, no node, not yet on all nodes (the farm, then its
    endpoints), no ready backend or only terminating ones, accepted in part, a part without effect; ``""`` if none is.
    """
    everywhere = list(nodes)
    done = [node for node in everywhere if programmed(farm, node)]
    current = [node for node in done if endpoints_programmed(endpoints, node)]
    accepted = accept(farm, loss, refused_ips, refused)
    on_nodes = _on_nodes(farm, accepted, everywhere, len(done))
    verdicts = {"Accepted": accepted, "Programmed": on_nodes}
    verdicts["EndpointsProgrammed"] = on_nodes if on_nodes.status == "False" else _endpoints(endpoints, everywhere)
    blocker = next((verdict for verdict in verdicts.values() if verdict.status == "False"), None)
    if blocker is None:
        blocker = _without_backends(farm, endpoints)
    if blocker is None and accepted.reason != "Valid":
        blocker = accepted
    reason = f"{blocker.reason}: {blocker.message}" if blocker is not None else _warning(farm, everywhere)
    return FarmStatus(
        observed_generation=farm.generation,
        resource_version=str(farm.since),
        ready_backends=endpoints.ready,
        total_backends=endpoints.total,
        backends_ready=f"{endpoints.ready}/{endpoints.total}",
        backends=endpoints.shown,
        omitted_backends=endpoints.total - len(endpoints.shown) if farm.reference is not None else 0,
        addresses=tuple(_announced(farm, everywhere)),
        programmed_nodes=len(done) if accepted.status == "True" else 0,
        total_nodes=len(everywhere),
        nodes=f"{len(current) if accepted.status == 'True' else 0}/{len(everywhere)}",
        reason=reason,
        conditions=tuple(_condition(kind, verdict, farm, now) for kind, verdict in verdicts.items()),
    )


def _announced(farm: FarmRecord, nodes: list[NodeRecord]) -> Iterator[AddressStatus]:
    for ip in sorted(farm.balanced):
        # By BGP there are many: the first stands for all. What a silent agent has told last is true no longer.
        if (name := next((node.name for node in nodes if ip in node.announced and not node.silent), None)) is not None:
            yield AddressStatus(ip=ip, announced_by=name)


def programmed(farm: FarmRecord, node: NodeRecord) -> bool:
    """Return True if a node has programmed this generation of the farm."""
    failed = (farm.key, farm.generation) in node.failed or farm.key.namespace in node.failed_namespaces
    return node.ready and node.watermark >= farm.since and not failed


def endpoints_programmed(endpoints: FarmEndpoints, node: NodeRecord) -> bool:
    """Return True if a node has programmed the endpoints of its farms up to the last change of these."""
    return node.slice_watermark >= endpoints.changed_at


def accept(
    farm: FarmRecord, loss: Loss | None, refused_ips: Sequence[Rejection] = (), refused: str | None = None
) -> Verdict:
    """Decide the condition Accepted: if the farm may be programmed. One that lacks some addresses may; it says so."""
    if farm.invalid:
        return Verdict("False", "Invalid", farm.invalid)
    if refused:
        return Verdict("False", "TooManyFarms", refused)
    if loss is not None:
        return Verdict("False" if loss.everything else "True", "AddressConflict", conflict(loss).message)
    if refused_ips:
        return Verdict("True", "ExternalIPRefused", "; ".join(each.message for each in refused_ips))
    return Verdict("True", "Valid", "the spec is valid and no other farm has its addresses")


def conflict(loss: Loss) -> Rejection:
    """Return the reason and message for a farm that loses conflicts."""
    sentences = list(dict.fromkeys(_won(each) for each in loss.conflicts))
    more = len(sentences) - _CONFLICTS_SHOWN_MAX
    message = ", ".join(sentences[:_CONFLICTS_SHOWN_MAX]) + (f" (and {more} more)" if more > 0 else "")
    rest = "" if loss.everything else "; the rest is served"
    return Rejection("AddressConflict", f"{message}{rest}; give one of the two another address or port, or delete one")


def _won(lost: Conflict) -> str:
    has = f"{lost.winner.namespace}/{lost.winner.name} has {_shown(lost.listener)}"
    included = lost.lost != lost.listener and lost.lost.port != ALL_PORTS
    return f"{has}, which includes {_shown(lost.lost)}" if included else has


def _shown(listener: Listener) -> str:
    ip, protocol, port = listener
    if is_node_port(listener):
        return f"node port {port}/{protocol}" if port else "all ports of the nodes"
    shown = addresses.bracketed(ip)
    return f"{shown}:{port}/{protocol}" if port else f"all of {shown}"


def problems_of_farm(loss: Loss | None, status: FarmStatus) -> list[Lasting]:
    """Return the problems of a farm to report in Events."""
    lost = [Lasting(*conflict(loss))] if loss is not None else []
    refused = [condition for condition in status.conditions if condition.reason == "TooManyFarms"]
    lost.extend(Lasting("TooManyFarms", condition.message) for condition in refused)
    failed = [condition for condition in status.conditions if condition.reason == "Failed"]
    return [*lost, *(Lasting("FarmFailed", condition.message) for condition in failed)]


def forged(owner: Owner) -> Rejection:
    """Return the reason and message for a farm with a Service or route as its controller that did not create it."""
    maker = f"the {'route' if owner.is_route else 'Service'} {owner.name[:63]}"
    message = f"{maker} did not create it, though it is the controller in its ownerReferences"
    return Rejection("ForgedOwner", f"{message}; controller is set to false, and it counts as a farm written by hand")


def _on_nodes(farm: FarmRecord, accepted: Verdict, nodes: list[NodeRecord], done: int) -> Verdict:
    if accepted.status == "False":
        return Verdict("False", "NotAccepted", "see the condition Accepted")
    if not nodes:
        return Verdict("False", "NoNodes", NO_NODES)
    if done == len(nodes):
        return Verdict("True", "AllNodes", f"all nodes ({done}) have it")
    failed = sorted(node.failed[key] for node in nodes if (key := (farm.key, farm.generation)) in node.failed)
    if failed:
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return Verdict("False", "Failed", f"node {failed[0].node}{more}: {describe(failed, len(nodes))}")
    missing = [node.name for node in nodes if not programmed(farm, node)]
    return Verdict("False", "Pending", waiting_for(missing, len(nodes)))


def _warning(farm: FarmRecord, nodes: list[NodeRecord]) -> str:
    """Return that a part of a farm has no effect on the first node that says so; "" if all has."""
    said = sorted(node.warnings[key] for node in nodes if (key := (farm.key, farm.generation)) in node.warnings)
    return describe(said, len(nodes)) if said else ""


def _endpoints(endpoints: FarmEndpoints, nodes: list[NodeRecord]) -> Verdict:
    missing = [node.name for node in nodes if not endpoints_programmed(endpoints, node)]
    if missing:
        return Verdict("False", "EndpointsPending", waiting_for(missing, len(nodes)))
    return Verdict("True", "AllNodes", f"all nodes ({len(nodes)}) have the backends that are shown")


def waiting_for(missing: list[str], total: int) -> str:
    """Return a message about the nodes that have not programmed something yet."""
    ordered = sorted(missing)
    waiting = some_of(ordered)
    hint = f"{IF_IT_LASTS}see kubectl describe nftlbnode {ordered[0]}"
    return f"{total - len(missing)} of {total} nodes have it; waiting for {waiting}{hint}"


def _without_backends(farm: FarmRecord, endpoints: FarmEndpoints) -> Verdict | None:
    """Return which connections are refused for want of backends, or that the last ones are about to go; else None."""
    if farm.state != "up":
        rest = ", open ones go on" if farm.state == "drain" else ""
        message = f"the farm's state is {farm.state}: new connections are refused{rest}"
        return Verdict("False", "NoReadyBackends", message)
    if farm.is_local:
        return None
    if endpoints.unserved and (endpoints.ready or endpoints.terminating):
        return Verdict("False", "NoReadyBackends", some_of(endpoints.unserved, what="groups"))
    if endpoints.ready:
        return None
    if endpoints.terminating:
        message = "only terminating backends are left, which still get connections"
        return Verdict("False", "TerminatingBackends", message)
    if endpoints.total:
        none = f"none of {endpoints.total} backends is ready and in the state up"
        who = none if endpoints.total > 1 else "its only backend is not ready, or not in the state up"
        return Verdict("False", "NoReadyBackends", f"{who}: new connections are refused; see the Pods")
    where = "; see the Service's selector, the labels of the Pods, and the name of targetPort" if farm.port else ""
    return Verdict("False", "NoReadyBackends", f"there are no backends{where}")


def _condition(kind: str, verdict: Verdict, farm: FarmRecord, now: str) -> Condition:
    since = next(
        (time for each, status, time in farm.status.transitions if (each, status) == (kind, verdict.status)), now
    )
    return Condition(
        type=kind,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message,
        observed_generation=farm.generation,
        last_transition_time=since,
    )
