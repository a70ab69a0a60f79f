"""The listeners that farms lose to others on each node, as the agents judge it. No I/O."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kube_nftlb.agent.informers import parse
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.api.conflicts import Conflict, Conflicts, farm_key
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.farm.address import Address
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.api.values import expand_ports, join_ports
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.prose import some_of


class AddressLoss(NamedTuple):
    """The farms that have an address, or part of it, as a sentence; empty if none has."""

    told: str = ""
    everything: bool = False
    """True if nothing of it is left on any node."""


@dataclass(frozen=True)
class FarmLosses:
    """The conflicts that a farm loses on each node."""

    farm: Farm
    nodes: Sequence[NodeFacts]
    conflicts: Mapping[str, Sequence[Conflict]]

    def listeners(self, node: str) -> frozenset[Listener]:
        """Return the listeners that the farm does not get on a node."""
        return frozenset(each.lost for each in self.conflicts[node])

    def of_address(self, address: Address) -> AddressLoss:
        """Return who has an address of the farm, and how much of it."""
        ports = expand_ports(address.ports) or [ALL_PORTS]
        lost: dict[str, list[Conflict]] = {}
        everything = True
        for facts in self.nodes:
            ips = [address.ip] if address.ip else facts.port_ips.get(self.farm.spec.family, ())
            wanted = {Listener(ip, self.farm.spec.protocol, port) for ip in ips for port in ports}
            here = [each for each in self.conflicts[facts.name] if each.lost in wanted]
            if here:
                lost[facts.name] = here
            everything &= len({each.lost for each in here}) == len(wanted)
        if not lost:
            return AddressLoss()
        conflicts = [each for here in lost.values() for each in here]
        gone = sorted({each.lost.port for each in conflicts})
        winners = sorted({"/".join(each.winner) for each in conflicts})
        what = "it" if len(gone) == len(ports) else f"port {join_ports(gone)}"
        told = f"{', '.join(winners)} {'have' if len(winners) > 1 else 'has'} {what}"
        return AddressLoss(told + self._where(sorted(lost)), everything)

    def _where(self, nodes: list[str]) -> str:
        if len(nodes) == len(self.nodes):
            return ""
        return f" on {some_of(nodes, what='nodes')}"


class Losses:
    """The conflicts among farms."""

    def __init__(self, farms: Iterable[JsonObject], nodes: Sequence[NodeFacts]) -> None:
        self._nodes = nodes
        self._conflicts = Conflicts()
        self._everywhere = [ip for facts in nodes for ip in facts.all_port_ips]
        self._conflicts.set_nodes(self._everywhere)
        for raw in farms:
            if isinstance(farm := parse(raw), Farm):
                self._conflicts.put(farm)

    def of(self, farm: Farm) -> FarmLosses:
        """Return what a farm loses on each node."""
        return FarmLosses(farm, self._nodes, {facts.name: self._on(facts, farm) for facts in self._nodes})

    def _on(self, facts: NodeFacts, farm: Farm) -> tuple[Conflict, ...]:
        if not all(each.ip for each in farm.spec.addresses):
            # Which addresses a node port has differs from node to node.
            self._conflicts.set_nodes(self._everywhere, facts.all_port_ips)
        loss = self._conflicts.get(farm_key(farm))
        return loss.conflicts if loss is not None else ()


def may_take(farms: Iterable[JsonObject], nodes: Iterable[NodeFacts]) -> Callable[[JsonObject], bool]:
    """Return a function that returns True for a farm that may want an address of these farms."""
    ips = {ip for raw in farms for ip in _ips(raw)}
    if "" in ips:
        ips.update(ip for facts in nodes for ip in facts.all_port_ips)
    # Node ports are on the addresses of nodes.
    ips.add("")
    return lambda raw: any(ip in ips for ip in _ips(raw))


def _ips(raw: JsonObject) -> Iterator[str]:
    """Yield the addresses of a farm; that of node ports is empty."""
    return (each.get("ip", "") for each in (raw.get("spec") or {}).get("addresses") or ())
