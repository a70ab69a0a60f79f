"""Have this node's routes in the kernel's table: between ``routes``, which decides, and ``table``."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Container, Mapping
from typing import Final, Protocol

import structlog

from kube_nftlb.announce.bgp.earlier_routes import EarlierRoutes, Union
from kube_nftlb.announce.bgp.routes import Address, Changes, Route, Routes, changes
from kube_nftlb.announce.ownership.address import Act
from kube_nftlb.announce.waiting import until_done

_READ_EVERY_S: Final = 5.0
"""How often the table is read, in case another program has changed it."""
_RETRY_S: Final = 1.0
_SPREAD_S: Final = 0.5
"""How long routers may take to hear of changes, before the agent ends, and the daemon with it."""
_PATIENCE_S: Final = 1.0

_log = structlog.get_logger()


class Table(Protocol):
    """Where the routes are."""

    def read(self) -> frozenset[Route]:
        """Return the routes. Raises OSError."""

    def apply(self, changes: Changes) -> None:
        """Make changes. Raises OSError."""


class Routing:
    """The routes of the node ``me``. ``on_change`` is called when what it tells may have changed."""

    def __init__(
        self,
        me: str,
        table: Table,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], None] = lambda: None,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        """Do nothing yet. ``on_read`` is called once it is known what ``routed`` has."""
        self.error = ""
        """Why the table cannot be read or written; empty if it can."""
        self.prefixes = 0
        """The number of routes that the table has."""
        self._routes = Routes(me)
        self._table = table
        self._clock = clock
        self._on_change = on_change
        self._on_read = on_read
        self._earlier: EarlierRoutes | None = None
        self._addresses: Mapping[str, Address] | None = None
        self._are_all = True
        self._changed = asyncio.Event()
        self._applied = asyncio.Event()

    @property
    def acts(self) -> Mapping[str, Act]:
        """Return what this node does about each address."""
        return self._routes.acts

    @property
    def routed(self) -> Container[str] | None:
        """Return the addresses that have a route, also by an earlier agent; None until the table was read."""
        return Union(self._routes.routed, self._earlier) if self._earlier is not None else None

    def facts(self, addresses: Mapping[str, Address], *, are_all: bool = True) -> None:
        """Take what is known of addresses, anew whenever it changes.

        As long as these are not all, routes that an earlier agent left to others stay.
        """
        self._addresses, self._are_all = addresses, are_all
        self._changed.set()

    async def hand_over(self) -> None:
        """Have routers prefer other nodes, before this agent ends. The routes stay for the agent that follows."""
        self._routes.leaving = True
        await self._until(lambda: not self._routes.serves, _PATIENCE_S)
        await asyncio.sleep(_SPREAD_S if self._routes.routed else 0)

    async def give_up(self) -> None:
        """Delete all routes: no agent follows on this node."""
        had = len(self._routes.routed)
        self.facts({})
        await self._until(lambda: not self._routes.routed, _PATIENCE_S)
        await asyncio.sleep(_SPREAD_S if had else 0)

    async def _until(self, done: Callable[[], bool], patience_s: float) -> None:
        self._changed.set()
        await until_done(done, self._applied, patience_s)

    async def run(self) -> None:
        """Keep the routes until cancelled. They stay."""
        actual, read_at = await self._read(), self._clock()
        self._earlier = EarlierRoutes(actual)
        self._on_read()
        # Until all is known that they depend on, an earlier agent's stay as they are.
        while self._addresses is None:
            await self._changed.wait()
            self._changed.clear()
        while True:
            self._changed.clear()
            self._routes.adopt(self._earlier.take(self._addresses))
            if self._are_all:
                self._earlier = EarlierRoutes()
            wanted, again = self._routes.decide(self._addresses, self._clock())
            wanted |= self._earlier.rest
            if self._clock() >= read_at + _READ_EVERY_S:
                actual, read_at = await self._read(), self._clock()
            if wanted != actual:
                actual = await self._apply(changes(actual, wanted))
            else:
                self.error = ""
            self.prefixes = len(actual)
            self._on_change()
            if self.error:
                await asyncio.sleep(_RETRY_S)
                continue
            self._applied.set()
            until = read_at + _READ_EVERY_S if again is None else min(again, read_at + _READ_EVERY_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, until - self._clock())):
                    await self._changed.wait()

    async def _apply(self, wanted: Changes) -> frozenset[Route]:
        """Make changes, and return the routes that there are then."""
        try:
            await asyncio.to_thread(self._table.apply, wanted)
        except OSError as error:
            self._failed(error)
        else:
            _log.info("routes", added=len(wanted.add), deleted=len(wanted.delete))
            self.error = ""
        return await self._read()

    async def _read(self) -> frozenset[Route]:
        while True:
            try:
                return await asyncio.to_thread(self._table.read)
            except OSError as error:
                self._failed(error)
                await asyncio.sleep(_RETRY_S)

    def _failed(self, error: OSError) -> None:
        self.error = f"the table of routes: {error}"
        _log.warning("cannot read or write the table of routes, retrying", error=str(error))
        self._on_change()
