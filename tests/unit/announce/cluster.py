"""Nodes on a segment, with an API server, in simulated time: real frames and real decisions, and nothing else real."""

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address

import msgspec

from kube_nftlb.announce.ownership import records
from kube_nftlb.announce.ownership.address import Write
from kube_nftlb.announce.ownership.candidates import Demand, candidates
from kube_nftlb.announce.ownership.gate import Blocker
from kube_nftlb.announce.ownership.node import Address, Ownership, Writing
from kube_nftlb.announce.ownership.records import NOBODY, Record
from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.client import RENEW_S
from kube_nftlb.announce.wire.heard import Asked, Heard
from kube_nftlb.announce.wire.messages import HOLD_MAX_S, Ready, Renewal, State
from kube_nftlb.announce.wire.responder import Responder
from kube_nftlb.announce.wire.sending import LinkAddresses

STEP_S = 0.02
API_S = 0.02
"""How long a request takes, and an event until it comes."""
AWAY_S = 1.0
"""How long an agent takes to notice that it cannot reach the API server."""
LINK = "eth0"
DATE = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Node:
    name: str
    mac: bytes
    ownership: Ownership
    responder: Responder = field(default_factory=Responder)
    side: int = 0
    """Nodes hear each other if they are on the same side of the segment."""
    agent_runs: bool = True
    responder_runs: bool = True
    api: bool = True
    writes: bool = True
    """The API server writes what the node asks it for."""
    api_changed_at: float = 0.0
    blocked: dict[str, Blocker] = field(default_factory=dict)
    """Why the node may not begin to announce an address."""
    kept_from: dict[str, Blocker] = field(default_factory=dict)
    """Why the node may not go on announcing one."""
    inbox: list[bytes] = field(default_factory=list)
    told: State | None = None
    """What the responder was told last."""
    renewed_at: float = 0.0
    ordered: bool = False
    """The responder was just told something."""
    again: float = 0.0
    """When the agent decides again even if nothing happens."""
    due: list[tuple[float, str, Record]] = field(default_factory=list)
    """Leases that come to the agent, and when."""

    def ready(self) -> None:
        self.responder.events += self.responder.standing(0.0)


