"""The forecast for a connection from the API server's objects, by the functions of the agents. Pure: no I/O."""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kube_nftlb import addresses
from kube_nftlb.agent.engine.nftables import timeouts
from kube_nftlb.agent.informers import parse, parsed_slice
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts, gather
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.table import layout, traffic_policy
from kube_nftlb.agent.table.policy_references import references
from kube_nftlb.agent.table.policy_sets import policy
from kube_nftlb.api.conflicts import Conflict, Conflicts, FarmKey, Loss, farm_key, lost_listeners
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.policy import PolicySpec, address_range
from kube_nftlb.api.values import Protocol
from kube_nftlb.commands.trace import outcomes
from kube_nftlb.commands.trace.passage import Outcome, Passage
from kube_nftlb.endpointslices.backends import resolved_spec
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.netfilter.tracing.table import Flow

Losses = dict[FarmKey, Loss]


class Objects(NamedTuple):
    """The objects that a connection depends on, as the API server has them.

    ``farms`` are those that have the address, or node ports; ``report`` is the NftlbNode, None if there is none.
    """

    node: JsonObject
    report: JsonObject | None
    farms: tuple[JsonObject, ...]
    slices: tuple[JsonObject, ...] = ()
    policies: tuple[JsonObject, ...] = ()
    service_ranges: tuple[str, ...] = ()


def forecast(flow: Flow, protocol: Protocol, objects: Objects) -> Passage:
    """Return what should happen to a new connection on a node that has programmed everything."""
    node = CoreNode.model_validate(objects.node)
    facts = gather(node.metadata.name, node)
    listener = Listener(flow.ip, protocol, flow.port)
    made = Passage(flow.client, addresses.with_port(flow.ip, flow.port), flow.protocol)
    farm, losses = _owner(objects, listener, facts)
    for key, loss in losses.items():
        if farm is None or key != farm_key(farm):
            winner = "/".join(_conflict(loss, listener).winner)
            made.step("conflict", f"{'/'.join(key)} wants the address too, which {winner} has")
    if farm is None:
        made.outcome = _without_farm(flow, objects.service_ranges)
        return made
    served = _served(_resolved(farm, objects.slices), facts, losses)
    made.farm, made.engine = served.name, served.spec.engine
    _reported(made, served, objects.report)
    made.outcome = (
        _policies(made, farm, listener, flow, objects.policies)
        or _source_ranges(made, served, listener, flow)
        or _endpoints(made, served, listener, flow, facts)
    )
    return made


def _owner(objects: Objects, listener: Listener, facts: NodeFacts) -> tuple[Farm | None, Losses]:
    """Return the farm that has a listener, and what the farms that want it lose."""
    conflicts = Conflicts()
    conflicts.set_nodes((), facts.all_port_ips)
    farms = [farm for raw in objects.farms if isinstance(farm := parse(raw), Farm)]
    for farm in farms:
        conflicts.put(farm)
    at = {listener, listener.whole_address}
    there = [farm for farm in farms if at & set(node_farm(farm, facts, None).listeners)]
    losses = {key: loss for farm in there if (loss := conflicts.get(key := farm_key(farm))) is not None}
    return next((farm for farm in there if at & set(_served(farm, facts, losses).listeners)), None), losses


def _served(farm: Farm, facts: NodeFacts, losses: Losses) -> NodeFarm:
    return node_farm(farm, facts, None, lost_listeners(losses.get(farm_key(farm))))


def _conflict(loss: Loss, listener: Listener) -> Conflict:
    """Return the conflict about a listener, or about the node port or the address that it is."""
    about = (each for each in loss.conflicts if each.lost in (listener, listener.whole_address))
    return next(about, loss.conflicts[0])


def _without_farm(flow: Flow, service_ranges: Iterable[str]) -> Outcome:
    ip = ipaddress.ip_address(flow.ip)
    if any(ip in ipaddress.ip_network(text) for text in service_ranges):
        return outcomes.NO_SUCH_SERVICE
    return Outcome("NotServed", "NoListener", "no farm has the destination: it is routed as any other packet")


def _resolved(farm: Farm, raws: Iterable[JsonObject]) -> Farm:
    slices = [found for raw in raws if (found := parsed_slice(raw)) is not None]
    return farm.model_copy(update={"spec": resolved_spec(farm.spec, slices)})


def _reported(made: Passage, served: NodeFarm, report: JsonObject | None) -> None:
    """Add what the node's agent reports of the farm."""
    if report is None:
        made.step("node", "it has no NftlbNode: does an agent run there?")
        return
    for failed in report.get("status", {}).get("failedFarms", ()):
        if (failed["namespace"], failed["name"]) == served.key:
            made.step("node", f"it reports the farm as failed: {failed['reason']}: {failed.get('message', '')}")


