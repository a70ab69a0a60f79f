"""Observe from outside when each step of a Service on its way to the kernel happens."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from kube_nftlb import names
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, JsonObject, Resource
from kube_nftlb.netfilter import notifications
from lab.lab import Lab

_NETLINK_NETFILTER = 12
_GROUP_NFTABLES = 7
_SO_RCVBUFFORCE = 33
_SO_ADD_MEMBERSHIP = 1
_SOL_NETLINK = 270
_ETH_P_IP = 0x0800
_NFTLB_PORT = 5555
_BUFFER = 64 << 20


@dataclass
class Seen:
    """Times in ns of CLOCK_MONOTONIC."""

    objects: dict[str, int] = field(default_factory=dict)
    """The time at which each object first appeared to watchers, by kind and Service, for example ``nftlbfarms/web``."""
    transactions: list[tuple[int, str]] = field(default_factory=list)
    """Each change of nftables on the node, and the program that made it."""
    posts: list[int] = field(default_factory=list)
    """The times at which changes were sent to nftlb."""


@contextlib.asynccontextmanager
async def watch(lab: Lab, kube: Kube, node: str) -> AsyncIterator[Seen]:
    """Record events during the block."""
    seen = Seen()
    loop = asyncio.get_running_loop()
    transactions, packets = lab.inside(node, _nftables_events), lab.inside(node, _loopback)
    loop.add_reader(transactions, _on_transactions, transactions, seen)
    loop.add_reader(packets, _on_packet, packets, seen)
    resources = [ENDPOINT_SLICES, *([FARMS] if lab.proxy == "kube-nftlb" else [])]
    tasks = [asyncio.create_task(_follow(kube, resource, seen)) for resource in resources]
    try:
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for tap in (transactions, packets):
            loop.remove_reader(tap)
            tap.close()


def _nftables_events() -> socket.socket:
    tap = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _NETLINK_NETFILTER)
    tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    tap.bind((0, 0))
    tap.setsockopt(_SOL_NETLINK, _SO_ADD_MEMBERSHIP, _GROUP_NFTABLES)
    return tap


def _loopback() -> socket.socket:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(_ETH_P_IP))
    tap.bind(("lo", _ETH_P_IP))
    return tap


def _on_transactions(tap: socket.socket, seen: Seen) -> None:
    now = time.monotonic_ns()
    with contextlib.suppress(BlockingIOError):
        while True:
            seen.transactions.extend((now, program) for program in notifications.programs(tap.recv(1 << 20)))


def _on_packet(tap: socket.socket, seen: Seen) -> None:
    now = time.monotonic_ns()
    with contextlib.suppress(BlockingIOError):
        while True:
            packet = tap.recv(256)
            tcp = (packet[0] & 15) * 4
            is_post = (
                packet[tcp + (packet[tcp + 12] >> 4) * 4 :].startswith(b"POST ")
                if packet[9] == socket.IPPROTO_TCP
                else False
            )
            if is_post and struct.unpack_from("!H", packet, tcp + 2)[0] == _NFTLB_PORT:
                seen.posts.append(now)


async def _follow(kube: Kube, resource: Resource, seen: Seen) -> None:
    def note(raw: JsonObject) -> None:
        labels = raw["metadata"].get("labels", {})
        name = labels.get(names.LABEL_SLICE_SERVICE) or labels.get(names.LABEL_SERVICE) or raw["metadata"]["name"]
        seen.objects.setdefault(f"{resource.plural}/{name}", time.monotonic_ns())

    handlers = Handlers(replace=lambda _: None, put=note, remove=note, failed=lambda _: None)
    await list_and_watch(kube, resource, handlers)
