"""Run a responder: its sockets and its clock. All else is in ``responder``, and pure."""

import math
import select
import signal
import sys
import time
from pathlib import Path
from typing import Final

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.control import Control
from kube_nftlb.announce.wire.links import Link
from kube_nftlb.announce.wire.messages import order
from kube_nftlb.announce.wire.responder import Responder
from kube_nftlb.announce.wire.time_slices import shorten_slices

_LOOK_S: Final = 1.0
"""The interval in which links are looked at: those that were missing, and whether their addresses have changed."""
_LATE_S: Final = 1.0
"""If it stood still for longer, as after SIGSTOP, others may have its addresses: what waited is not answered."""


class Service:
    """The sockets around a ``Responder``."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._responder = Responder()
        self._links: dict[str, Link] = {}
        self._look_at = 0.0
        self._changes = 0
        """The state of the responder for which links were looked at."""
        self._ending = False

    def end(self) -> None:
        """Have ``run`` return once nothing is answered for."""
        self._ending = True

    def run(self) -> None:
        """Answer until ``end``, and then until others have the addresses, or the agent is silent."""
        while not self._ending or self._responder.holds:
            until = min(self._look_at, self._responder.wake() or math.inf)
            ready = self._wait(until)
            late = time.monotonic() > until + _LATE_S
            self._orders(ready)
            for link in [each for each in self._links.values() if ready & {one.fileno() for one in each.sockets}]:
                self._frames(link, late=late)
            self._look()
            self._send()
            self._tell()

    def _wait(self, until: float) -> set[int]:
        poll = select.poll()
        poll.register(self._control.listener, select.POLLIN)
        if self._control.agent is not None:
            poll.register(self._control.agent, select.POLLIN)
        for link in self._links.values():
            for each in link.sockets:
                poll.register(each, select.POLLIN)
        # Rounded up: a little too early would be a turn in vain.
        return {descriptor for descriptor, _ in poll.poll(math.ceil(max(0.0, until - time.monotonic()) * 1000))}

    def _orders(self, ready: set[int]) -> None:
        if self._control.listener.fileno() in ready and self._control.accept():
            self._responder.events[:] = self._responder.standing(time.monotonic())
        if self._control.agent is None or self._control.agent.fileno() not in ready:
            return
        try:
            for line in self._control.lines():
                self._responder.order(order(line), time.monotonic())
        except EOFError:
            self._control.hang_up()
        except (OSError, ValueError) as error:
            print(f"the agent's connection is closed: {error}", file=sys.stderr)
            self._control.hang_up()

    def _frames(self, link: Link, *, late: bool) -> None:
        try:
            for frame in link.read():
                read = arp.read if frame[12:14] == arp.PROTOCOL.to_bytes(2, "big") else ndp.read
                said = read(frame)
                if said is None:
                    continue
                answer = self._responder.frame(link.name, said, time.monotonic(), late=late)
                if answer is not None:
                    link.send(answer)
        except OSError as error:
            self._lose(link.name, str(error))

    def _look(self) -> None:
        """Open and close links as they are needed, and as they come and go."""
        now = time.monotonic()
        if now < self._look_at and self._responder.changes == self._changes:
            return
        changed = self._responder.changes != self._changes
        self._look_at, self._changes = now + _LOOK_S, self._responder.changes
        wanted = self._responder.links()
        for name in self._links.keys() - wanted:
            self._lose(name)
        for name in wanted:
            try:
                if is_new := name not in self._links:
                    self._links[name] = Link.open(name)
                addresses = self._links[name].addresses()
                if is_new or changed:
                    self._links[name].join(self._responder.groups(name))
                # Not before: one that cannot join is closed, and who is asked there would be taken for silent.
                self._responder.link(name, addresses, now)
            except OSError as error:
                self._lose(name, str(error))

    def _lose(self, name: str, error: str = "") -> None:
        """Close a link that cannot be used, or that is no longer needed."""
        if (link := self._links.pop(name, None)) is not None:
            link.close()
        self._responder.link(name, None, time.monotonic(), error)

    def _send(self) -> None:
        for name, frame in self._responder.due(time.monotonic()):
            try:
                if (link := self._links.get(name)) is not None:
                    link.send(frame)
            except OSError as error:
                self._lose(name, str(error))

    def _tell(self) -> None:
        events, self._responder.events = self._responder.events, []
        try:
            self._control.tell(events)
        except OSError as error:
            print(f"the agent's connection is closed: {error}", file=sys.stderr)
            self._control.hang_up()


def run(path: Path) -> None:
    """Answer for the agent that connects to this socket, until a signal and until it holds no address any more.

    Both end at the same time where their pod does, and the agent has to hand its addresses over first.
    Raises OSError if the socket cannot be made.
    """
    shorten_slices()
    service = Service(Control(path))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.end())
    service.run()
