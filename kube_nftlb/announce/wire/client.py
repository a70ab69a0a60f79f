"""The agent's end: what the responder is to do, and what it says. The connection is made again whenever it ends."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kube_nftlb.announce.wire import messages
from kube_nftlb.announce.wire.messages import HOLD_MAX_S, LINE_MAX, Event, Renewal, State

RENEW_S: Final = 1.0
_RETRY_S: Final = 0.2

_log = structlog.get_logger()


class ResponderClient:
    """Keeps a responder at what the agent wants, for as long as the agent's event loop runs.

    ``heard`` is called with each event, ``lost`` when the responder is no longer there. ``clock`` is that of the
    responder, the monotonic one.
    """

    def __init__(
        self,
        path: Path,
        heard: Callable[[Event], None],
        lost: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._heard = heard
        self._lost = lost
        self._clock = clock
        self._writer: asyncio.StreamWriter | None = None

    def want(self, state: State) -> None:
        """Have the responder do this, if it is there; say so again after each event ``Ready``.

        The deadline is set here.
        """
        if self._writer is None:
            return
        if self._writer.transport.get_write_buffer_size() > LINE_MAX:
            # It stands still. What it has is over soon, and what waits would be over when it is read.
            self._writer.transport.abort()
            return
        self._writer.write(messages.encode(msgspec.structs.replace(state, deadline=self._clock() + HOLD_MAX_S)))

    async def run(self) -> None:
        """Stay connected, and renew the deadline, until cancelled."""
        logged = False
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path, limit=LINE_MAX)
            except OSError as error:
                if not logged:
                    _log.warning("cannot reach the responder, retrying", socket=str(self._path), error=str(error))
                logged = True
            else:
                logged = False
                await self._talk(reader, writer)
            await asyncio.sleep(_RETRY_S)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        renewing = asyncio.create_task(self._renew(writer))
        try:
            with contextlib.suppress(OSError, ValueError):
                while line := await reader.readline():
                    # Nothing is said before it has said what it holds.
                    self._writer = writer
                    self._heard(messages.event(line))
        finally:
            self._writer = None
            self._lost()
            renewing.cancel()
            writer.close()

    async def _renew(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            writer.write(messages.encode(Renewal(self._clock() + HOLD_MAX_S)))
