"""A farm whose endpoints come and go beside very many connections does not keep others from their changes.

KUBE_NFTLB_TEST_CONNECTIONS sets their number; a network namespace has at most as many as its host.
"""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.nftables_node import Node, spec

CONNECTIONS = int(os.environ.get("KUBE_NFTLB_TEST_CONNECTIONS", "60000"))
SECONDS = 5
FLAPS_PER_S = 10
SHARE_MAX = 0.25
"""How long nearly all changes of others may take, as a share of the time in which all connections are read once."""
PORTS = 60_000


@pytest.fixture
def many_connections(private_network: None) -> Iterator[float]:  # noqa: ARG001 - by name
    """Translated connections to Services that no farm has; the seconds in which all are listed once."""
    subprocess.run(["conntrack", "-F"], check=True, capture_output=True)
    lines = (
        f"-I -p udp -s 10.1.{number // PORTS}.1 -d 10.97.0.10 --sport {number % PORTS + 1} --dport 53 -t 600"
        " --dst-nat 10.244.9.9"
        for number in range(CONNECTIONS)
    )
    subprocess.run(["conntrack", "-R", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)
    began = time.monotonic()
    subprocess.run(["conntrack", "-L", "-p", "udp"], check=True, capture_output=True)
    yield time.monotonic() - began
    subprocess.run(["nft", "flush ruleset"], check=True)
    subprocess.run(["conntrack", "-F"], check=True, capture_output=True)


async def test_changes_of_others_do_not_wait_for_flows_to_be_forgotten(many_connections: float, tmp_path: Path) -> None:
    node = await Node.open(tmp_path)
    forgetting = asyncio.create_task(node.connections.run())
    udp = spec("10.96.0.1", "10.244.0.1", protocol="UDP")
    udp["addresses"].append({"ip": "10.96.0.2", "ports": "80"})
    took = []
    try:
        for number in range(SECONDS * FLAPS_PER_S):
            began = time.monotonic()
            await node.put("flapping", {**udp, "backends": spec("", f"10.244.0.{number % 2 + 1}")["backends"]})
            changed = time.monotonic()
            await node.put("other", spec("10.96.0.3", f"10.244.0.{number % 2 + 3}"))
            took.append(time.monotonic() - changed)
            await node.engine.maintain(busy=True)
            await asyncio.sleep(max(0, 1 / FLAPS_PER_S - (time.monotonic() - began)))
    finally:
        forgetting.cancel()
        node.close()
    took.sort()
    print(f"{CONNECTIONS} connections, n = {len(took)}: median {statistics.median(took) * 1000:.1f} ms", end=", ")
    print(f"p95 {took[int(len(took) * 0.95)] * 1000:.1f} ms, longest {took[-1] * 1000:.1f} ms")
    print(f"conntrack lists them in {many_connections * 1000:.0f} ms")
    assert took[int(len(took) * 0.9)] <= SHARE_MAX * many_connections
