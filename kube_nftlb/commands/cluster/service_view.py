"""``kubectl nftlb get SERVICE``: what each node does with connections to a Service, as its agent decides it. No I/O.

Nodes with the same answer are shown together.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from kube_nftlb import addresses, names
from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.endpoints.selection import priority_in_use
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.table import layout
from kube_nftlb.agent.table.traffic_policy import masqueraded
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import first_error
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.farm.address import Address
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.api.values import expand_ports
from kube_nftlb.commands.cluster.findings import Failures, accepted_in_part, condition
from kube_nftlb.commands.cluster.losses import FarmLosses, Losses
from kube_nftlb.commands.cluster.views import AddressView, BackendView, FarmView, NodesView, ServiceView
from kube_nftlb.endpointslices.backends import resolved_spec
from kube_nftlb.endpointslices.slices import Slice
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.operator.farms.ports import serves
from kube_nftlb.prose import some_of

_WHO: Mapping[str, str] = {
    layout.ALWAYS: "all clients",
    layout.FROM_OUTSIDE: "all clients but the node's own pods",
    layout.FROM_ITSELF: "only the node's own processes",
}


@dataclass(frozen=True)
class Cluster:
    """The other objects that the answer depends on."""

    slices: tuple[Slice, ...]
    nodes: tuple[NodeFacts, ...]
    policies: Mapping[str, JsonObject]
    failed: Failures
    rivals: tuple[JsonObject, ...] = ()
    """Farms of other namespaces that want the same addresses."""


def farms_about(service: Service, farms: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the farms of a Service and those that refer to it, by name."""
    name = service.metadata.name

    def concerns(raw: JsonObject) -> bool:
        labels, spec = raw["metadata"].get("labels") or {}, raw.get("spec") or {}
        return name in (labels.get(names.LABEL_SERVICE), (spec.get("backendsFrom") or {}).get("service"))

    return sorted((raw for raw in farms if concerns(raw)), key=lambda raw: str(raw["metadata"]["name"]))


def view(service: Service, farms: Iterable[JsonObject], cluster: Cluster) -> ServiceView:
    """Return what becomes of connections to a Service."""
    spec = service.spec
    ports = ", ".join(f"{port.name or ''}{':' if port.name else ''}{port.port}/{port.protocol}" for port in spec.ports)
    everything = list(farms)
    losses = Losses((*everything, *cluster.rivals), cluster.nodes)
    shown = tuple(_farm(raw, cluster, losses) for raw in farms_about(service, everything))
    note = ""
    if not shown:
        reason = "the operator has not made them yet, or is not running"
        if not serves(service):
            reason = "it is headless, of type ExternalName, or of another proxy"
        note = f"no farms: {reason}"
    ips = " ".join(spec.cluster_ips or (spec.cluster_ip,))
    name = f"{service.metadata.namespace}/{service.metadata.name}"
    return ServiceView(name, " ".join(text for text in (spec.type, ips, ports) if text), note, shown)


def _farm(raw: JsonObject, cluster: Cluster, losses: Losses) -> FarmView:
    name = str(raw["metadata"]["name"])
    state = _state(raw)
    try:
        farm = Farm.model_validate({key: raw.get(key) for key in ("metadata", "spec")})
    except ValidationError as error:
        return FarmView(name, "", f"invalid: {first_error(error)}")
    farm = farm.model_copy(update={"spec": resolved_spec(farm.spec, cluster.slices)})
    spec, failed = farm.spec, {each.node: each for each in cluster.failed.get(_key(raw), ())}
    lost = losses.of(farm)
    on_nodes = {facts.name: node_farm(farm, facts, None, lost.listeners(facts.name)) for facts in cluster.nodes}
    used: set[str] = set()
    answers: dict[tuple[str, tuple[BackendView, ...]], list[str]] = {}
    for facts in cluster.nodes:
        here = on_nodes[facts.name]
        backends = tuple(sorted(_used(here, facts.name), key=lambda each: (each.node, each.name)))
        used |= {each.name for each in backends}
        does = _does(here, lost=bool(lost.listeners(facts.name)))
        if (problem := failed.get(facts.name)) is not None:
            does = f"{problem.reason}: {problem.message}"
        answers.setdefault((does, backends), []).append(facts.name)
    unused = tuple(_backend_view(each, _why_not(each, spec)) for each in spec.backends if each.name not in used)
    sample = next((node_farm(farm, facts, None) for facts in cluster.nodes), None)
    options = [f"engine {spec.engine}", f"mode {spec.mode}", f"scheduler {spec.scheduler}"]
    options += [f"persistence {spec.persistence}"] if spec.persistence != "none" else []
    options += ["traffic policy Local"] if spec.traffic_policy == "Local" else []
    options += [f"state {spec.state}"] if spec.state != "up" else []
    return FarmView(
        name,
        ", ".join(options),
        state,
        tuple(_address(each, farm, sample, cluster.policies, lost) for each in spec.addresses),
        tuple(NodesView(tuple(nodes), does, backends) for (does, backends), nodes in answers.items()),
        unused,
    )


