"""What this node knows of each address: who may hold it, and whether this node may. Pure: no I/O.

The candidates follow from what all nodes see alike, the gate from what this one has in its kernel.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kube_nftlb.agent.announcing.nodes import NodeSeen
from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.agent.model import Version
from kube_nftlb.agent.sync.load_balancers import LoadBalancers
from kube_nftlb.announce.ownership import gate
from kube_nftlb.announce.ownership.candidates import Demand, candidates
from kube_nftlb.announce.ownership.gate import FarmHere, NodeHere, WhenEmpty
from kube_nftlb.announce.ownership.interfaces import Interface, interface_of
from kube_nftlb.announce.ownership.node import Address
from kube_nftlb.api.address_pool import Announce
from kube_nftlb.api.conflicts import FarmKey

_WITHOUT_POOL = Announce()
_ABSENT = NodeSeen({}, "there is no Node of this name")


@dataclass
class Facts:
    """All that is known. ``newest`` returns the version of a farm's spec that was seen last."""

    me: str
    load_balancers: LoadBalancers
    newest: Callable[[FarmKey], Version | None]
    pools: Pools = field(default_factory=Pools)
    nodes: Mapping[str, NodeSeen] = field(default_factory=dict)
    node_ips: Collection[str] = ()
    """Addresses of nodes, which are theirs whatever a pool or a Service says."""
    interfaces: tuple[Interface, ...] = ()

    def addresses(self, held: Mapping[str, str]) -> dict[str, Address]:
        """Return what is known of each address of a pool, or that a node holds; ``held`` has the holders."""
        announced = {
            ip: announce for ip in self.load_balancers.ips if (announce := self._announce(ip, held)) is not None
        }
        # Many addresses have one pool.
        able = {id(each): self._able(each) for each in {id(each): each for each in announced.values()}.values()}
        ordered = candidates({ip: self._demand(ip, able[id(each)]) for ip, each in announced.items()}, held)
        return {ip: self._address(ip, each, ordered[ip]) for ip, each in announced.items()}

    def working(self) -> frozenset[str]:
        """Return the nodes that are ready, and do not leave."""
        return frozenset(name for name, node in self.nodes.items() if not node.leaves)

    def _announce(self, ip: str, held: Mapping[str, str]) -> Announce | None:
        """Return how to announce an address; None if it is not ours to announce."""
        if ip in self.node_ips:
            return None
        if (pool := self.pools.of(ip)) is not None:
            return pool.spec.announce
        # Services keep the addresses of a pool that is gone.
        return _WITHOUT_POOL if ip in held else None

    def _able(self, announce: Announce) -> Demand:
        """Return the nodes that may hold any address that is announced so."""
        l2 = announce.l2
        may = {
            name: node
            for name, node in self.nodes.items()
            if not node.leaves and not node.excluded and l2.node_selector.selects(node.labels)
        }
        preferred = (name for name, node in may.items() if l2.prefer is not None and l2.prefer.selects(node.labels))
        return Demand(frozenset(may), frozenset(preferred))

    def _demand(self, ip: str, able: Demand) -> Demand:
        """Return the nodes that may hold an address: with trafficPolicy Local, those with an endpoint, if any has."""
        nodes = able.nodes
        for key in sorted(self.load_balancers.of(ip)):
            local = self.load_balancers.wanted(key).nodes
            # Another farm of the address is no reason to leave it without any node.
            if local and nodes & local:
                nodes &= local
        return Demand(nodes, able.prefer & nodes)

    def _address(self, ip: str, announce: Announce, ordered: tuple[str, ...]) -> Address:
        link = interface_of(ip, self.interfaces, announce.l2.interfaces)
        own = self.nodes.get(self.me, _ABSENT)
        here = NodeHere(
            link.name if link is not None else "",
            own.excluded,
            announce.l2.node_selector.selects(own.labels),
            own.leaves,
        )
        keys = self.load_balancers.of(ip)
        # What this node is not going to serve is no reason to keep clients from the other farms of the address.
        served = [key for key in keys if self.load_balancers.wanted(key).served]
        farms = [self._farm(key, ip) for key in served or keys]
        when_empty = WhenEmpty(announce.when_empty)
        return Address(
            here.link,
            link.mac if link is not None else "",
            ordered,
            gate.why_not_announce(farms, when_empty, here),
            gate.why_not_keep(farms, when_empty, here),
        )

    def _farm(self, key: FarmKey, ip: str) -> FarmHere:
        newest, now = self.newest(key), self.load_balancers.in_kernel(key)
        generation = newest.generation if newest is not None else 1
        name = "/".join(key)
        if now is None or ip not in now.ips or newest is None or now.version.uid != newest.uid:
            return FarmHere(name, generation, 0, 0, 0)
        return FarmHere(name, generation, now.version.generation, now.reached, now.serving)
