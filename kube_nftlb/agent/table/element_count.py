"""Estimate how many elements of maps and sets a farm has in nftables, from its spec alone. Pure: no I/O."""

from kube_nftlb.agent.endpoints import shares
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.limits import Limits
from kube_nftlb.api.values import expand_ports

_OF_EACH_LISTENER = 10
"""In the agent table, and in those of either engine, if the farm uses every option that does not count by itself."""
_OF_NFTLB = 4
_OF_CHAIN = 16
"""A chain that chooses among endpoints, if no other farm has it, by its memory: about 1.5 kB; an element has 0.1 kB."""
_OF_MEMORY = 64
"""The two chains and the map that remember clients, if no other farm has them."""
_OF_LIMIT = 8192
"""The set of a limit's clients. If full it has 65,535, of 0.2 kB each; but few sets are full at once."""


def elements(spec: FarmSpec, node_addresses: int) -> int:
    """Return the number of elements of a farm on a node with so many addresses for node ports; rather too many."""
    listeners = sum(
        (len(expand_ports(address.ports)) or 1) * (node_addresses if address.type == "NodePort" else 1)
        for address in spec.addresses
    )
    of_each = _OF_EACH_LISTENER + (spec.on_gone == "cut")
    of_backends = len({each.ip for each in spec.backends if each.source_address})
    of_backends += _drawn(spec)
    if spec.engine == "nftables":
        of_backends += len({each.ip for each in spec.backends if each.mark is not None})
        of_backends += _scheduled(spec)
    else:
        of_backends += _OF_NFTLB
    return listeners * (of_each + of_backends) + len(spec.backends) + _chains(spec) + _limits(spec.limits)


def _chains(spec: FarmSpec) -> int:
    """Return how much the chains count that the farm has in the worst case, when it shares none with others."""
    if spec.engine != "nftables":
        # Of nftlb's, those that lead clients of the node to endpoints of other nodes.
        weights = [each.weight for each in spec.backends] if spec.traffic_policy != "Cluster" else []
        return sum(shares.of_weights(weights, max(shares.NUMBERS_MAX, len(weights)))) if weights else 0
    # One draws a group.
    groups = len(spec.backends_from) + 1 if len(spec.backends_from) > 1 else 1
    choosing = groups * _OF_CHAIN * (1 if spec.traffic_policy == "Cluster" else 2)
    return choosing + (_OF_MEMORY if spec.persistence != "none" else 0)


def _limits(limits: Limits) -> int:
    """Return how much the sets count in which limits tell clients apart."""
    return _OF_LIMIT * sum(each is not None for each in (limits.new, limits.reset, limits.established))


def _drawn(spec: FarmSpec) -> int:
    """Return the number of elements by which one of several groups is drawn."""
    weights = [each.weight for each in spec.backends_from if each.weight]
    if len(weights) <= 1 or spec.engine != "nftables":
        return 0
    return sum(shares.of_weights(weights))


def _scheduled(spec: FarmSpec) -> int:
    numbers = sum(shares.exact_shares([each.weight for each in spec.backends]))
    remembered = len(spec.backends) if spec.persistence != "none" else 0
    # Clients of the node may have others.
    return (numbers + remembered) * (1 if spec.traffic_policy == "Cluster" else 2)
