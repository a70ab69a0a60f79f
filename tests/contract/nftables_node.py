"""A node with the engine of nftables maps over a real kernel, and clients of its Services."""

import contextlib
import socket
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from kube_nftlb import errors
from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.engine.nftables.engine import NftablesEngine
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.agent.engine.nftables.reading import TableElements
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.apply import Applier
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.api.farm import Farm
from kube_nftlb.netfilter.conntrack.table import Conntrack
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.netfilter.notifications import Notifications
from tests.builders import farm, grouped_farm, raw_backend
from tests.contract.servers import PORT
from tests.fakes.conntrack import FakeConntrack
from tests.fakes.engine import FakeEngine

VIPS = [f"10.96.0.{number}" for number in range(1, 5)]
HERE = NodeFacts("here", "a", {"ipv4": ("127.0.0.1",)}, {"ipv4": ("10.244.0.0/24",)})
LIMITED = {"type": "LoadBalancer", "ip": VIPS[1], "ports": "80", "sourceRanges": ["192.0.2.0/24"]}


def nft(command: str) -> None:
    subprocess.run(["nft", command], check=True)


class Node:
    """The engine and all that it needs, as in the agent."""

    def __init__(self, engine: NftablesEngine, table: AgentTable, connections: Connections, closing: list[Any]) -> None:
        self.engine = engine
        self.table = table
        self.connections = connections
        self.applier = Applier(Engines(engine, FakeEngine(), MonotonicClock()), table, connections)
        self._closing = closing

    @classmethod
    async def open(cls, folder: Path) -> "Node":
        watch = Notifications.open()
        nft, netfilter, elements = Nft.open(), NftSocket.open(watch.muted), TableElements.open()
        conntrack, table = Conntrack.open(), AgentTable(nft)
        connections = Connections(conntrack, FakeConntrack(), MonotonicClock())
        file = folder / "nftables.json"
        engine = NftablesEngine(nft, netfilter, elements, connections, table, file, MonotonicClock())
        # As the agent's loop does.
        with contextlib.suppress(errors.KernelError):
            await engine.restore()
        await engine.load()
        await engine.set_node(HERE)
        await table.create()
        return cls(engine, table, connections, [netfilter, elements, conntrack, watch])

    def close(self) -> None:
        for each in self._closing:
            each.close()

    async def put(self, name: str, spec: dict[str, Any] | None) -> None:
        change = FarmChange(name)
        if spec is not None:
            wanted = node_farm(made_of(name, spec), HERE, None)
            assert self.engine.unsupported(wanted) is None
            change = FarmChange(name, wanted)
        await self.apply(change)

    async def apply(self, change: FarmChange) -> None:
        applied = await self.applier.apply([change])
        assert not {**applied.refused, **applied.rules_refused}


def made_of(name: str, spec: dict[str, Any]) -> Farm:
    """Return the farm with a spec, in which ``groups`` may stand for references (``grouped_farm``)."""
    return grouped_farm(name, **spec) if "groups" in spec else farm(name=name, **spec)


def spec(vip: str, *ips: str, **more: Any) -> dict[str, Any]:
    backends = [raw_backend(f"pod-{ip.replace('.', '-')}", ip, port=PORT) for ip in ips]
    return {"addresses": [{"ip": vip, "ports": "80"}], "backends": backends, "engine": "nftables", **more}


def ask(vip: str, port: int = 80, source: str = "", timeout_s: float = 1) -> str:
    """Return the endpoint that answers, or ``refused``, or ``nothing``."""
    try:
        with socket.create_connection(
            (vip, port), timeout=timeout_s, source_address=(source, 0) if source else None
        ) as asked:
            return asked.recv(100).decode()
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "nothing"


def reached(vip: str, times: int, source: str = "") -> Counter[str]:
    return Counter(ask(vip, source=source) for _ in range(times))


def listed(what: str = f"table inet {TABLE}") -> str:
    return subprocess.run(["nft", "list", *what.split()], check=True, capture_output=True, text=True).stdout
