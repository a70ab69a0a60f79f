"""Three nodes that hold an address together, on a real segment: how long a client cannot connect when one fails."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from kube_nftlb import errors
from kube_nftlb.announce.announcer import Announcer
from kube_nftlb.announce.leases import Seen
from kube_nftlb.announce.ownership.address import Write
from kube_nftlb.announce.ownership.node import Address, Writing
from kube_nftlb.announce.ownership.records import NOBODY, Record
from tests.contract.segment import Host, Segment, usable

pytestmark = pytest.mark.skipif(not usable(), reason="needs root: network namespaces")

VIP = "192.0.2.10"
NODES = ("a", "b", "c")
PORT = 8080
LATEST_S = 5.0
"""For a client to connect anew, on a busy machine; three seconds if nothing else runs."""


class MemoryLeases:
    """``Leases`` of all nodes, as one API server has them."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.writes: list[Writing] = []
        self.watchers: list[Seen] = []

    def of(self, node: str) -> "NodeLeases":
        return NodeLeases(self, node)


class NodeLeases:
    def __init__(self, all_: MemoryLeases, node: str) -> None:
        self._all = all_
        self._node = node

    async def watch(self, seen: Seen, listed: Callable[[], None]) -> None:
        self._all.watchers.append(seen)
        for ip, record in self._all.records.items():
            seen(ip, record)
        listed()
        await asyncio.Event().wait()

    async def read(self, ip: str) -> Record:
        await asyncio.sleep(0.01)
        return self._all.records.get(ip, NOBODY)

    async def write(self, writing: Writing) -> Record:
        await asyncio.sleep(0.01)
        if await self.read(writing.ip) != writing.before:
            raise errors.ConflictError(409, "Conflict", "it has changed")
        self._all.writes.append(writing)
        version = str(int(writing.before.version or "0") + 1)
        if writing.write is Write.CLAIM:
            record = Record(version, self._node, writing.mac)
        else:
            record = writing.before._replace(version=version, leaving=writing.write is Write.LEAVE)
        self._all.records[writing.ip] = record
        for seen in self._all.watchers:
            seen(writing.ip, record)
        return record


class Node(NamedTuple):
    name: str
    host: Host
    responder: subprocess.Popen[bytes]
    announcer: Announcer
    running: asyncio.Task[None]


class Lab(NamedTuple):
    segment: Segment
    nodes: dict[str, Node]
    leases: MemoryLeases
    client: Host

    async def holder(self) -> Node:
        async with asyncio.timeout(20):
            while not (record := self.leases.records.get(VIP, NOBODY)).holder:
                await asyncio.sleep(0.01)
        return self.nodes[record.holder]


async def _serve(host: Host, name: str, stack: AsyncExitStack) -> None:
    """Answer connections to the address, which no interface has, with the name of the node."""
    host.run("nft", "add table ip nat; add chain ip nat in { type nat hook prerouting priority -100; }")
    host.run("nft", f"add rule ip nat in ip daddr {VIP} tcp dport 80 redirect to :{PORT}")
    listening = host.inside(lambda: socket.create_server(("", PORT)))

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode())
        writer.close()

    server = await asyncio.start_server(answer, sock=listening)
    stack.callback(server.close)


async def _node(name: str, host: Host, leases: MemoryLeases, folder: Path, stack: AsyncExitStack) -> Node:
    await _serve(host, name, stack)
    path = folder / f"{name}.sock"
    program = [sys.executable, "-m", "kube_nftlb.announce.wire", str(path)]
    responder = host.inside(lambda: subprocess.Popen(program))
    stack.callback(responder.wait)
    stack.callback(responder.kill)
    announcer = Announcer(name, path, leases.of(name))
    announcer.facts({VIP: Address(Host.link, host.mac, NODES)})
    running = asyncio.create_task(announcer.run())
    stack.callback(running.cancel)
    return Node(name, host, responder, announcer, running)


@asynccontextmanager
async def lab() -> AsyncIterator[Lab]:
    with ExitStack() as namespaces, TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            made = Segment(namespaces)
            leases = MemoryLeases()
            nodes = {}
            for number, name in enumerate(NODES, 1):
                nodes[name] = await _node(name, made.host(number), leases, Path(folder), stack)
            yield Lab(made, nodes, leases, made.host(200))


async def connect(client: Host, patience_s: float = 0.2) -> str:
    """Return the name of the node that answers a new connection; empty if none does in time."""
    with client.inside(socket.socket) as opened, contextlib.suppress(OSError, TimeoutError):
        opened.setblocking(False)
        async with asyncio.timeout(patience_s):
            loop = asyncio.get_running_loop()
            await loop.sock_connect(opened, (VIP, 80))
            return (await loop.sock_recv(opened, 10)).decode()
    return ""


async def until_connected(client: Host, *, other_than: str, patience_s: float = 10.0) -> float:
    """Return the seconds until another node answers."""
    began = time.monotonic()
    while time.monotonic() < began + patience_s:
        if (await connect(client)) not in ("", other_than):
            return time.monotonic() - began
        await asyncio.sleep(0.02)
    raise AssertionError(f"nobody answers within {patience_s} s")


async def power_off(node: Node, made: Segment) -> None:
    made.switch.run("ip", "link", "set", node.host.port, "down")
    node.responder.kill()
    node.running.cancel()


async def link_down(node: Node, made: Segment) -> None:
    made.switch.run("ip", "link", "set", node.host.port, "down")


async def stop_responder(node: Node, _: Segment) -> None:
    node.responder.send_signal(signal.SIGSTOP)


FAULTS = {"power-off": power_off, "link down": link_down, "responder stopped": stop_responder}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_client_connects_anew_within_seconds(fault: Callable[[Node, Segment], Awaitable[None]]) -> None:
    async with lab() as made:
        holder = await made.holder()
        await until_connected(made.client, other_than="")
        await asyncio.sleep(1.0)
        written = len(made.leases.writes)
        await fault(holder, made.segment)
        took = await until_connected(made.client, other_than=holder.name)
        assert took <= LATEST_S
        await asyncio.sleep(1.0)
        assert len(made.leases.writes) == written + 1, "at the hand-over, and not at rest"


async def test_a_drain_fails_no_connection() -> None:
    async with lab() as made:
        holder = await made.holder()
        await until_connected(made.client, other_than="")
        answers: list[str] = []
        began = time.monotonic()
        leaving: asyncio.Task[None] | None = None
        while time.monotonic() < began + 2.0:
            answers.append(await connect(made.client, 1.0))
            if len(answers) == 50:
                leaving = asyncio.create_task(holder.announcer.hand_over(2.0))
        assert "" not in answers
        assert leaving is not None
        assert leaving.done(), "it waits until another node has the address, and no longer"
        assert answers[0] == holder.name != answers[-1]
