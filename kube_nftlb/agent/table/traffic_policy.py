"""The part of the agent table that every engine needs for a farm: refuse, drop or masquerade. Pure: no I/O."""

import ipaddress
from collections.abc import Iterator

from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import layout
from kube_nftlb.api.farm import Address
from kube_nftlb.netfilter.transaction import Chain, Contents, Element

FAMILY = {"ipv4": "ip", "ipv6": "ip6"}
"""The name of a farm's family in nft(8)."""


def admitted(address: Address, facts: NodeFacts) -> tuple[str, ...]:
    """Return the ranges whose clients are admitted at an address, without overlaps; empty if all clients are.

    If one contains the node's own address, its processes are also admitted with the address itself as the source.
    """
    ranges = [ipaddress.ip_network(text) for text in address.source_ranges]
    own = [ipaddress.ip_address(ip) for ips in facts.port_ips.values() for ip in ips]
    if address.ip and any(ip in network for ip in own for network in ranges):
        ranges.append(ipaddress.ip_network(address.ip))
    four = ipaddress.collapse_addresses(network for network in ranges if isinstance(network, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(network for network in ranges if isinstance(network, ipaddress.IPv6Network))
    return tuple(str(network) for network in (*four, *six))


def local_clients(family: str) -> tuple[str, str]:
    """Return matches for connections from this node's pods, and from the node itself."""
    return (f"{family} saddr @{layout.LOCAL_PODS}-{family}", "fib saddr type local")


def contents(farm: NodeFarm) -> Contents:
    """Return a farm's part of the agent table that does not depend on the engine."""
    common = _source_ranges(farm) | Contents(
        frozenset(layout.listener(layout.LISTENERS, listener) for listener in farm.listeners)
    )
    if farm.refuses:
        # The engine would let connections run into a timeout.
        return common | layout.refused(farm.listeners)
    return common | Contents(frozenset(_masqueraded(farm))) | _without_local_endpoints(farm)


def _source_ranges(farm: NodeFarm) -> Contents:
    """Drop connections from outside of a listener's ranges, as kube-proxy does."""
    limited = [address for address in farm.addresses if address.source_ranges]
    numbers = {ranges: number for number, ranges in enumerate(sorted({each.source_ranges for each in limited}))}
    family = FAMILY[farm.spec.family]
    chains = {ranges: f"{layout.SOURCE_RANGES}-{number}-{farm.name}" for ranges, number in numbers.items()}
    elements = (
        layout.listener(layout.SOURCE_RANGES, listener, f"jump {chains[address.source_ranges]}")
        for address in limited
        for listener in address.listeners()
    )
    return Contents(
        frozenset(elements),
        tuple(
            Chain(chain, (f"{family} saddr {{ {', '.join(ranges)} }} return", "drop"))
            for ranges, chain in chains.items()
        ),
    )


def _without_local_endpoints(farm: NodeFarm) -> Contents:
    """Drop connections from outside if the traffic policy is Local and this node has no endpoint.

    The engine schedules all endpoints then. Clients of this node may use them at the addresses reached from outside.
    """
    if farm.spec.traffic_policy == "Cluster" or farm.candidates.local or not farm.candidates.cluster:
        return Contents()
    chain = Chain(
        f"local-clients-{farm.name}",
        (*(f"{source} return" for source in local_clients(FAMILY[farm.spec.family])), "drop"),
    )
    inside = [each for address in farm.addresses if address.type == "ClusterIP" for each in address.listeners()]
    outside = [each for address in farm.addresses if address.type != "ClusterIP" for each in address.listeners()]
    elements = {layout.listener(layout.NO_ENDPOINTS, listener, layout.DROP) for listener in inside}
    elements |= {layout.listener(layout.NO_ENDPOINTS, listener, f"goto {chain.name}") for listener in outside}
    return Contents(frozenset(elements), (chain,) if outside else ())


def _masqueraded(farm: NodeFarm) -> Iterator[Element]:
    """Yield the connections to masquerade, as kube-proxy does, if the mode does not do it."""
    if farm.spec.mode != "dnat" or farm.spec.masquerade == "Never":
        return
    for address in farm.addresses:
        if address.type == "ClusterIP":
            clients = layout.FROM_OUTSIDE
        else:
            clients = layout.ALWAYS if farm.spec.traffic_policy == "Cluster" else layout.FROM_ITSELF
        yield from (layout.listener(layout.MASQUERADE, listener, clients) for listener in address.listeners())
    for ip in farm.local_ips:
        yield layout.hairpin(ip)
