"""What service proxies cost the programs of a cluster: processor time, and bytes to etcd and to a node."""

import asyncio
import urllib.request
from pathlib import Path

from benchmarks.cluster import NODE
from benchmarks.processes import usage, usages
from kube_nftlb.netfilter.namespaces import in_namespace
from lab.lab import Lab

_ETCD_METRICS = "http://127.0.0.1:2379/metrics"


async def counters(lab: Lab, programs: tuple[str, ...]) -> dict[str, float]:
    """Return processor times in ms, of these programs, the API server and etcd, and bytes, since the start."""
    used = {**usages(lab, programs), "etcd": usage(lab.pid("etcd"))}
    return {
        **{f"processor time of {name}": each.cpu_s * 1000 for name, each in used.items()},
        "bytes to etcd": await asyncio.to_thread(_bytes_to_etcd, lab.pid("etcd")),
        "bytes to the node": lab.inside(NODE, _bytes_received),
    }


def _bytes_to_etcd(pid: int) -> float:
    """Return the bytes that etcd has written to its log."""

    def ask() -> str:
        with urllib.request.urlopen(_ETCD_METRICS, timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    text = in_namespace(Path(f"/proc/{pid}/ns/net"), ask)
    lines = (line.split() for line in text.splitlines())
    return next(float(line[1]) for line in lines if line and line[0] == "etcd_disk_wal_write_bytes_total")


def _bytes_received() -> float:
    """Return the bytes that this network namespace has received on its first interface to others."""
    lines = Path("/proc/thread-self/net/dev").read_text().splitlines()[2:]
    counters = {name.strip(): values.split() for name, _, values in (line.partition(":") for line in lines)}
    return float(counters["eth0"][0])
