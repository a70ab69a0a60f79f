"""The Unix socket on which the agent gives orders to the responder."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kube_nftlb.announce.wire.messages import LINE_MAX, Event, encode

_READ_BYTES: Final = 1 << 16
_UNREAD_MAX: Final = 1 << 20
"""Bytes of events that may wait for an agent that does not read, before it is cut off."""


class Control:
    """Listens, and talks to the agent that connected last: one that restarts need not wait for the end of the other."""

    def __init__(self, path: Path) -> None:
        """Listen at a path, in place of a socket that is there. Raises OSError."""
        path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self.listener.bind(str(path))
        path.chmod(0o600)
        self.listener.listen(1)
        self.agent: socket.socket | None = None
        self._received = bytearray()
        self._unsent = bytearray()

    def accept(self) -> bool:
        """Take a new connection in place of the one that there is. Return whether there was one to take."""
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return False
        self.hang_up()
        connection.setblocking(False)
        self.agent = connection
        return True

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that have arrived. Raises OSError or EOFError when the connection has ended."""
        if self.agent is None:
            return
        ended = False
        with contextlib.suppress(BlockingIOError):
            while not ended:
                data = self.agent.recv(_READ_BYTES)
                self._received += data
                ended = not data
        *whole, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        if len(rest) > LINE_MAX:
            raise OSError("a line of the agent is too long")
        yield from (bytes(line) for line in whole)
        if ended:
            raise EOFError

    def tell(self, events: list[Event]) -> None:
        """Send events, as far as the agent reads them. Raises OSError when the connection has ended."""
        if self.agent is None:
            return
        self._unsent += b"".join(encode(event) for event in events)
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self.agent.send(self._unsent)]
        if len(self._unsent) > _UNREAD_MAX:
            raise OSError("the agent does not read")

    def hang_up(self) -> None:
        """End the connection."""
        if self.agent is not None:
            self.agent.close()
        self.agent = None
        self._received.clear()
        self._unsent.clear()
