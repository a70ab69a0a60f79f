"""``kubectl nftlb get SERVICE``: what each node does with connections to a Service. Pure: no I/O.

Nodes that do the same are shown together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kube_nftlb import addresses, names
from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.endpoints.selection import groups, priority_in_use
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.table import layout
from kube_nftlb.agent.table.traffic_policy import masqueraded
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.conflicts import Conflict, FarmKey
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.farm.address import Address
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.api.values import expand_ports, join_ports
from kube_nftlb.commands.cluster.announced import Announced, where
from kube_nftlb.commands.cluster.finding import condition
from kube_nftlb.commands.cluster.findings import accepted_in_part
from kube_nftlb.commands.cluster.pending_nodes import pending_nodes
from kube_nftlb.commands.cluster.service_tree import AddressView, BackendView, FarmView, NodesView, ServiceView
from kube_nftlb.commands.view import ClusterView, referred
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.prose import counted, some_of

_MASQUERADED_CLIENTS: Mapping[str, str] = {
    layout.ALWAYS: "all clients",
    layout.FROM_OUTSIDE: "all clients but the node's own pods",
    layout.FROM_ITSELF: "only the node's own processes",
}


def farms_about(service: Service, view: ClusterView) -> list[JsonObject]:
    """Return the farms of a Service and those that refer to it, by name."""
    return sorted((raw for raw in view.farms if concerns(raw, service)), key=lambda raw: str(raw["metadata"]["name"]))


def concerns(raw: JsonObject, service: Service) -> bool:
    """Return True for a farm that was made of a Service, or that refers to it, maybe from another namespace."""
    key = ServiceKey(service.metadata.namespace, service.metadata.name)
    made_of = (raw["metadata"]["namespace"], (raw["metadata"].get("labels") or {}).get(names.LABEL_SERVICE))
    return key in (made_of, *referred(raw))


def view(service: Service, cluster: ClusterView, why_none: str = "") -> ServiceView:
    """Return what becomes of connections to a Service; ``why_none`` says why it has no farms."""
    spec = service.spec
    ports = ", ".join(f"{port.name or ''}{':' if port.name else ''}{port.port}/{port.protocol}" for port in spec.ports)
    shown = tuple(_farm(raw, cluster, service.metadata.namespace) for raw in farms_about(service, cluster))
    note = f"no farms: {why_none}" if not shown else ""
    ips = " ".join(spec.cluster_ips or (spec.cluster_ip,))
    name = f"{service.metadata.namespace}/{service.metadata.name}"
    return ServiceView(name, " ".join(text for text in (spec.type, ips, ports) if text), note, shown)


@dataclass(frozen=True)
class _OnNodes:
    """A farm as each node serves it, and the conflicts that it loses there."""

    farm: Farm
    cluster: ClusterView
    farms: Mapping[str, NodeFarm]
    conflicts: Mapping[str, Sequence[Conflict]]


def _farm(raw: JsonObject, cluster: ClusterView, of_namespace: str) -> FarmView:
    """Return a farm, with its namespace in its name if that is another than the Service's."""
    name, key = str(raw["metadata"]["name"]), FarmKey.of(raw)
    if key.namespace != of_namespace:
        name = f"{key.namespace}/{name}"
    if isinstance(farm := cluster.farm(key), str):
        return FarmView(name, "", f"invalid: {farm}")
    spec, failures = farm.spec, {each.node: each for each in cluster.failures.get(key, ())}
    on_nodes = _OnNodes(
        farm,
        cluster,
        {node: cluster.on_node(farm, node) for node in cluster.facts},
        {node: cluster.conflicts(farm, node) for node in cluster.facts},
    )
    used: set[str] = set()
    pending = pending_nodes(raw, cluster)
    nodes_by_behaviour: dict[tuple[str, tuple[BackendView, ...]], list[str]] = {}
    for node, here in on_nodes.farms.items():
        backends = tuple(sorted(_used(here, node), key=lambda each: (each.group, each.node, each.name)))
        used |= {each.name for each in backends}
        behaviour = _behaviour(here, lost=bool(on_nodes.conflicts[node]))
        if (failure := failures.get(node)) is not None:
            behaviour = f"{failure.reason}: {failure.message}"
        elif node in pending:
            behaviour += ", once it has programmed the last change"
        nodes_by_behaviour.setdefault((behaviour, backends), []).append(node)
    options = [f"engine {spec.engine}", f"mode {spec.mode}", f"scheduler {spec.scheduler}"]
    options += [f"persistence {spec.persistence}"] if spec.persistence != "none" else []
    options += ["traffic policy Local"] if spec.traffic_policy == "Local" else []
    options += [f"state {spec.state}"] if spec.state != "up" else []
    options += [_groups(spec)] if len(spec.backends_from) > 1 else []
    return FarmView(
        name,
        ", ".join(options),
        _state(raw),
        tuple(_address(each, on_nodes) for each in spec.addresses),
        tuple(NodesView(tuple(nodes), does, backends) for (does, backends), nodes in nodes_by_behaviour.items()),
        tuple(_backend_view(each, spec, _why_not(each, spec)) for each in spec.backends if each.name not in used),
    )


def _state(raw: JsonObject) -> str:
    """Return how far the farm is, in the words of its conditions."""
    status = raw.get("status") or {}
    for kind in ("Accepted", "Programmed", "EndpointsProgrammed"):
        found = condition(raw, kind)
        if found is not None and found["status"] != "True":
            return f"{found['reason']}: {found.get('message', '')}"
    if (accepted := accepted_in_part(raw)) is not None:
        return f"{accepted['reason']}: {accepted.get('message', '')}"
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
        yield _backend_view(backend, here.spec, gets)


