"""Addresses that nodes announce on the client's segment: who holds them, and what becomes of connections to them."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from kube_nftlb.announce.ownership import records
from kube_nftlb.announce.ownership.records import Record
from lab.addresses import API_PORT
from lab.places import CLIENT, SWITCH
from lab.rights import NAMESPACE
from tests import engine
from tests.builders.manifests import service
from tests.functional.cluster import TRAFFIC, Cluster, eventually
from tests.functional.faults import suite

POOL: dict[str, Any] = {
    "apiVersion": "kube-nftlb.io/v1alpha1",
    "kind": "NftlbAddressPool",
    "metadata": {"name": "segment"},
    "spec": {
        "ranges": [
            "172.31.0.100-172.31.0.199",
            "fd00:31::100/120",
            "fd00:31::1:0/112",
            "172.31.2.0/24",
            "fd00:31::2:0/112",
        ]
    },
}
_FORGET_EVERY_S = 0.1


def announce(cluster: Cluster, name: str, namespace: str, *ips: str, **spec: Any) -> None:
    """Make a Service that has these addresses, as the operator gives them."""
    cluster.apply(service(name, namespace, type="LoadBalancer", allocateLoadBalancerNodePorts=False, **spec))
    ingress = [{"ip": ip, "ipMode": "VIP"} for ip in ips]
    cluster.api.request(
        "PATCH",
        f"/api/v1/namespaces/{namespace}/services/{name}/status",
        {"status": {"loadBalancer": {"ingress": ingress}}},
        "application/merge-patch+json",
    )


def record(cluster: Cluster, ip: str) -> Record:
    """What the Lease of an address says."""
    raw = cluster.get("lease", records.name(ip), NAMESPACE)
    return records.parse(raw)[1] if raw is not None else Record()


def holder(cluster: Cluster, ip: str, *, other_than: str = "") -> str:
    """The node that holds an address, once one does."""
    eventually(lambda: record(cluster, ip).holder not in ("", other_than), f"{ip} has another holder", 30)
    return record(cluster, ip).holder


def served(cluster: Cluster, ip: str, *options: str) -> None:
    """Wait until connections to an address are answered."""
    eventually(lambda: bool(cluster.answers(CLIENT, ip, 80, *options, number=3)), f"{ip} is answered", 30)


def cut(met: dict[str, Any]) -> int:
    """Take the connections from the failures of a hammer that were open as an address moved; return their number.

    No other node knows them, so they end, or nobody answers any more. Those that were never established stay: a SYN
    that is lost is sent again within the hammer's patience, and fails nothing.
    """
    ended = _open(met)
    met["failed"] = dict(Counter(met["failed"]) - ended)
    return ended.total()


def _open(met: dict[str, Any]) -> Counter[str]:
    """The connections that were established, and then reset or no longer answered."""
    failed = Counter(met["failed"]) - Counter(met["failed_to_open"])
    return Counter({kind: failed[kind] for kind in ("reset", "timeout")})


def note(met: dict[str, Any], change: str, times: int = 1, *, scenario: str = "announced", by: str = "") -> None:
    """Note what a hammer met, for the page of the fault suite; before ``cut``.

    ``by`` is the engine that served it, if that is not the test's.
    """
    ended = _open(met)
    figures = {
        "connections": met["attempts"],
        "reset": ended["reset"],
        "not answered": ended["timeout"],
        "new and failed": sum(met["failed"].values()) - ended.total(),
    }
    by = by or engine.current()
    for metric, number in figures.items():
        suite.record_of(by, scenario, metric, "", number, change=change, times=times)
    if "longest_gap_ms" in met:
        suite.record_of(by, scenario, "longest gap", "ms", met["longest_gap_ms"], change=change, times=times)


def note_answers(told: dict[str, Any], change: str, times: int = 1) -> None:
    """Note for how long two nodes answered for an address, beside what ``note`` does."""
    suite.record("announced", "two nodes answer", "ms", told["two_ms"], change=change, times=times)


@contextlib.contextmanager
def arrivals(cluster: Cluster, *options: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Have a client connect to addresses as soon as somebody answers for them.

    They are to be written to the first, a file, one a line; the second has what was met at each, after the block.
    """
    process = cluster.lab.popen(CLIENT, *TRAFFIC, "arrivals", "80", *options)
    result: dict[str, Any] = {}
    assert process.stdin
    try:
        yield process.stdin, result
    finally:
        out, err = process.communicate(timeout=600)
        assert out, err
        result.update(json.loads(out))


def answerers(cluster: Cluster, ip: str) -> contextlib.AbstractContextManager[dict[str, Any]]:
    """Ask the client's segment twenty times a second who has an address; who answered is filled in after the block."""
    return cluster.background(CLIENT, "answerers", ip)


@contextlib.contextmanager
def forgetting(cluster: Cluster, ip: str) -> Iterator[None]:
    """Have the client forget ten times a second who has an address, for the block: it asks the segment each time.

    So it connects as one that has never known. A connection that waits for the answer fails, as unreachable.
    """
    over = threading.Event()

    def forget() -> None:
        with IPRoute() as netlink:
            link = netlink.link_lookup(ifname="eth0")[0]
            while not over.wait(_FORGET_EVERY_S):
                # It may know nobody.
                with contextlib.suppress(NetlinkError):
                    netlink.neigh("del", dst=ip, ifindex=link)

    thread = threading.Thread(target=lambda: cluster.lab.inside(CLIENT, forget))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def unplugged(cluster: Cluster, node: str) -> Iterator[None]:
    """Take a node's network cable out for the block."""
    _link(cluster, node, "down")
    try:
        yield
    finally:
        _link(cluster, node, "up")


@contextlib.contextmanager
def split(cluster: Cluster, here: list[str], there: list[str]) -> Iterator[None]:
    """Let these nodes and those not hear each other for the block. The client is one of them, or hears both.

    All reach the API server.
    """
    ours, theirs = (", ".join(f'"{each}"' for each in side) for side in (here, there))
    rules = f"""
        table bridge split {{
            chain forward {{
                type filter hook forward priority 0;
                iifname {{ {ours} }} oifname {{ {theirs} }} drop
                oifname {{ {ours} }} iifname {{ {theirs} }} drop
            }}
        }}"""
    _run(cluster, "nft", rules)
    try:
        yield
    finally:
        _run(cluster, "nft", "delete table bridge split")


@contextlib.contextmanager
def cut_off(cluster: Cluster, node: str) -> Iterator[None]:
    """Drop what a node's agent sends to the API server for the block. Its Node stays ready."""
    chain = f"chain output {{ type filter hook output priority -300; tcp dport {API_PORT} drop; }}"
    rules = f"table inet cut-off {{ {chain}; }}"
    _run(cluster, "nft", rules, where=node)
    try:
        yield
    finally:
        _run(cluster, "nft", "delete table inet cut-off", where=node)


def _link(cluster: Cluster, node: str, state: str) -> None:
    _run(cluster, "ip", "link", "set", node, state)


def _run(cluster: Cluster, *command: str, where: str = SWITCH) -> None:
    done = cluster.lab.exec(where, *command)
    assert done.returncode == 0, done.stderr
