"""Have this node announce what it serves: the facts of the loop, the pools and the nodes go to the announcer."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import structlog

from kube_nftlb.agent.announcing.bird import Bird
from kube_nftlb.agent.announcing.facts import Facts
from kube_nftlb.agent.announcing.links import interfaces
from kube_nftlb.agent.announcing.nodes import NodeSeen
from kube_nftlb.agent.announcing.pool_watch import PoolWatch
from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.agent.announcing.summary import counts, merged, summary
from kube_nftlb.agent.clock import rest_s
from kube_nftlb.agent.model import Version
from kube_nftlb.agent.sync.load_balancers import wanted
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.announce.announcer import Announcer
from kube_nftlb.announce.bgp.routing import Routing, Table
from kube_nftlb.announce.leases import KubeLeases
from kube_nftlb.announce.ownership.address import Act
from kube_nftlb.announce.ownership.gate import Blocker, Reason
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.node import NodeAddresses, NodeBGP
from kube_nftlb.kube.client import Kube

_HAND_OVER_S: Final = 3.0
"""How long the agent waits at its end for others to take its addresses. It takes them a tenth of a second."""
_GIVE_UP_S: Final = 1.0
_GATHER_S: Final = 0.005
"""Changes that come together are looked at together."""
_LINKS_EVERY_S: Final = 5.0
_LOOK_S: Final = 0.05
_BEGIN_WITHIN_S: Final = 10.0
"""After this time without having programmed all addresses, those that are programmed are announced."""
_ERROR_MAX: Final = 512
_NO_BGP: Final = Act(why_not=Blocker(Reason.BGP_OFF, "the pool announces it by BGP, which the chart switches off"))

_log = structlog.get_logger()


class Announcing:
    """The addresses of this node. ``on_change`` is called when the ``summary`` may have changed."""

    def __init__(
        self,
        kube: Kube,
        me: str,
        namespace: str,
        responder: Path,
        state: LoopState,
        on_change: Callable[[], None],
        routes: Table | None = None,
        bird: Bird | None = None,
    ) -> None:
        """Do nothing yet.

        The Leases are in this namespace; ``responder`` is the socket of the process that answers. ``routes`` is the
        table for a routing daemon, None if BGP is off; ``bird`` is the daemon, None if it is another.
        """
        self._state = state
        self._report = on_change
        self._facts = Facts(me, state.load_balancers, self._newest)
        self._announcer = Announcer(me, responder, KubeLeases(kube, namespace, me), on_change=self._decided)
        self._changed = asyncio.Event()
        self._routing = (
            Routing(me, routes, on_change=self._decided, on_read=self._changed.set) if routes is not None else None
        )
        self._bird = bird
        self._without_bgp: Mapping[str, Act] = {}
        self._ended = False
        self._seen: tuple[Mapping[str, str], Mapping[str, Act]] = ({}, {})
        self._pools = PoolWatch(kube, state, self._set_pools)
        state.load_balancers.on_change = self._changed.set
        if bird is not None:
            bird.on_peers = self._changed.set

    @property
    def summary(self) -> NodeAddresses:
        """Return what the node's status tells of its addresses."""
        return summary(self._acts, pending=bool(self._state.progress.pending))

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the number of addresses by pool and AddressState."""
        return counts(self._acts, self._facts.pools)

    @property
    def bgp(self) -> NodeBGP:
        """Return what the node's status tells of BGP."""
        prefixes, error = (self._routing.prefixes, self._routing.error) if self._routing is not None else (0, "")
        if self._bird is not None:
            return self._bird.status(prefixes, error)
        return NodeBGP(prefixes=prefixes, last_error=error[:_ERROR_MAX])

    @property
    def _acts(self) -> Mapping[str, Act]:
        return merged(self._announcer.acts, self._without_bgp if self._routing is None else self._routing.acts)

    @property
    def _held(self) -> Mapping[str, str]:
        """The holders of the addresses that farms have, which are the same on all nodes."""
        return self._announcer.held(self._state.load_balancers.ips)

    def set_nodes(self, nodes: Mapping[str, NodeSeen], ips: Collection[str]) -> None:
        """Take all Nodes, and their addresses."""
        self._facts.nodes, self._facts.node_ips = nodes, ips
        if self._bird is not None:
            self._bird.set_node(nodes.get(self._facts.me))
        self._changed.set()

    async def run(self) -> None:
        """Announce until cancelled. The responder goes on for some seconds."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pools.run(), name="address-pools")
            tasks.create_task(self._watch_links(), name="links")
            tasks.create_task(self._inform(), name="addresses")
            tasks.create_task(self._announcer.run(), name="announcer")
            if self._bird is not None:
                tasks.create_task(self._bird.run(), name="bird")
            if self._routing is not None:
                tasks.create_task(self._routing.run(), name="routes")

    async def hand_over(self) -> None:
        """Have other nodes take the addresses, as far as they can, before this agent ends."""
        routes = [self._routing.hand_over()] if self._routing is not None else []
        await asyncio.gather(self._announcer.hand_over(_HAND_OVER_S), *routes)

    async def give_up(self) -> None:
        """Answer for nothing any more: no agent follows on this node."""
        self._ended = True
        routes = [self._routing.give_up()] if self._routing is not None else []
        await asyncio.gather(self._announcer.give_up(_GIVE_UP_S), *routes)

    async def end(self) -> None:
        """Let BIRD end, once nothing is to be deleted any more."""
        if self._bird is not None:
            await self._bird.end()

    def _newest(self, key: FarmKey) -> Version | None:
        farm = self._state.index.get(key)
        return Version.of(farm) if farm is not None else None

    def _decided(self) -> None:
        now = self._held, dict(self._acts)
        before, self._seen = self._seen, now
        if now[0] != before[0]:
            # Where others are held decides where the next ones go.
            self._changed.set()
        if now[1] != before[1]:
            self._report()

    async def _inform(self) -> None:
        await self._until_known()
        while not self._ended:
            self._changed.clear()
            began = time.monotonic()
            self._announcer.facts(self._facts.addresses(self._held), self._facts.working())
            self._inform_routing()
            await asyncio.sleep(rest_s(time.monotonic() - began, least_s=_GATHER_S, most_s=math.inf))
            await self._changed.wait()

    def _inform_routing(self) -> None:
        if self._routing is not None:
            if (routed := self._routing.routed) is not None:
                self._facts.peers = self._bird.peers if self._bird is not None else None
                self._routing.facts(self._facts.routes(routed), are_all=not self._awaits_plan())
            return
        self._without_bgp = dict.fromkeys(self._facts.routes(()), _NO_BGP)
        self._decided()

    async def _until_known(self) -> None:
        """Wait for all that is needed, and until what was programmed before is verified: nothing is given up for it."""
        known_at: float | None = None
        while True:
            # There may be no interface for ARP and NDP: BGP needs none.
            is_read = self._facts.interfaces is not None
            if self._pools.knows_pools and self._facts.nodes and is_read and self._state.complete:
                known_at = known_at or time.monotonic()
                if not self._awaits_kernel() or time.monotonic() > known_at + _BEGIN_WITHIN_S:
                    return
            await asyncio.sleep(_LOOK_S)

    def _awaits_kernel(self) -> bool:
        return any(wanted(self._state.index.get(key)) is not None for key in self._state.queue.pending)

    def _awaits_plan(self) -> bool:
        """Return whether there are farms whose addresses ``Facts`` does not have yet."""
        farms = (key for key in self._state.queue.pending if key not in self._state.load_balancers.wanted)
        return any(wanted(self._state.index.get(key)) is not None for key in farms)

    async def _watch_links(self) -> None:
        while True:
            try:
                found = await asyncio.to_thread(interfaces)
            except OSError as error:
                _log.warning("cannot read the network interfaces, retrying", error=str(error))
            else:
                if found != self._facts.interfaces:
                    self._facts.interfaces = found
                    self._changed.set()
            await asyncio.sleep(_LINKS_EVERY_S)

    def _set_pools(self, pools: Pools) -> None:
        self._facts.pools = pools
        if self._bird is not None:
            self._bird.set_pools(pools.all)
        self._changed.set()
