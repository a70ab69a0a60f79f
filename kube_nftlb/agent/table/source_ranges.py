"""Source ranges: only clients in the ranges of an address may connect to it. Pure: no I/O."""

import functools
import ipaddress

from kube_nftlb import names
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.table import layout
from kube_nftlb.api.farm import Address
from kube_nftlb.netfilter.table_text import Chain, Contents


def admitted(address: Address, facts: NodeFacts) -> tuple[str, ...]:
    """Return the ranges whose clients are admitted at an address, without overlaps; empty if all clients are.

    If one contains the node's own address, its processes are also admitted with the address itself as the source.
    """
    return _admitted(address.source_ranges, address.ip, facts.all_port_ips) if address.source_ranges else ()


@functools.lru_cache(maxsize=1024)
def _admitted(source_ranges: tuple[str, ...], address: str, own_ips: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same, once: a farm may have thousands of ranges, and is resolved whenever an endpoint changes."""
    ranges = [ipaddress.ip_network(text) for text in source_ranges]
    own = [ipaddress.ip_address(ip) for ip in own_ips]
    if address and any(ip in network for ip in own for network in ranges):
        ranges.append(ipaddress.ip_network(address))
    four = ipaddress.collapse_addresses(network for network in ranges if isinstance(network, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(network for network in ranges if isinstance(network, ipaddress.IPv6Network))
    return tuple(str(network) for network in (*four, *six))


def contents(farm: NodeFarm) -> Contents:
    """Drop connections from outside of a listener's ranges, as kube-proxy does."""
    limited = [address for address in farm.addresses if address.source_ranges]
    family = layout.TABLE_FAMILY[farm.spec.family]
    chains = {ranges: _chain_name(ranges, farm.name) for ranges in sorted({each.source_ranges for each in limited})}
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


def renewed(before: Contents, farm: NodeFarm) -> Contents:
    """Return a farm's part of the agent table with its current source ranges, and all else as it was ``before``.

    Listeners that the farm does not have any more keep theirs.
    """
    listeners = {layout.listener(layout.SOURCE_RANGES, listener)[:2] for listener in farm.listeners}
    elements = frozenset(entry for entry in before.elements if entry[:2] not in listeners)
    jumps = {entry.value for entry in elements}
    chains = (
        chain
        for chain in before.chains
        if not chain.name.startswith(f"{layout.SOURCE_RANGES}-") or f"jump {chain.name}" in jumps
    )
    return Contents(elements, tuple(chains), before.sets) | contents(farm)


def _chain_name(ranges: tuple[str, ...], farm: str) -> str:
    """Return a name that no other ranges of a farm have: listeners that are kept jump to the chain that they had."""
    return f"{layout.SOURCE_RANGES}-{names.digest(*ranges)}-{farm}"
