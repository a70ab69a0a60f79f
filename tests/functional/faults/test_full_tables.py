"""The kernel's table of connections is full, or no port is left to one backend: what is lost, and what is reported."""

import contextlib
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lab.traffic.ask import ask_udp
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.faults.load import Web

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not suite.LONG, reason="the long form has it: `make faults`"),
    pytest.mark.timeout(600),
]

MAX = Path("/proc/sys/net/netfilter/nf_conntrack_max")
COUNT, UDP_TIMEOUT = MAX.with_name("nf_conntrack_count"), MAX.with_name("nf_conntrack_udp_timeout")
MOST = 1 << 19
"""More connections would take this suite minutes, and the machine hundreds of MB."""
PORTS = range(1, 1 << 16)
FLOWS = range(1024, 1 << 16)
"""The source ports of the flows to each of two VIPs: more flows than the node has ports for one backend."""
FAILURES = 100
"""After which no more are tried."""


def metric(cluster: Cluster, name: str) -> float:
    def get() -> str:
        with urllib.request.urlopen("http://127.0.0.1:9195/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    page = cluster.lab.inside(cluster.nodes[0], get)
    return float(next(line.split()[1] for line in page.splitlines() if line.startswith(f"{name} ")))


@contextlib.contextmanager
def flooded(cluster: Cluster, most: int) -> Iterator[None]:
    """Keep the node's table full: datagrams of the node itself to addresses and ports where nobody listens."""
    stop = threading.Event()

    def flood() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sent = 0
            while not stop.is_set():
                ip = f"127.1.{sent // 65535 // 250 % 250}.{sent // 65535 % 250 + 1}"
                for port in PORTS:
                    with contextlib.suppress(OSError):
                        sender.sendto(b"", (ip, port))
                sent += 65535
                if sent > 2 * most:
                    # An entry without an answer lasts for 30 s.
                    sent = 0

    thread = threading.Thread(target=cluster.lab.inside, args=(cluster.nodes[0], flood))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def entries(cluster: Cluster) -> int:
    return int(cluster.lab.inside(cluster.nodes[0], COUNT.read_text))


def test_a_full_table_breaks_no_open_connection_and_is_reported(small: Cluster, small_web: Web) -> None:
    most = int(MAX.read_text())
    if most > MOST:
        reason = f"nf_conntrack_max is {most:,}, no setting of a network namespace, and too much to be filled"
        suite.missing("conntrack", reason)
        pytest.skip(reason)
    with small_web.loaded() as load:
        time.sleep(2)
        with flooded(small, most):
            eventually(lambda: entries(small) > most * 0.97, "the table is full", 120)
            eventually(
                lambda: metric(small, "kube_nftlb_conntrack_entries") > most * 0.9, "the agent's metric says so", 30
            )
            time.sleep(5)
    print(load)
    suite.record("conntrack", "connections", "", load.tcp, fault="full table")
    suite.record("conntrack", "failed connections", "", load.tcp_failed, fault="full table")
    suite.record("conntrack", "datagrams", "", load.udp, fault="full table")
    suite.record("conntrack", "lost datagrams", "", load.udp_lost, fault="full table")
    assert load.broken == 0, load
    with small_web.loaded() as load:
        time.sleep(2)
    assert load.failed == 0, load


@contextlib.contextmanager
def flows_kept(cluster: Cluster) -> Iterator[None]:
    """Keep flows of a single question for as long as the test lasts."""

    def set_timeout(seconds: int) -> None:
        cluster.lab.inside(cluster.nodes[0], lambda: UDP_TIMEOUT.write_text(str(seconds)))

    set_timeout(300)
    try:
        yield
    finally:
        set_timeout(30)


def test_more_flows_than_ports_to_one_backend_harm_no_other(small: Cluster, small_web: Web) -> None:
    namespace, client = small_web.namespace, small_web.client
    port = {"name": "dns", "port": 53, "protocol": "UDP"}
    small.run("single", 1, namespace, ports=[{"containerPort": 53, "protocol": "UDP"}])
    for name in ("one", "another"):
        small.apply(service(name, namespace, selector={"app": "single"}, ports=[port]))
        small.farm_has(f"{name}--dns", namespace, 1)

    def flows(vip: str) -> int:
        """Open a flow from each port, one after another, until many fail; return how many were answered."""
        answered = 0
        for source in FLOWS:
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
                asker.settimeout(0.05)
                asker.bind(("", source))
                asker.connect((vip, 53))
                ask_udp(asker)
                answered += 1
            if source - FLOWS.start - answered > FAILURES:
                break
        return answered

    with small_web.loaded() as load, flows_kept(small):
        vips = [small.vip(name, namespace) for name in ("one", "another")]
        answered = [small.lab.inside(client, partial(flows, vip)) for vip in vips]
    print(answered, load)
    suite.record("conntrack", "flows answered", "", sum(answered), fault="no port left to one backend")
    suite.record("conntrack", "connections", "", load.tcp, fault="no port left to one backend")
    suite.record("conntrack", "failed connections", "", load.tcp_failed, fault="no port left to one backend")
    assert answered[0] > 60_000
    assert answered[1] < 10_000, "no port is left"
    assert load.failed == 0, load
    for vip in vips:
        small.lab.exec(small.nodes[0], "conntrack", "-D", "-p", "udp", "-d", vip)
    eventually(lambda: bool(small.answers(client, vips[1], 53, "--udp", number=5)), "ports are free again")
