"""Which node announces an address, and why the others do not, as the nodes report it. Pure: no I/O."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kube_nftlb.announce.ownership.gate import EXCLUDED, Reason
from kube_nftlb.commands.cluster.finding import is_silent
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.prose import some_of

ANNOUNCE_ADVICE: Final[Mapping[Reason, str]] = {
    Reason.NO_FARM: "wait for the operator, or see its log",
    Reason.NODE_EXCLUDED: f"remove the label from a node: kubectl label node NAME {EXCLUDED}-",
    Reason.NODE_LEAVES: "mend a node, or end its drain",
    Reason.NOT_SELECTED: "change the nodeSelector in spec.announce of the NftlbAddressPool, or label a node",
    Reason.NO_LINK: "give a node an interface in the subnet of the address; see announce.l2.interfaces of the pool",
    Reason.NO_RESPONDER: "see the container responder of the agent's pod on that node, and its log",
    Reason.NOT_PROGRAMMED: "see `kubectl nftlb why` of its farm, and the agents' logs",
    Reason.NO_ENDPOINT: "see that a Pod of the Service is ready, with externalTrafficPolicy Local on a node that may "
    "announce the address",
    Reason.BGP_OFF: "set addresses.bgp.enabled of the chart, or spec.announce.l2 of the NftlbAddressPool",
    Reason.ADDRESS_IN_USE: "take the address from the interface, or the host with this MAC address, or from the pool",
}
"""What to do if it is for this reason that no node announces an address."""


class Blocked(NamedTuple):
    """Why a node does not announce an address."""

    node: str
    reason: str
    message: str


class Announced:
    """What the nodes report of all addresses."""

    def __init__(self, reports: Iterable[JsonObject]) -> None:
        self._nodes: defaultdict[str, list[str]] = defaultdict(list)
        self._blocked: defaultdict[str, list[Blocked]] = defaultdict(list)
        self._is_complete = True
        self._tells_all = True
        """False if a node does not announce more than it tells."""
        self._reporting: list[str] = []
        for report in sorted(reports, key=lambda each: str(each["metadata"]["name"])):
            if not is_silent(report):
                self._take(report["metadata"]["name"], (report.get("status") or {}).get("addresses") or {})

    def _take(self, node: str, addresses: JsonObject) -> None:
        self._reporting.append(node)
        announced = addresses.get("announced") or ()
        self._is_complete &= len(announced) >= (addresses.get("number") or 0)
        for ip in announced:
            self._nodes[ip].append(node)
        for entry in addresses.get("blocked") or ():
            self._tells_all &= len(entry.get("addresses") or ()) >= (entry.get("number") or 0)
            for ip in entry.get("addresses") or ():
                self._blocked[ip].append(Blocked(node, entry["reason"], entry.get("message") or ""))

    def nodes(self, ip: str) -> Sequence[str]:
        """Return the nodes that announce an address: by BGP any number; else one, or for a moment two."""
        return self._nodes.get(ip, ())

    @property
    def number(self) -> int:
        """The number of addresses that nodes announce, each counted once; if not ``is_complete``, at least so many."""
        return len(self._nodes)

    @property
    def is_complete(self) -> bool:
        """False if a node announces more than it tells."""
        return self._is_complete

    def blocked(self, ip: str) -> Sequence[Blocked]:
        """Return why no node announces an address, as far as nodes tell; nothing if one does."""
        return self.kept_from(ip) if self._is_complete and ip not in self._nodes else ()

    def kept_from(self, ip: str) -> Sequence[Blocked]:
        """Return the nodes that would not announce an address, and why, as far as they tell."""
        return self._blocked.get(ip, ())

    def candidates(self, ip: str) -> Sequence[str]:
        """Return the other nodes that would announce it; nothing if some do not tell all that they would not."""
        if not self._tells_all:
            return ()
        blocked = {each.node for each in self.kept_from(ip)}
        return [node for node in self._reporting if node not in blocked and node not in self.nodes(ip)]


def where(ip: str, announced: Announced) -> str:
    """Return who announces an address, or why nobody does, in words; empty if nothing is known of it."""
    if nodes := announced.nodes(ip):
        others = announced.candidates(ip)
        would = [f"{some_of(others)} would take it over"] if others else []
        would_not = [f"not by {reasons(blocked)}"] if (blocked := announced.kept_from(ip)) else []
        return "; ".join([f"announced by {some_of(nodes)}", *would, *would_not])
    if blocked := announced.blocked(ip):
        return f"announced by no node: {reasons(blocked)}"
    return ""


def reasons(blocked: Sequence[Blocked]) -> str:
    """Return why nodes do not announce an address, as one sentence."""
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for each in blocked:
        nodes[f"{each.message} ({each.reason})"].append(each.node)
    return "; ".join(f"{some_of(names)}: {why}" for why, names in nodes.items())
