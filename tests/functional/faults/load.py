"""Traffic during a fault: new TCP connections over IPv4, UDP over IPv6, and downloads that were there before."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.traffic.ask import Target, ask_udp, open_udp
from tests.builders.manifests import client_pod, service
from tests.functional.cluster import Cluster

_UDP_PATIENCE_S = 1.0
_PAUSE_S = 0.01
PODS = 2


def _remember_nothing() -> None:
    """Have a pod forget connections that it has closed, as it otherwise does after a minute.

    A client has no port to spare after some 50,000, and looks for one for up to a second, with any proxy.
    """
    Path("/proc/sys/net/ipv4/tcp_max_tw_buckets").write_text("0")


@dataclass
class Load:
    """The results of the traffic; filled in when it has ended."""

    tcp: int = 0
    tcp_failed: int = 0
    failures: list[Any] = field(default_factory=list)
    """The errors of the failed connections."""
    longest_gap_ms: float = 0
    udp: int = 0
    udp_lost: int = 0
    """Datagrams without an answer, of flows that began before as well as of new ones."""
    broken: int = 0
    """Downloads that did not go on to their end."""

    @property
    def failed(self) -> int:
        return self.tcp_failed + self.udp_lost + self.broken


@dataclass(frozen=True)
class Web:
    """A Service with both families and protocols, and the client of it."""

    cluster: Cluster
    namespace: str
    client: str
    name: str = "web"

    @classmethod
    def start(cls, cluster: Cluster, namespace: str, engine: str | None = None) -> "Web":
        """Start pods on both nodes, a Service of them for an engine, and a client on the first node, once for all."""
        cluster.apply(client_pod("client", namespace, cluster.nodes[0]))
        name = f"web-{engine}" if engine else "web"
        cluster.apply(
            service(
                name,
                namespace,
                {"engine": engine} if engine else None,
                selector={"app": "web"},
                ipFamilyPolicy="RequireDualStack",
                ports=[{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}],
            )
        )
        cluster.run(
            "web", PODS, namespace, ports=[{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}], grace_s=1
        )
        cluster.wait("pod", "client", "Ready", namespace)
        for pod in ("client", *cluster.pods("web", namespace)):
            cluster.lab.inside(f"{namespace}/{pod}", _remember_nothing)
        for farm in ("http", "http--ipv6", "dns", "dns--ipv6"):
            cluster.farm_has(f"{name}--{farm}", namespace, PODS)
        return cls(cluster, namespace, f"{namespace}/client", name)

    @property
    def vip(self) -> str:
        return self.cluster.vip(self.name, self.namespace)

    @contextlib.contextmanager
    def loaded(self) -> Iterator[Load]:
        """Put load on the Service during the block."""
        load, stop = Load(), threading.Event()
        vip, vip6 = self.vip, self.cluster.vip(self.name, self.namespace, "ipv6")
        datagrams = threading.Thread(target=self._datagrams, args=(vip6, load, stop))
        datagrams.start()
        streams: list[dict[str, Any]] = []
        hammered: dict[str, Any] = {}
        try:
            with (
                self.cluster.streams(2, self.client, vip) as streams,
                self.cluster.hammer(self.client, vip) as hammered,
            ):
                yield load
        finally:
            stop.set()
            datagrams.join()
        load.tcp, load.failures = hammered["attempts"], hammered["failures"]
        load.tcp_failed, load.longest_gap_ms = len(load.failures), hammered["longest_gap_ms"]
        load.broken = sum(not stream["complete"] for stream in streams)

    def _datagrams(self, vip: str, load: Load, stop: threading.Event) -> None:
        target = Target(vip, 53, _UDP_PATIENCE_S)

        def ask_all() -> None:
            with contextlib.closing(open_udp(target)) as kept:
                while not stop.is_set():
                    with contextlib.closing(open_udp(target)) as new:
                        for asker in (kept, new):
                            load.udp += 1
                            try:
                                ask_udp(asker)
                            except OSError:
                                load.udp_lost += 1
                    time.sleep(_PAUSE_S)

        self.cluster.lab.inside(self.client, ask_all)
