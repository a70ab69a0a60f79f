"""Have BIRD announce the routes of this node: configure it by peers, pools and the Node, and ask it what it does."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import structlog

from kube_nftlb.agent.announcing.nodes import NodeSeen
from kube_nftlb.agent.announcing.valid import watch_valid
from kube_nftlb.announce.bird import config
from kube_nftlb.announce.bird.answers import Session
from kube_nftlb.announce.bird.control import BirdControl
from kube_nftlb.announce.bird.intervals import IntervalsFile
from kube_nftlb.api.address_pool import PoolRanges
from kube_nftlb.api.bgp_peer import BGPPeer
from kube_nftlb.api.node import SESSIONS_SHOWN_MAX, BGPSession, NodeBGP
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import BGP_PEERS

_LOOK_EVERY_S: Final = 2.0
_ERROR_MAX: Final = 256
_STATE_MAX: Final = 32
_ESTABLISHED: Final = "Established"

_log = structlog.get_logger()


class Bird:
    """The BIRD of the node ``me``. ``on_change`` is called when ``status`` may have changed."""

    def __init__(
        self,
        kube: Kube,
        me: str,
        table: int,
        control: BirdControl,
        intervals: IntervalsFile,
        on_change: Callable[[], None],
    ) -> None:
        self._sessions: tuple[BGPSession, ...] = ()
        self._error = ""
        """Why BIRD does not answer, or does not take its configuration; empty if it does."""
        self._kube = kube
        self._me = me
        self._table = table
        self._control = control
        self._intervals = intervals
        self._report = on_change
        self.on_peers: Callable[[], None] = lambda: None
        """Called when ``peers`` may have changed."""
        self._peers: Mapping[str, BGPPeer] | None = None
        self._pools: tuple[PoolRanges, ...] | None = None
        self._node: NodeSeen | None = None
        self._refused = ""
        """Why BIRD goes on with an earlier configuration; empty if it does not."""
        self._configured = ""
        self._intervals_ms: dict[str, int] = {}
        """The interval of BFD that was negotiated last with each router, by its address."""
        self._changed = asyncio.Event()

    @property
    def peers(self) -> Collection[BGPPeer]:
        """Return the peers that are known."""
        return (self._peers or {}).values()

    def set_pools(self, pools: Iterable[PoolRanges]) -> None:
        """Take all pools."""
        self._pools = tuple(sorted(pools, key=lambda each: each.pool.metadata.name))
        self._changed.set()

    def set_node(self, node: NodeSeen | None) -> None:
        """Take the Node of this node; None if it is not there."""
        if node is None:
            return
        if self._node is not None and not node.ipv4:
            # Without addresses for a moment, as under a cloud's controller: another router ID ends all sessions.
            node = node._replace(ipv4=self._node.ipv4)
        if node != self._node:
            self._node = node
            self._changed.set()

    def status(self, prefixes: int, error: str) -> NodeBGP:
        """Return what the node's status tells of BGP, with what is known of its routes."""
        return NodeBGP(
            prefixes=prefixes,
            established=sum(session.state == _ESTABLISHED for session in self._sessions),
            number=len(self._sessions),
            sessions=self._sessions[:SESSIONS_SHOWN_MAX],
            last_error=(error or self._error)[:_ERROR_MAX],
        )

    async def run(self) -> None:
        """Configure BIRD and ask it for its sessions until cancelled. It goes on."""
        await asyncio.to_thread(self._control.begin)
        # A BIRD that starts now waits by what the one before has negotiated.
        self._intervals_ms = await asyncio.to_thread(self._intervals.read)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_valid(self._kube, BGP_PEERS, BGPPeer, self._set_peers), name="bgp-peers")
            tasks.create_task(self._follow(), name="bird")

    async def end(self) -> None:
        """Let BIRD end, if it was told to: what is to be deleted is deleted."""
        try:
            # The next BIRD waits also for routers that this one has met since the last look.
            await self._look_at_bfd()
        except (OSError, TimeoutError) as error:
            _log.warning("BIRD does not answer", error=str(error) or type(error).__name__)
        self._control.end()

    async def _follow(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._configure()
                self._take(await self._control.sessions(), self._refused)
                await self._look_at_bfd()
            except (OSError, TimeoutError) as error:
                self._take((), f"BIRD does not answer: {error or type(error).__name__}")
            try:
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _look_at_bfd(self) -> None:
        """Take the intervals with routers that answer. Raises OSError, TimeoutError."""
        found = self._intervals_ms | await self._control.bfd_intervals_ms()
        if found == self._intervals_ms:
            return
        self._intervals_ms = found
        try:
            await asyncio.to_thread(self._intervals.write, found)
        except OSError as error:
            _log.warning("cannot save the intervals of BFD", error=str(error))

    async def _configure(self) -> None:
        text = self._text()
        if text in ("", self._configured):
            return
        await asyncio.to_thread(self._control.write, text)
        # A BIRD that does not run yet reads it when it starts.
        self._refused = await self._control.configure()
        self._configured = text
        _log.info("BIRD is configured", peers=[peer.metadata.name for peer in self._own_peers()], error=self._refused)

    def _text(self) -> str:
        """Return the configuration; empty until all is known that it depends on."""
        if self._peers is None or self._pools is None or self._node is None:
            return ""
        node = config.Node(self._me, self._node.ipv4, self._table)
        return config.render(node, self._own_peers(), self._pools, self._intervals_ms)

    def _own_peers(self) -> list[BGPPeer]:
        labels = self._node.labels if self._node is not None else {}
        return [peer for peer in self.peers if peer.spec.node_selector.selects(labels)]

    def _take(self, found: Iterable[Session], error: str) -> None:
        names = {config.protocol_name(name): name for name in self._peers or ()}
        shown = [_shown(names[each.protocol], each) for each in found if each.protocol in names]
        sessions = tuple(sorted(shown, key=lambda each: (each.state == _ESTABLISHED, each.peer)))
        if (sessions, error) != (self._sessions, self._error):
            self._sessions, self._error = sessions, error
            self._report()

    def _set_peers(self, peers: Mapping[str, BGPPeer]) -> None:
        self._peers = peers
        self._changed.set()
        self.on_peers()


def _shown(peer: str, session: Session) -> BGPSession:
    is_established = session.state == _ESTABLISHED
    return BGPSession(
        peer=peer,
        state=session.state[:_STATE_MAX],
        prefixes=session.prefixes,
        last_error="" if is_established else session.error[:_ERROR_MAX],
    )
