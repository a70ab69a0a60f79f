"""``arrivals``: connect to addresses of the client's own segment from the moment on at which somebody answers for them.

Each is asked for by ARP, or a probe of NDP, until there is an answer; then one connection follows the other. So what is
counted is what a client meets that knows of an address as early as the segment does. It may also try each address at
short intervals until one try is answered, whatever becomes of earlier ones.
"""

import asyncio
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.links import Link
from lab.traffic import until
from lab.traffic.ask import Target, ask, kind_of

_ASK_EVERY_S: Final = 0.02
_LINK: Final = "eth0"
_TRY_EVERY_S, _TRY_S, _TRIES_S = 0.01, 0.2, 20.0


@dataclass
class Arrival:
    """What was met at one address. Times are CLOCK_MONOTONIC in seconds."""

    asked_at: float
    answered_at: float | None = None
    connected_at: float | None = None
    served_at: float | None = None
    """When a try was first answered."""
    connections: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON."""
        return dict(vars(self))


class Arrivals:
    """Asks for addresses, and connects to those that are answered for, so many times each."""

    def __init__(self, port: int, connections: int, every_s: float, timeout_s: float, *, tries: bool) -> None:
        self._port = port
        self._connections = connections
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._tries = tries
        self._link = Link.open(_LINK)
        self._mac = self._link.addresses().mac
        self.found: dict[str, Arrival] = {}
        self._open: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    async def run(self, lines: asyncio.StreamReader, patience_s: float) -> dict[str, Any]:
        """Take addresses, one a line, and return what was met at each once all is done, or the time is up."""
        loop = asyncio.get_running_loop()
        for each in self._link.sockets:
            loop.add_reader(each, self._hear)
        asking = asyncio.create_task(self._ask())
        while line := await lines.readline():
            ip = line.decode().strip()
            self.found[ip] = Arrival(time.monotonic())
            self._open.add(ip)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while self._open or self._tasks:
                    self._over.clear()
                    await self._over.wait()
        asking.cancel()
        return {ip: each.as_json() for ip, each in self.found.items()}

    async def _ask(self) -> None:
        while True:
            for ip in self._open:
                packed = ip_address(ip).packed
                self._link.send(arp.question(self._mac, packed) if len(packed) == 4 else ndp.probe(self._mac, packed))
            await asyncio.sleep(_ASK_EVERY_S)

    def _hear(self) -> None:
        for ip in self._told():
            if ip in self._open:
                self._open.discard(ip)
                self.found[ip].answered_at = time.monotonic()
                self._begin(self._hammer(ip, self.found[ip]))
                if self._tries:
                    self._begin(self._try(ip, self.found[ip]))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._over.set()

    def _told(self) -> Iterator[str]:
        for frame in self._link.read():
            said = arp.read(frame) if frame[12:14] == arp.PROTOCOL.to_bytes(2, "big") else ndp.read(frame)
            if said is not None and said.statement is not None:
                yield str(ip_address(said.statement.ip))

    async def _try(self, ip: str, arrival: Arrival) -> None:
        met = await until.first_answer(Target(ip, self._port, _TRY_S), _TRY_EVERY_S, _TRIES_S)
        if met["answered"]:
            arrival.served_at = met["monotonic_ns"] / 1e9

    async def _hammer(self, ip: str, arrival: Arrival) -> None:
        target = Target(ip, self._port, self._timeout_s)
        for _ in range(self._connections):
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await ask(target)
            except (OSError, ValueError, TimeoutError) as error:
                arrival.failures.append(kind_of(error))
            else:
                arrival.connected_at = arrival.connected_at or time.monotonic()
            took = time.monotonic() - began
            arrival.connections, arrival.slowest_s = arrival.connections + 1, max(arrival.slowest_s, took)
            await asyncio.sleep(max(0.0, self._every_s - took))


async def arrivals(
    port: int, connections: int, every_s: float, timeout_s: float, patience_s: float, *, tries: bool
) -> dict[str, Any]:
    """Take addresses on standard input until it ends, and return what was met at each."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return await Arrivals(port, connections, every_s, timeout_s, tries=tries).run(reader, patience_s)