class Cluster:
    """Nodes ``n1``, ``n2`` and so on."""

    def __init__(self, nodes: int, ips: list[str]) -> None:
        self.now = 0.0
        self.nodes = {}
        for number in range(1, nodes + 1):
            name, mac = f"n{number}", bytes.fromhex(f"0200000000{number:02x}")
            self.nodes[name] = Node(name, mac, Ownership(name))
            self.nodes[name].ready()
        self.demands = {ip: Demand(frozenset(self.nodes)) for ip in ips}
        self.working = set(self.nodes)
        """The nodes that are ready."""
        self.leases: dict[str, Record] = {}
        self._version = 0
        self.writes: list[tuple[float, str, Writing]] = []
        self.frames: list[tuple[float, str, bytes]] = []
        """What nodes sent without being asked."""
        self._ordered: dict[object, dict[str, tuple[str, ...]]] = {}
        """The candidates that were computed before, which is most of the time of a test."""
        self.answered: dict[str, list[tuple[float, frozenset[str]]]] = {ip: [] for ip in ips}
        """Who would have answered a client at each time."""

    def run(self, seconds: float) -> None:
        # What a test has changed is seen at once.
        for node in self.nodes.values():
            node.again = self.now
        answerers: dict[str, frozenset[str]] = {}
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            # Nothing can change while nobody does anything, which is most of the time.
            active = [self._responder(node) | self._agent(node) for node in self.nodes.values()]
            if any(active) or not answerers:
                answerers = {ip: self.answerers(ip) for ip in self.answered}
            for ip, who in answerers.items():
                self.answered[ip].append((self.now, who))

    def answerers(self, ip: str) -> frozenset[str]:
        packed = ip_address(ip).packed
        found = set()
        for node in self.nodes.values():
            # As if each node asked itself: a question of another host would show that it is not cut off.
            asked = Asked(packed, node.mac, b"\x01" * len(packed))
            if node.responder_runs and node.responder.frame(LINK, Heard(asked, None), self.now):
                found.add(node.name)
        return frozenset(found)

    def holder(self, ip: str) -> str:
        (one,) = self.answerers(ip)
        return one

    def set_api(self, *names: str, reachable: bool) -> None:
        for name in names:
            self.nodes[name].api, self.nodes[name].api_changed_at = reachable, self.now
            self.nodes[name].due.clear()
            if reachable:
                self.nodes[name].due += [(self.now + API_S, ip, record) for ip, record in self.leases.items()]

    def kill(self, name: str) -> None:
        self.nodes[name].agent_runs = self.nodes[name].responder_runs = False
        self.set_api(name, reachable=False)

    def start(self, name: str) -> None:
        node = self.nodes[name]
        node.ownership, node.responder = Ownership(name), Responder()
        node.inbox.clear()
        node.told = None
        node.ready()
        node.agent_runs = node.responder_runs = True
        self.set_api(name, reachable=True)

    def gaps(self, ip: str, since: float) -> float:
        """The longest time in seconds without an answer."""
        return _longest([not who for at, who in self.answered[ip] if at > since])

    def doubles(self, ip: str, since: float) -> float:
        """The longest time in seconds with two answers to a client that hears all sides."""
        return _longest([len(who) > 1 for at, who in self.answered[ip] if at > since])

    def _responder(self, node: Node) -> bool:
        wake = node.responder.wake()
        if not node.responder_runs or not (node.inbox or node.ordered or (wake is not None and wake <= self.now)):
            return False
        node.ordered = False
        inbox, node.inbox = node.inbox, []
        for name in node.responder.links():
            node.responder.link(name, LinkAddresses(node.mac, b"\xfe\x80" + bytes(8) + node.mac), self.now)
        for frame in inbox:
            said = arp.read(frame) or ndp.read(frame)
            answer = node.responder.frame(LINK, said, self.now) if said else None
            if answer is not None:
                self._deliver(node, answer)
        for _, frame in node.responder.due(self.now):
            self.frames.append((self.now, node.name, frame))
            self._deliver(node, frame)
        return True

    def _deliver(self, sender: Node, frame: bytes) -> None:
        for node in self.nodes.values():
            if node is not sender and node.side == sender.side and (frame[0] & 1 or frame[:6] == node.mac):
                node.inbox.append(frame)

    def _agent(self, node: Node) -> bool:
        renews = self.now >= node.renewed_at + RENEW_S
        comes = any(at <= self.now for at, _, _ in node.due)
        if not node.agent_runs or not (node.responder.events or comes or renews or node.again <= self.now):
            return False
        events, node.responder.events = node.responder.events, []
        for event in events if node.responder_runs else []:
            node.ownership.event(event, self.now)
        for _, ip, record in [due for due in node.due if due[0] <= self.now]:
            node.ownership.record(ip, record, self.now)
        node.due = [due for due in node.due if due[0] > self.now]
        node.ownership.api(away=not node.api and self.now > node.api_changed_at + AWAY_S, now=self.now)
        node.ownership.facts(self._facts(node), self.working)
        outcome = node.ownership.decide(self.now)
        if any(isinstance(event, Ready) for event in events):
            node.told = None
        for writing in outcome.writes:
            self._write(node, writing)
        for ip in outcome.reads if node.api else ():
            node.due.append((self.now + API_S, ip, self.leases.get(ip, NOBODY)))
        deadline = self.now + HOLD_MAX_S
        if node.responder_runs and outcome.state != node.told:
            node.told, node.ordered = outcome.state, True
            node.responder.order(msgspec.structs.replace(outcome.state, deadline=deadline), self.now)
        elif node.responder_runs and self.now >= node.renewed_at + RENEW_S:
            node.renewed_at = self.now
            node.responder.order(Renewal(deadline), self.now)
        node.again = outcome.again if outcome.again is not None else math.inf
        return True

    def _facts(self, node: Node) -> dict[str, Address]:
        held = node.ownership.held(self.demands)
        key = (tuple(self.demands.items()), tuple(held.items()))
        if key not in self._ordered:
            self._ordered[key] = candidates(self.demands, held)
        ordered = self._ordered[key]
        mac = node.mac.hex(":")
        return {
            ip: Address(LINK, mac, ordered[ip], node.kept_from.get(ip, node.blocked.get(ip)), node.kept_from.get(ip))
            for ip in self.demands
        }

    def _write(self, node: Node, writing: Writing) -> None:
        ip, before = writing.ip, self.leases.get(writing.ip, NOBODY)
        if not (node.api and node.writes) or before.version != writing.before.version:
            node.ownership.failed(ip, refused=not node.writes, unwritable=not node.writes)
            return
        self.writes.append((self.now, node.name, writing))
        after = self._written(node, writing)
        self.leases[ip] = after
        for each in self.nodes.values():
            if each.api:
                each.due.append((self.now + API_S, ip, after))

    def _written(self, node: Node, writing: Writing) -> Record:
        ip, before = writing.ip, writing.before
        if writing.write is Write.GIVE_UP:
            return NOBODY
        body = {
            Write.CLAIM: lambda: records.claimed(ip, before, node.name, writing.mac, DATE),
            Write.LEAVE: lambda: records.leaving(ip, before),
        }[writing.write]()
        self._version += 1
        was = {"holderIdentity": before.holder, "leaseTransitions": before.transitions}
        annotations = {records.MAC: before.mac, **body["metadata"]["annotations"]}
        lease = {"metadata": {**body["metadata"], "annotations": annotations}, "spec": {**was, **body["spec"]}}
        lease["metadata"]["resourceVersion"] = str(self._version)
        return records.parse(lease)[1]


def _longest(each: list[bool]) -> float:
    longest = now = 0
    for one in each:
        now = now + 1 if one else 0
        longest = max(longest, now)
    return longest * STEP_S
