"""Measure the CPU time of a connection's first packet to a farm with groups, beside one without.

::

    unshare --net --mount python -m tests.contract.group_cost

prints the median of a farm without groups in ns, and of the others their ratio to it. Packets of UDP pass from a
client's network namespace through the rules of this one into the socket of a server in a third: a send returns once
they are there.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.changes import FarmChange
from tests.builders import Grouped, grouped_farm
from tests.contract.affinity_cost import Crowd, apply, ordinary
from tests.contract.nftables_node import HERE, Node

ROUNDS: Final = 40
FLOWS: Final = 2000
SERVER: Final = "10.244.0.2"
_CLIENT: Final = "10.250.0.2"
_NEWNET: Final = 0x40000000

_PLAIN: Final = {"a": Grouped(1, [SERVER])}
_GROUPS: Final = {"a": Grouped(7, [SERVER]), "b": Grouped(3, [SERVER])}
_MANY: Final = {"a": Grouped(700, [SERVER]), "b": Grouped(299, [SERVER]), "c": Grouped(1, [SERVER])}
FARMS: Final[dict[str, tuple[dict[str, Grouped], dict[str, Any]]]] = {
    "plain": (_PLAIN, {}),
    "plain again": (_PLAIN, {}),
    "2 groups": (_GROUPS, {}),
    "3 groups, 1,000 numbers": (_MANY, {}),
    "hash": (_PLAIN, {"scheduler": "hash"}),
    "hash, 2 groups": (_GROUPS, {"scheduler": "hash"}),
}
"""The first is what the others are compared with. An endpoint of both groups is one destination."""


@contextlib.contextmanager
def topology() -> Iterator[tuple[int, int]]:
    """Make the namespaces of a client and a server, with this one between them."""
    with contextlib.ExitStack() as stack:
        spaces = []
        for name, ours, theirs in (("client", "10.250.0.1", _CLIENT), ("server", "10.244.0.1", SERVER)):
            holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            stack.callback(holder.kill)
            while Path(f"/proc/{holder.pid}/ns/net").stat().st_ino == Path("/proc/self/ns/net").stat().st_ino:
                time.sleep(0.01)
            inside = ["nsenter", "--net", "--target", str(holder.pid)]
            for command in (
                ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)],
                ["ip", "addr", "add", f"{ours}/24", "dev", name],
                ["ip", "link", "set", name, "up"],
                [*inside, "ip", "addr", "add", f"{theirs}/24", "dev", "eth0"],
                [*inside, "ip", "link", "set", "eth0", "up"],
                [*inside, "ip", "route", "add", "default", "via", ours],
            ):
                subprocess.run(command, check=True)
            spaces.append(os.open(f"/proc/{holder.pid}/ns/net", os.O_RDONLY))
        subprocess.run(["sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        yield spaces[0], spaces[1]


def inside(space: int, call: Callable[[], Any]) -> Any:
    """Call in a network namespace, in a thread that ends with it."""

    def entered() -> Any:
        if ctypes.CDLL(None, use_errno=True).setns(space, _NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        return call()

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(entered).result()


def first_ns(host: str) -> float:
    """Return the mean CPU time of the first packets of connections."""
    with contextlib.ExitStack() as stack:
        calls = []
        for _ in range(FLOWS):
            sender = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sender.connect((host, 80))
            calls.append(sender.send)
        began = time.thread_time_ns()
        for call in calls:
            call(b"packet")
        return (time.thread_time_ns() - began) / FLOWS


def serve() -> socket.socket:
    """Return a socket that packets end in, which nobody reads."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind((SERVER, 8080))
    return listener


async def main() -> None:
    """Print the results."""
    with topology() as (client, server), tempfile.TemporaryDirectory() as folder:
        listener = inside(server, serve)
        node = await Node.open(Path(folder))
        await apply(node, Crowd(1000, ordinary, lambda _: {}).changes())
        vips = {}
        for number, (name, (groups, more)) in enumerate(FARMS.items(), 1):
            vips[name] = f"10.96.1.{number}"
            addresses = [{"ip": vips[name], "ports": "80"}]
            spec = {"addresses": addresses, "engine": "nftables", "protocol": "UDP", **more}
            wanted = node_farm(grouped_farm(f"farm-{number}", groups=groups, **spec), HERE, None)
            await apply(node, [FarmChange(wanted.name, wanted)])
        found: dict[str, list[float]] = {name: [] for name in FARMS}
        for _ in range(ROUNDS):
            for name, vip in vips.items():
                found[name].append(inside(client, lambda vip=vip: first_ns(vip)))  # type: ignore[misc]
            subprocess.run(["conntrack", "-F"], check=True, capture_output=True)  # noqa: ASYNC221 - nothing else runs
        listener.close()
        node.close()
    base = found[next(iter(FARMS))]
    print(f"{next(iter(FARMS))}: {statistics.median(base):.0f} ns ({FLOWS} connections, {ROUNDS} rounds)")
    for name, times in list(found.items())[1:]:
        ratios = sorted(time / other for time, other in zip(times, base, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-len(ratios) // 4]
        print(f"{name}: {statistics.median(ratios):.3f} (quartiles {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    asyncio.run(main())