def _policies(made: Passage, farm: Farm, listener: Listener, flow: Flow, raws: Iterable[JsonObject]) -> Outcome | None:
    """Return why a policy drops the client, or None."""
    refers = references(farm)
    by_name = {raw["metadata"]["name"]: raw for raw in raws}
    enforced = {name: policy(by_name[name]) for name in sorted(refers.of(listener)) if name in by_name}
    if len(enforced) < len(refers.of(listener)) or any(each.invalid for each in enforced.values()):
        return outcomes.POLICY_MISSING
    on = {name for name in enforced if _contains(by_name[name], flow.client)}
    if denying := _named(farm, (name for name in on if not enforced[name].allows)):
        return outcomes.denied(denying)
    admitting = _named(farm, (name for name in on if enforced[name].allows))
    allowing = _named(farm, (name for name in enforced if enforced[name].allows))
    if allowing and not admitting:
        return outcomes.not_admitted(allowing)
    if enforced:
        made.step("policy", outcomes.admitted(admitting))
    return None


def _named(farm: Farm, names: Iterable[str]) -> list[str]:
    return [f"{farm.metadata.namespace}/{name}" for name in names]


def _contains(raw: JsonObject, client: str) -> bool:
    ip = ipaddress.ip_address(client)
    family = "ipv6" if ip.version == 6 else "ipv4"
    ranges = [address_range(cidr) for cidr in PolicySpec.model_validate(raw["spec"]).cidrs]
    return any(each.family == family and each.first <= int(ip) <= each.last for each in ranges)


def _source_ranges(made: Passage, served: NodeFarm, listener: Listener, flow: Flow) -> Outcome | None:
    ip = ipaddress.ip_address(flow.client)
    for address in served.addresses:
        if address.source_ranges and listener in address.listeners():
            if not any(ip in ipaddress.ip_network(cidr) for cidr in address.source_ranges):
                return outcomes.OUTSIDE_SOURCE_RANGES
            made.step("source range", "the client is in a source range")
    return None


def _endpoints(made: Passage, served: NodeFarm, listener: Listener, flow: Flow, facts: NodeFacts) -> Outcome:
    """Return what the farm does with a client that may connect."""
    spec, inside = served.spec, _is_of_node(flow.client, facts)
    if served.refuses:
        return outcomes.NO_READY_BACKENDS
    verdicts = _values(served, layout.NO_ENDPOINTS, listener)
    if any(value == layout.DROP or not inside for value in verdicts):
        return outcomes.NO_LOCAL_BACKEND
    if limits := [name for name in ("new", "established") if getattr(spec.limits, name) is not None]:
        made.step("limit", f"connections above {' and '.join(f'limits.{name}' for name in limits)} are dropped")
    scheduled = [each.backend for each in served.endpoints if each.schedulable]
    if inside and spec.traffic_policy == "Local" and _is_outside(served, listener):
        scheduled = list(served.candidates.cluster)
    if spec.persistence != "none":
        ttl_s = timeouts.rounded(spec.persist_ttl) if spec.engine == "nftables" else spec.persist_ttl
        made.step("session", f"a client keeps its backend for {ttl_s} s (persistence {spec.persistence})")
    if spec.mode == "local":
        return outcomes.NODE_ITSELF
    made.step("choice", f"the scheduler: {spec.scheduler}, among {len(scheduled)}")
    for backend in scheduled:
        made.step("backend", f"{addresses.with_port(backend.ip, backend.port or flow.port)} ({backend.name})")
    made.step("source", _source(served, listener, flow.client, facts, inside=inside))
    return Outcome(
        "Served", "BackendChosen", f"sent to {'one of the backends' if len(scheduled) > 1 else 'the backend'}"
    )


def _is_of_node(client: str, facts: NodeFacts) -> bool:
    """Return True if a client is the node itself or one of its pods."""
    ip = ipaddress.ip_address(client)
    own = [ipaddress.ip_network(text) for texts in facts.pod_cidrs.values() for text in texts]
    return _is_node(client, facts) or any(ip in network for network in own)


def _is_node(client: str, facts: NodeFacts) -> bool:
    return client in facts.all_port_ips


def _is_outside(served: NodeFarm, listener: Listener) -> bool:
    return any(listener in address.listeners() for address in served.addresses if address.type != "ClusterIP")


def _values(served: NodeFarm, name: str, listener: Listener) -> Iterator[str]:
    """Yield what the agent table has for a listener in one of its maps."""
    keys = {layout.listener(name, each)[:2] for each in (listener, listener.whole_address)}
    return (entry.value for entry in traffic_policy.contents(served).elements if entry[:2] in keys)


def _source(served: NodeFarm, listener: Listener, client: str, facts: NodeFacts, *, inside: bool) -> str:
    """Return whether a backend sees the client or the node."""
    masqueraded = f"goto {layout.ALWAYS}" in (found := set(_values(served, layout.MASQUERADE, listener)))
    masqueraded |= f"goto {layout.FROM_OUTSIDE}" in found and (not inside or _is_node(client, facts))
    masqueraded |= f"goto {layout.FROM_ITSELF}" in found and _is_node(client, facts)
    if served.spec.source_address is not None:
        return f"the backend sees {served.spec.source_address}"
    if served.spec.mode == "snat" or masqueraded:
        return "masqueraded: the backend sees the node"
    if client in traffic_policy.hairpins(served):
        return "not masqueraded, unless the client is its own backend"
    return "not masqueraded: the backend sees the client"
