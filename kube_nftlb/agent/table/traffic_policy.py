"""The part of the agent table that every engine needs for a farm: refuse, drop or masquerade. Pure: no I/O."""

from collections.abc import Iterator, Set

from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.table import layout, source_ranges
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.table_text import Chain, Contents, Element, TableFamily


def local_clients(family: TableFamily) -> tuple[str, str]:
    """Return matches for connections from this node's pods, and from the node itself."""
    return (layout.from_local_pods(family), "fib saddr type local")


def contents(farm: NodeFarm) -> Contents:
    """Return a farm's part of the agent table that does not depend on the engine."""
    common = source_ranges.contents(farm) | Contents(
        frozenset(layout.listener(name, each) for name, listeners in _listener_sets(farm) for each in listeners)
    )
    if farm.refuses:
        # The engine would let connections run into a timeout.
        return common | layout.refused(farm.listeners)
    return common | Contents(frozenset(_masquerading(farm))) | _without_local_endpoints(farm)


def _listener_sets(farm: NodeFarm) -> Iterator[tuple[str, Set[Listener]]]:
    """Yield the sets that a farm's listeners are in, with those that are."""
    listeners = frozenset(farm.listeners)
    yield layout.LISTENERS, listeners - farm.own_endpoints
    if farm.spec.mode == "local":
        yield layout.ANSWERED_HERE, listeners
    if farm.spec.mode in ("local", "dsr") or not farm.spec.intra_connect:
        yield layout.NOT_FROM_NODE, listeners


def _without_local_endpoints(farm: NodeFarm) -> Contents:
    """Drop connections from outside if the traffic policy is Local and this node has no endpoint.

    The engine schedules all endpoints then. Clients of this node may use them at the addresses reached from outside.
    """
    if not farm.drops:
        return Contents()
    chain = Chain(
        f"local-clients-{farm.name}",
        (*(f"{source} return" for source in local_clients(layout.TABLE_FAMILY[farm.spec.family])), "drop"),
    )
    inside = [each for address in farm.addresses if address.type == "ClusterIP" for each in address.listeners()]
    outside = [each for address in farm.addresses if address.type != "ClusterIP" for each in address.listeners()]
    elements = {layout.listener(layout.NO_ENDPOINTS, listener, layout.DROP) for listener in inside}
    elements |= {layout.listener(layout.NO_ENDPOINTS, listener, f"goto {chain.name}") for listener in outside}
    return Contents(frozenset(elements), (chain,) if outside else ())


def masqueraded(farm: NodeFarm) -> Iterator[tuple[Listener, str]]:
    """Yield the listeners whose clients are masqueraded as kube-proxy does, with the chain that says which clients.

    That is only where the mode does not masquerade anyway.
    """
    if farm.spec.mode != "dnat" or farm.spec.masquerade == "Never":
        return
    for address in farm.addresses:
        if address.type == "ClusterIP":
            clients = layout.FROM_OUTSIDE
        else:
            clients = layout.ALWAYS if farm.spec.traffic_policy == "Cluster" else layout.FROM_ITSELF
        yield from ((listener, clients) for listener in address.listeners())


def hairpins(farm: NodeFarm) -> tuple[str, ...]:
    """Return the addresses of backends that are, or may be, on this node: they are masqueraded as their own clients."""
    if farm.spec.mode != "dnat" or farm.spec.masquerade == "Never":
        return ()
    anywhere = {each.ip for each, _ in farm.endpoints if each.node_name is None}
    return tuple(sorted(anywhere.union(farm.local_ips)))


def _masquerading(farm: NodeFarm) -> Iterator[Element]:
    for listener, clients in masqueraded(farm):
        yield layout.listener(layout.MASQUERADE, listener, f"goto {clients}")
    for ip in hairpins(farm):
        yield layout.hairpin(ip)
