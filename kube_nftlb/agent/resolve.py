"""Resolve an NftlbFarm for this node. Pure: no I/O."""

from collections.abc import Collection, Iterable, Iterator

from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.dsr.modes import Links
from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.endpoints.selection import Group, NodeBackend
from kube_nftlb.agent.endpoints.topology import Endpoints
from kube_nftlb.agent.model import NodeAddress, NodeFarm, NodeGroup, Version
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table.source_ranges import admitted
from kube_nftlb.api.conflicts import farm_key
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.values import join_ports


def node_farm(farm: Farm, facts: NodeFacts, links: Links | None, lost: Collection[Listener] = frozenset()) -> NodeFarm:
    """Return a farm as the node should serve it, if nothing prevents that.

    ``lost`` are listeners that others have. ``links`` is None if they are unknown; packets of the mode dsr are not
    routed then.
    """
    spec = farm.spec
    groups = tuple(_group(each, facts) for each in selection.groups(spec))
    endpoints = tuple(endpoint for each in groups for endpoint in each.endpoints)
    candidates = Endpoints(
        tuple(backend for each in groups for backend in each.candidates.cluster),
        tuple(backend for each in groups for backend in each.candidates.local),
    )
    direct = None
    suspended = False
    if spec.mode == "local":
        endpoints, suspended = (), spec.state != "up"
    elif modes.is_stateless(spec) and links is not None:
        direct = modes.direct_routing(spec, links)
        endpoints = tuple(each for each in endpoints if each.schedulable and each.backend.ip in direct.macs)
        suspended = not endpoints
    return NodeFarm(
        farm_key(farm),
        Version.of(farm),
        spec,
        tuple(without(_addresses(spec, facts), lost)),
        endpoints,
        candidates,
        _local_ips(spec, facts, endpoints),
        direct,
        suspended,
        groups if len(groups) > 1 else (),
    )


def _group(group: Group, facts: NodeFacts) -> NodeGroup:
    candidates = selection.candidates(group.spec, facts)
    return NodeGroup(group.number, group.weight, tuple(selection.select(group.spec, candidates)), candidates)


def without(addresses: Iterable[NodeAddress], lost: Collection[Listener]) -> Iterator[NodeAddress]:
    """Yield addresses without these listeners; a range of ports may become several."""
    for address in addresses:
        ports = [listener.port for listener in address.listeners()] if lost else []
        remaining = [port for port in ports if Listener(address.ip, address.protocol, port) not in lost]
        if remaining == ports:
            yield address
        elif remaining:
            yield from (address._replace(ports=part) for part in join_ports(remaining).split(","))


def _addresses(spec: FarmSpec, facts: NodeFacts) -> Iterator[NodeAddress]:
    for address in spec.addresses:
        ranges = admitted(address, facts)
        ips = facts.port_ips.get(spec.family, ()) if address.type == "NodePort" else (address.ip,)
        for ip in ips:
            for ports in address.ports.split(","):
                yield NodeAddress(address.type, ip, spec.protocol, ports, ranges)


def _local_ips(spec: FarmSpec, facts: NodeFacts, endpoints: Iterable[NodeBackend]) -> tuple[str, ...]:
    # Also of those that terminate, and are used as there are no others: they too may be their own clients.
    used = {each.backend.ip for each in endpoints}
    local = (each for each in spec.backends if each.node_name == facts.name)
    return tuple(sorted({each.ip for each in local if each.ready or each.ip in used}))
