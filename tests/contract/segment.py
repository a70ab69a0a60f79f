"""A bridge that snoops on multicast, with hosts on it, each a network namespace of its own."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kube_nftlb.announce.wire import messages
from kube_nftlb.announce.wire.links import Link
from kube_nftlb.announce.wire.messages import Event, State
from kube_nftlb.netfilter.namespaces import in_namespace

_T = TypeVar("_T")
_EventT = TypeVar("_EventT", bound=Event)
BRIDGE = "br0"
_NO_PROBES_OF_ITS_OWN = "net.ipv6.conf.default.accept_dad=0"


class Network:
    """A network namespace, for as long as a process sleeps in it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.pid = self._process.pid
        self.path = Path(f"/proc/{self.pid}/ns/net")
        own = Path("/proc/self/ns/net").readlink()
        until(lambda: self.path.readlink() != own, "the namespace is there")
        self.run("sysctl", "-qw", _NO_PROBES_OF_ITS_OWN, "net.ipv6.conf.all.disable_ipv6=0")
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command: str) -> str:
        entered = ["nsenter", "-t", str(self.pid), "-n", *command]
        return subprocess.run(entered, check=True, capture_output=True, text=True).stdout

    def inside(self, function: Callable[[], _T]) -> _T:
        return in_namespace(self.path, function)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Host(Network):
    """A host with the interface eth0: 192.0.2.NUMBER, 2001:db8::NUMBER, 02:00:00:00:00:NUMBER."""

    link = "eth0"

    def __init__(self, switch: Network, number: int) -> None:
        super().__init__()
        self.number = number
        self.mac = f"02:00:00:00:00:{number:02x}"
        self.port = f"p{number}"
        pair = ["type", "veth", "peer", "name", self.link, "address", self.mac, "netns", str(self.pid)]
        switch.run("ip", "link", "add", self.port, "master", BRIDGE, *pair)
        switch.run("ip", "link", "set", self.port, "up")
        self.run("ip", "link", "set", self.link, "up")
        self.run("ip", "address", "add", f"{self.address('192.0.2.0')}/24", "dev", self.link)
        self.run("ip", "address", "add", f"{self.address('2001:db8::')}/64", "dev", self.link, "nodad")

    def address(self, other: str) -> str:
        """Return this host's address of the family that another one has."""
        return f"2001:db8::{self.number:x}" if ":" in other else f"192.0.2.{self.number}"

    def neighbour(self, ip: str) -> str:
        """Return the link-layer address at which this host's kernel has another, after it was asked for it."""
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        with self.inside(lambda: socket.socket(family, socket.SOCK_DGRAM)) as asking:
            asking.sendto(b"?", (ip, 9))
        deadline = time.monotonic() + 1.5
        while not (found := self.known(ip)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return found

    def known(self, ip: str) -> str:
        """Return the link-layer address that this host's kernel has for another now."""
        entries: list[dict[str, Any]] = json.loads(self.run("ip", "-j", "neigh", "show", ip, "dev", self.link) or "[]")
        return next((str(entry["lladdr"]) for entry in entries if "lladdr" in entry), "")

    def forget(self) -> None:
        self.run("ip", "neigh", "flush", "dev", self.link)
        self.run("ip", "-6", "neigh", "flush", "dev", self.link)

    def open(self) -> Link:
        return self.inside(lambda: Link.open(self.link))


class Agent:
    """A responder on a host, and the end of the agent, which says only what it is told to."""

    def __init__(self, host: Host, folder: Path) -> None:
        path = folder / f"{host.pid}.sock"
        only = ["setpriv", "--bounding-set=-all,+net_raw", "--inh-caps=-all"]
        program = [*only, sys.executable, "-m", "kube_nftlb.announce.wire", str(path)]
        self.process = host.inside(lambda: subprocess.Popen(program))
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self.connect()

    def connect(self) -> None:
        """Connect, as an agent that restarts does."""
        until(self._path.exists, "the responder listens")
        self._socket.close()
        self._socket = socket.socket(socket.AF_UNIX)
        until(lambda: self._socket.connect_ex(str(self._path)) == 0, "the responder accepts")
        self._socket.settimeout(0.01)
        self._received = b""
        self.events: list[Event] = []

    def want(self, state: State, seconds: float = 5.0) -> None:
        deadline = time.monotonic() + seconds
        self._socket.sendall(messages.encode(msgspec.structs.replace(state, deadline=deadline)))

    def wait(self, kind: type[_EventT], seconds: float = 10.0) -> _EventT:
        """Return the next event of a kind; others before it are dropped."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._read()
            while self.events:
                if isinstance(event := self.events.pop(0), kind):
                    return event
        raise AssertionError(f"no {kind.__name__}")

    def close(self) -> None:
        self._socket.close()
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        try:
            self._received += self._socket.recv(1 << 16)
        except TimeoutError:
            return
        *lines, self._received = self._received.split(b"\n")
        self.events += [messages.event(line) for line in lines]


class Segment:
    """The switch, and hosts that are added."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.switch = Network()
        stack.callback(self.switch.close)
        snooping = ["mcast_snooping", "1", "mcast_querier", "1", "mcast_query_response_interval", "10"]
        self.switch.run("ip", "link", "add", BRIDGE, "type", "bridge", *snooping)
        self.switch.run("ip", "link", "set", BRIDGE, "up")

    def host(self, number: int) -> Host:
        host = Host(self.switch, number)
        self._stack.callback(host.close)
        return host

    def groups(self, host: Host) -> set[str]:
        """Return the multicast groups that the switch forwards to a host."""
        told = json.loads(self.switch.run("bridge", "-j", "mdb", "show", "dev", BRIDGE))
        return {entry["grp"] for each in told for entry in each.get("mdb", ()) if entry["port"] == host.port}


@contextmanager
def segment() -> Iterator[Segment]:
    """Make a segment."""
    with ExitStack() as stack:
        yield Segment(stack)


def until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline, f"not within ten seconds: {what}"
        time.sleep(0.005)


def usable() -> bool:
    return os.geteuid() == 0
