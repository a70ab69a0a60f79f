"""What this node knows of each address: who may hold it, and whether this node may. Pure: no I/O.

The candidates follow from what all nodes see alike, the gate from what this one has in its kernel.
"""

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field

from kube_nftlb.agent.announcing.nodes import NodeSeen
from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.agent.model import Version
from kube_nftlb.agent.sync.load_balancers import LoadBalancers
from kube_nftlb.announce.bgp.routes import Address as RoutedAddress
from kube_nftlb.announce.ownership import gate
from kube_nftlb.announce.ownership.candidates import Demand, candidates
from kube_nftlb.announce.ownership.gate import Blocker, FarmHere, NodeHere, Reason, WhenEmpty
from kube_nftlb.announce.ownership.interfaces import Interface, interface_of
from kube_nftlb.announce.ownership.node import Address
from kube_nftlb.api.address_pool import Announce, AnnounceBGP, AnnounceL2
from kube_nftlb.api.bgp_peer import BGPPeer
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.selector import Selector

_ON_SEGMENT = AnnounceL2()
_WITHOUT_POOL = Announce(l2=_ON_SEGMENT, bgp=AnnounceBGP())
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
    interfaces: tuple[Interface, ...] | None = None
    """Those of this node; None before they have been read."""
    peers: Collection[BGPPeer] | None = None
    """The routers of all nodes; None if another daemon knows them."""

    def addresses(self, held: Mapping[str, str]) -> dict[str, Address]:
        """Return what is known of each address that is announced on a segment, or that a node holds.

        ``held`` has the holders.
        """
        announced = {
            ip: announce
            for ip in self.load_balancers.ips
            if (announce := self._announce(ip, ip in held)) is not None and announce.on_segment is not None
        }
        # Many addresses have one pool.
        able = {id(each): self._able_on_segment(each) for each in announced.values()}
        ordered = candidates({ip: self._demand(ip, able[id(each)]) for ip, each in announced.items()}, held)
        found = {ip: self._address(ip, each, ordered[ip]) for ip, each in announced.items()}
        own = {address.partition("/")[0]: each.name for each in self.interfaces or () for address in each.addresses}
        return found | {ip: _of_node(found[ip], own[ip]) for ip in found.keys() & own.keys()}

    def working(self) -> frozenset[str]:
        """Return the nodes that are ready, and do not leave."""
        return frozenset(name for name, node in self.nodes.items() if node.leaves is None)

    def routes(self, routed: Container[str]) -> dict[str, RoutedAddress]:
        """Return what is known of each address that is announced by BGP; ``routed`` has those that this node does."""
        found, able = {}, dict[int, frozenset[str]]()
        speaking = {version: self._speaking(version) for version in (4, 6)}
        for ip in self.load_balancers.ips:
            announce = self._announce(ip, ip in routed)
            if announce is not None and (bgp := announce.bgp) is not None:
                if id(bgp) not in able:
                    able[id(bgp)] = self._able(bgp.node_selector).nodes
                found[ip] = self._routed(ip, announce, bgp, able[id(bgp)] & speaking[_version(ip)])
        return found

    def _speaking(self, version: int) -> frozenset[str]:
        """Return the nodes that have a router for addresses of a version of IP, and this one, which may get one."""
        if self.peers is None:
            return frozenset(self.nodes)
        selectors = [each.spec.node_selector for each in self.peers if _version(each.spec.address) == version]
        speaking = (name for name, node in self.nodes.items() if any(each.selects(node.labels) for each in selectors))
        return frozenset(speaking) | {self.me}

    def _announce(self, ip: str, is_announced: bool) -> Announce | None:
        """Return how to announce an address; None if it is not ours to announce."""
        if ip in self.node_ips:
            return None
        if (pool := self.pools.of(ip)) is not None:
            return pool.spec.announce
        # Services keep the addresses of a pool that is gone.
        return _WITHOUT_POOL if is_announced else None

    def _able_on_segment(self, announce: Announce) -> Demand:
        l2 = announce.on_segment
        return self._able(l2.node_selector, l2.prefer) if l2 is not None else Demand(frozenset())

    def _able(self, selector: Selector, prefer: Selector | None = None) -> Demand:
        """Return the nodes that may announce any address of a pool."""
        may = {
            name: node
            for name, node in self.nodes.items()
            if node.leaves is None and not node.excluded and selector.selects(node.labels)
        }
        preferred = (name for name, node in may.items() if prefer is not None and prefer.selects(node.labels))
        return Demand(frozenset(may), frozenset(preferred))

    def _demand(self, ip: str, able: Demand) -> Demand:
        """Return the nodes that may hold an address: with trafficPolicy Local, those with an endpoint, if any has."""
        nodes = self._reaching(ip, able.nodes) or able.nodes
        return Demand(nodes, able.prefer & nodes)

    def _address(self, ip: str, announce: Announce, ordered: tuple[str, ...]) -> Address:
        l2 = announce.on_segment or _ON_SEGMENT
        link = interface_of(ip, self.interfaces or (), l2.interfaces)
        own = self.nodes.get(self.me, _ABSENT)
        here = NodeHere(
            link.name if link is not None else "", own.excluded, l2.node_selector.selects(own.labels), own.leaves
        )
        farms, when_empty = self._farms(ip), WhenEmpty(announce.when_empty)
        return Address(
            here.link or "",
            link.mac if link is not None else "",
            ordered,
            gate.why_not_announce(farms, when_empty, here),
            gate.why_not_keep(farms, when_empty, here),
        )

    def _routed(self, ip: str, announce: Announce, bgp: AnnounceBGP, able: frozenset[str]) -> RoutedAddress:
        own = self.nodes.get(self.me, _ABSENT)
        selected = bgp.node_selector.selects(own.labels)
        here = NodeHere(None, own.excluded, selected, own.leaves, "announce.bgp.nodeSelector")
        farms, when_empty = self._farms(ip), WhenEmpty(announce.when_empty)
        return RoutedAddress(
            self.pools.prefix(ip, bgp.aggregation_length_v6 if _version(ip) == 6 else bgp.aggregation_length),
            self._reaching(ip, able),
            gate.why_not_announce(farms, when_empty, here),
            gate.why_not_keep(farms, when_empty, here),
            any(self.load_balancers.wanted[key].served for key in self.load_balancers.farms.get(ip)),
        )

    def _reaching(self, ip: str, nodes: frozenset[str]) -> frozenset[str]:
        """Return those of ``nodes`` with endpoints of the farms with trafficPolicy Local; perhaps none has one.

        The oldest farm decides, then those of its namespace as far as that leaves a node: routes of other namespaces
        take no address from nodes that serve it. A farm without any endpoint does not count: whichever node has its
        clients refuses them.
        """
        wanted = [(self.load_balancers.wanted[key], key.namespace) for key in self.load_balancers.farms.get(ip)]
        asking = sorted((each.rank, namespace, each.nodes) for each, namespace in wanted if each.nodes)
        if not asking:
            return nodes
        reaching, decides = frozenset[str](), ""
        for _, namespace, local in asking:
            if decides in ("", namespace) and (both := (reaching or nodes) & local):
                reaching, decides = both, namespace
        return reaching

    def _farms(self, ip: str) -> list[FarmHere]:
        keys = self.load_balancers.farms.get(ip)
        # What this node is not going to serve is no reason to keep clients from the other farms of the address.
        served = [key for key in keys if self.load_balancers.wanted[key].served]
        here = {key: self._farm(key, ip) for key in served or keys}
        able = [each for key, each in here.items() if each.programmed or not self.load_balancers.wanted[key].stays]
        return able or list(here.values())

    def _farm(self, key: FarmKey, ip: str) -> FarmHere:
        newest, name = self.newest(key), "/".join(key)
        uid, generation = (newest.uid, newest.generation) if newest is not None else (None, 1)
        now, then = self.load_balancers.in_kernel.get(key), self.load_balancers.successors.get(key)
        if now is not None and ip in now.ips and now.version.uid == uid:
            if self.load_balancers.wanted[key].stays:
                # One tenant's farm is no reason to keep a Gateway's address from all others.
                generation = now.version.generation
            return FarmHere(name, generation, now.version.generation, now.reached, now.serving, now.refuses)
        if then is not None and ip in then.ips and then.version.uid == uid:
            return FarmHere(name, generation, 0, then.reached, then.serving, then.refuses, succeeds=True)
        return FarmHere(name, generation, 0, 0, 0)


def _of_node(address: Address, interface: str) -> Address:
    """Return what is known of an address that the kernel of this node answers for, though its Node does not have it.

    It would answer on when another node has the address.
    """
    blocker = Blocker(Reason.ADDRESS_IN_USE, f"the interface {interface} of this node has the address")
    return address._replace(why_not_announce=blocker, why_not_keep=blocker)


def _version(ip: str) -> int:
    return 6 if ":" in ip else 4