def _key(raw: JsonObject) -> FarmKey:
    return FarmKey(raw["metadata"]["namespace"], raw["metadata"]["name"])


def _state(raw: JsonObject) -> str:
    """Return how far the farm is, in the words of its conditions."""
    status = raw.get("status") or {}
    for kind in ("Accepted", "Programmed", "EndpointsProgrammed"):
        told = condition(raw, kind)
        if told is not None and told["status"] != "True":
            return f"{told['reason']}: {told.get('message', '')}"
    if (told := accepted_in_part(raw)) is not None:
        return f"{told['reason']}: {told.get('message', '')}"
    return f"programmed on {status['nodes']} nodes" if status.get("nodes") else "no status yet"


def _used(here: NodeFarm, node: str) -> Iterator[BackendView]:
    for each in here.endpoints:
        backend = each.backend
        if modes.is_stateless(here.spec) and backend.node_name != node:
            # The agent also looks at the bridges of its node, which the API server does not know.
            continue
        if each.schedulable:
            gets = "connections"
        elif backend.state == "drain" or here.spec.state == "drain":
            gets = "drains: no new clients"
        elif backend.terminating:
            gets = "terminating: only what it has"
        else:
            gets = "only clients on this node"
        yield _backend_view(backend, gets)


def _backend_view(backend: Backend, gets: str) -> BackendView:
    address = addresses.with_port(backend.ip, backend.port) if backend.port else backend.ip
    return BackendView(backend.name, address, backend.node_name or "", backend.weight, gets)


def _why_not(backend: Backend, spec: FarmSpec) -> str:
    if spec.state in ("off", "down"):
        return f"the farm's state is {spec.state}"
    if backend.state != "up":
        return f"state {backend.state}"
    if not backend.ready:
        return "not ready"
    if backend.priority > priority_in_use(spec):
        return f"on standby: priority {backend.priority}"
    return "meant for other nodes or zones" if backend.for_zones or backend.for_nodes else "on another node"


def _does(here: NodeFarm, *, lost: bool) -> str:
    """Return what a node does with new connections; ``lost`` is True if other farms have addresses of it there."""
    if lost and not here.addresses:
        return "does not serve it: other farms have its addresses"
    if here.spec.mode == "local" and not here.suspended:
        return "the node itself answers"
    if here.refuses:
        return "refuses connections: no backend"
    if here.spec.traffic_policy == "Local" and not here.candidates.local and here.candidates.cluster:
        return "drops connections from outside: no backend of its own"
    return "serves"


def _address(
    address: Address, farm: Farm, sample: NodeFarm | None, policies: Mapping[str, JsonObject], losses: FarmLosses
) -> AddressView:
    ports = address.ports or "all ports"
    shown = f"{addresses.with_port(address.ip or 'every node', ports)}/{farm.spec.protocol}"
    lost = losses.of_address(address)
    if lost.everything:
        return AddressView(shown, address.type, "", "", lost.told)
    ranges = address.source_ranges
    admitted = f"only {some_of(ranges, what='ranges')}" if ranges else "all clients"
    if named := sorted({*address.policies, *farm.spec.policies}):
        admitted += "; policies " + ", ".join(_policy(name, policies) for name in named)
    return AddressView(shown, address.type, admitted, _masqueraded(address, farm.spec, sample), lost.told)


def _masqueraded(address: Address, spec: FarmSpec, sample: NodeFarm | None) -> str:
    """Return whose addresses backends do not see."""
    if spec.mode == "snat":
        return "all clients" + (f", as {spec.source_address}" if spec.source_address else "")
    if sample is None:
        return "nobody"
    chains = dict(masqueraded(sample))
    port = (*expand_ports(address.ports), ALL_PORTS)[0]
    listeners = [Listener(each.ip, spec.protocol, port) for each in sample.addresses if each.type == address.type]
    found = next((chains[each] for each in listeners if each in chains), "")
    who = _WHO.get(found, "nobody")
    hairpin = spec.masquerade != "Never" and spec.mode == "dnat" and found != layout.ALWAYS
    return f"{who}{', and pods that are their own backend' if hairpin else ''}"


def _policy(name: str, policies: Mapping[str, JsonObject]) -> str:
    if (raw := policies.get(name)) is None:
        return f"{name} (missing: nobody is admitted)"
    spec = raw.get("spec") or {}
    return f"{name} ({spec.get('type')} {len(spec.get('cidrs') or ())} ranges)"
