"""Have this node hold its addresses: between ``ownership``, which decides, the responder and the Leases."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.announce.leases import Leases
from kube_nftlb.announce.ownership.address import Act, Write
from kube_nftlb.announce.ownership.node import Address, Outcome, Ownership, Writing
from kube_nftlb.announce.ownership.records import Record
from kube_nftlb.announce.waiting import until_done
from kube_nftlb.announce.wire.client import ResponderClient
from kube_nftlb.announce.wire.messages import Event, Ready, State

_PATIENCE_S: Final = 1.0
"""How long the API server may take for a request, and the interval in which it is tried while it is away."""
_CHECK_S: Final = 10.0
"""The interval in which a node that holds addresses reads one of its Leases, each in turn: it may be cut off."""
_REQUESTS: Final = 16
"""So many at once: hundreds would wait for each other longer than that, and look as if the API server were away."""
_GATHER_S: Final = 0.005
"""Events that come together are decided on together."""

_log = structlog.get_logger()


class Announcer:
    """The addresses of the node ``me``. ``clock`` is the monotonic one."""

    def __init__(
        self,
        me: str,
        responder: Path,
        leases: Leases,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_change`` is called when ``held`` or ``acts`` may have changed."""
        self._me = me
        self._ownership = Ownership(me)
        self._leases = leases
        self._clock = clock
        self._on_change = on_change
        self._client = ResponderClient(responder, self._heard, self._lost)
        self._changed = asyncio.Event()
        self._decided = asyncio.Event()
        self._listed = asyncio.Event()
        self._given = asyncio.Event()
        self._state: State | None = None
        """What the responder was told last."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_REQUESTS)
        self._away = False
        self._watching: asyncio.Task[None] | None = None

    def held(self, ips: Iterable[str]) -> Mapping[str, str]:
        """Return the node that holds each of these addresses, if one does."""
        return self._ownership.held(ips)

    @property
    def acts(self) -> Mapping[str, Act]:
        """Return what this node does about each address, and why it does not announce it."""
        return self._ownership.acts

    def facts(self, addresses: Mapping[str, Address], working: Collection[str] = ()) -> None:
        """Take what is known of all addresses, and the nodes that are ready, anew whenever it changes."""
        self._ownership.facts(addresses, working)
        self._given.set()
        self._changed.set()

    async def hand_over(self, patience_s: float) -> None:
        """Have other nodes take the addresses, if there are any, and return once they have; wait no longer than that.

        This node answers until then, and takes no address any more.
        """
        self._ownership.leaving = True
        await self._until(lambda: not self._ownership.is_awaited, patience_s)

    async def give_up(self, patience_s: float) -> None:
        """Answer for nothing any more, and say so in the Leases, as far as that is possible in this time."""
        self.facts({})
        await self._until(lambda: not self._ownership.held_after(""), patience_s)

    async def _until(self, done: Callable[[], bool], patience_s: float) -> None:
        self._changed.set()
        await until_done(done, self._decided, patience_s)

    async def run(self) -> None:
        """Hold addresses until cancelled. The responder goes on for some seconds."""
        async with asyncio.TaskGroup() as tasks:
            self._watch(tasks)
            # Without knowing who holds what, and what is programmed, nothing may be said, so as not to take it back.
            await self._listed.wait()
            await self._given.wait()
            tasks.create_task(self._client.run(), name="responder")
            tasks.create_task(self._decide(), name="decide")
            tasks.create_task(self._check(tasks), name="check")

    def _watch(self, tasks: asyncio.TaskGroup) -> None:
        """Watch the Leases, from a list of all of them."""
        if self._watching is not None:
            self._watching.cancel()
        watching = self._leases.watch(self._seen, self._listed.set)
        self._watching = tasks.create_task(watching, name="address-leases")

    async def _decide(self) -> None:
        while True:
            self._changed.clear()
            outcome = self._ownership.decide(self._clock())
            self._act(outcome)
            self._decided.set()
            self._on_change()
            try:
                async with asyncio.timeout(None if outcome.again is None else max(0.0, outcome.again - self._clock())):
                    await self._changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_GATHER_S)

    async def _check(self, tasks: asyncio.TaskGroup) -> None:
        """Notice that this node does not hear of the API server, though there is nothing to ask it for.

        Either it cannot be reached, or the connection of the watch is dead, as after this machine stood still.
        """
        ip = ""
        while True:
            await asyncio.sleep(_CHECK_S)
            held = self._ownership.held_after(ip)
            # One that holds none would not know that the API server answers with errors to it, too.
            ip = held or self._ownership.watched_after(ip)
            if ip and not self._away:
                await self._in_turn(ip, partial(self._read, ip))
                if held and self.held([ip]).get(ip) != self._me:
                    _log.warning("the watch has missed that an address has another holder, listing all", ip=ip)
                    self._watch(tasks)

    def _act(self, outcome: Outcome) -> None:
        if outcome.state != self._state:
            self._state = outcome.state
            self._client.want(outcome.state)
        for writing in outcome.writes:
            self._start(self._in_turn(writing.ip, partial(self._write, writing)))
        for ip in outcome.reads:
            self._start(self._in_turn(ip, partial(self._read, ip)))

    def _heard(self, event: Event) -> None:
        if isinstance(event, Ready):
            self._state = None
        else:
            _log.info("on the wire", what=type(event).__name__, **msgspec.structs.asdict(event))
        self._ownership.event(event, self._clock())
        self._changed.set()

    def _lost(self) -> None:
        self._ownership.has_responder = False
        self._changed.set()

    def _seen(self, ip: str, record: Record) -> None:
        self._ownership.record(ip, record, self._clock())
        self._changed.set()

    async def _in_turn(self, ip: str, request: Callable[[], Awaitable[None]]) -> None:
        async with self._turns:
            if self._away:
                # Once the API server answers, it is decided anew what to ask it for.
                self._ownership.failed(ip)
            else:
                await request()

    async def _write(self, writing: Writing) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                self._seen(writing.ip, await self._leases.write(writing))
            if writing.write is Write.CLAIM and writing.before.holder != self._me:
                metrics.ADDRESSES_TAKEN.labels("node" if writing.before.holder else "nobody").inc()
        except (errors.ConflictError, errors.NotFoundError):
            # Another node was faster.
            self._ownership.failed(writing.ip)
            await self._read(writing.ip)
        except (errors.KubeError, errors.KubeUnreachableError, TimeoutError) as error:
            self._failed(writing.ip, error, unwritable=isinstance(error, errors.KubeError) and error.is_temporary)

    async def _read(self, ip: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                self._seen(ip, await self._leases.read(ip))
        except (errors.KubeError, errors.KubeUnreachableError, TimeoutError) as error:
            if isinstance(error, errors.KubeError):
                self._ownership.unread(self._clock())
            self._failed(ip, error)

    def _failed(self, ip: str, error: Exception, *, unwritable: bool = False) -> None:
        self._ownership.failed(ip, refused=isinstance(error, errors.KubeError), unwritable=unwritable)
        _log.warning("cannot read or write who holds an address, retrying", ip=ip, error=str(error) or repr(error))
        if not isinstance(error, errors.KubeError) and not self._away:
            self._away = True
            self._ownership.api(away=True, now=self._clock())
            self._start(self._await_return(ip))
        self._changed.set()

    async def _await_return(self, ip: str) -> None:
        """Wait until the API server can be reached."""
        while self._away:
            await asyncio.sleep(_PATIENCE_S)
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    self._seen(ip, await self._leases.read(ip))
            except (errors.KubeUnreachableError, TimeoutError):
                continue
            except errors.KubeError as error:
                # One that starts refuses requests at first: it is back all the same.
                _log.info("the API server answers again, but refuses a request", error=str(error))
            self._away = False
            self._ownership.api(away=False, now=self._clock())
            self._changed.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