def _groups(spec: FarmSpec) -> str:
    """Return the groups of a farm, with what each gets of new connections."""
    total = sum(each.weight for each in spec.backends_from) or 1
    groups = (f"{each.full_name or 'refused'} {each.weight / total:.3g}" for each in spec.backends_from)
    return f"groups {', '.join(groups)}"


def _backend_view(backend: Backend, spec: FarmSpec, gets: str) -> BackendView:
    address = addresses.with_port(backend.ip, backend.port) if backend.port else backend.ip
    group = spec.backends_from[backend.group].full_name if len(spec.backends_from) > 1 else ""
    return BackendView(backend.name, address, backend.node_name or "", backend.weight, gets, group)


def _why_not(backend: Backend, spec: FarmSpec) -> str:
    if spec.state in ("off", "down"):
        return f"the farm's state is {spec.state}"
    group = next((each for each in groups(spec) if each.number == backend.group), None)
    if group is None:
        return "the weight of its group is 0"
    if backend.state != "up":
        return f"state {backend.state}"
    if not backend.ready:
        return "not ready"
    if backend.priority > priority_in_use(group.spec):
        return f"on standby: priority {backend.priority}"
    return "meant for other nodes or zones" if backend.for_zones or backend.for_nodes else "on another node"


def _behaviour(here: NodeFarm, *, lost: bool) -> str:
    """Return what a node does with new connections; ``lost`` is True if other farms have addresses of it on_nodes."""
    if lost and not here.addresses:
        return "does not serve it: other farms have its addresses"
    if here.spec.mode == "local" and not here.suspended:
        return "the node itself answers"
    if here.refuses:
        return "refuses connections: no backend"
    if here.spec.traffic_policy == "Local" and not here.candidates.local and here.candidates.cluster:
        return "drops connections from outside: no backend of its own"
    if refused := _refused_share(here):
        return f"serves, and refuses {refused:.3g} of connections: no backend in their group"
    return "serves"


def _refused_share(here: NodeFarm) -> float:
    """Return the share of the groups that nobody serves."""
    total = sum(each.weight for each in here.groups) or 1
    return sum(each.weight for each in here.groups if each.refuses) / total


def _address(address: Address, on_nodes: _OnNodes) -> AddressView:
    spec = on_nodes.farm.spec
    shown = f"{addresses.with_port(address.ip or 'every node', address.ports or 'all ports')}/{spec.protocol}"
    lost, entirely = _lost(address, on_nodes)
    if entirely:
        return AddressView(shown, address.type, "", "", lost)
    ranges = address.source_ranges
    admitted = f"only {some_of(ranges, what='ranges')}" if ranges else "all clients"
    if named := sorted({*address.policies, *spec.policies}):
        policies = {raw["metadata"]["name"]: raw for raw in on_nodes.cluster.policies}
        admitted += "; policies " + ", ".join(_policy(name, policies) for name in named)
    announced = where(address.ip, Announced(on_nodes.cluster.nftlb_nodes)) if address.type == "LoadBalancer" else ""
    return AddressView(shown, address.type, admitted, _masqueraded(address, on_nodes), lost, announced)


def _lost(address: Address, on_nodes: _OnNodes) -> tuple[str, bool]:
    """Return the farms that have an address, or part of it, as a sentence, and whether nothing of it is left anywhere.

    The sentence is empty if no other farm has any of it.
    """
    spec, nodes = on_nodes.farm.spec, on_nodes.cluster.facts
    ports = expand_ports(address.ports) or [ALL_PORTS]
    lost: dict[str, list[Conflict]] = {}
    entirely = True
    for node, facts in nodes.items():
        ips = [address.ip] if address.ip else facts.port_ips.get(spec.family, ())
        wanted = {Listener(ip, spec.protocol, port) for ip in ips for port in ports}
        if here := [each for each in on_nodes.conflicts[node] if each.lost in wanted]:
            lost[node] = here
        entirely &= len({each.lost for each in here}) == len(wanted)
    if not lost:
        return "", False
    conflicts = [each for here in lost.values() for each in here]
    lost_ports = sorted({each.lost.port for each in conflicts})
    winners = sorted({"/".join(each.winner) for each in conflicts})
    what = "it" if len(lost_ports) == len(ports) else f"port {join_ports(lost_ports)}"
    where = "" if len(lost) == len(nodes) else f" on {some_of(sorted(lost), what='nodes')}"
    return f"{', '.join(winners)} {'have' if len(winners) > 1 else 'has'} {what}{where}", entirely


def _masqueraded(address: Address, on_nodes: _OnNodes) -> str:
    """Return whose addresses backends do not see. It is the same on all nodes, so one without conflicts will do."""
    spec = on_nodes.farm.spec
    if spec.mode == "snat":
        return "all clients" + (f", as {spec.source_address}" if spec.source_address else "")
    if (sample := on_nodes.cluster.without_conflicts(on_nodes.farm)) is None:
        return "nobody"
    chains = dict(masqueraded(sample))
    port = (*expand_ports(address.ports), ALL_PORTS)[0]
    listeners = [Listener(each.ip, spec.protocol, port) for each in sample.addresses if each.type == address.type]
    found = next((chains[each] for each in listeners if each in chains), "")
    who = _MASQUERADED_CLIENTS.get(found, "nobody")
    hairpin = spec.masquerade != "Never" and spec.mode == "dnat" and found != layout.ALWAYS
    return f"{who}{', and pods that are their own backend' if hairpin else ''}"


def _policy(name: str, policies: Mapping[str, JsonObject]) -> str:
    if (raw := policies.get(name)) is None:
        return f"{name} (missing: nobody is admitted)"
    spec = raw.get("spec") or {}
    does = "allows" if spec.get("type") == "allow" else "denies"
    return f"{name} ({does} {counted(len(spec.get('cidrs') or ()), 'range')})"
