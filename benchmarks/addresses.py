"""``python -m benchmarks.addresses``: how soon new addresses are answered for, what that costs, and how they fail over.

Three nodes announce addresses of a pool on the client's own segment. Prints a line for each figure, with the bound that
it should keep; nothing is recorded.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from benchmarks import cluster
from benchmarks.cluster import NODE, TRAFFIC
from benchmarks.processes import usage
from benchmarks.stats import quantile
from kube_nftlb import names
from kube_nftlb.announce.ownership import records
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ADDRESS_POOLS, LEASES, NFTLB_NODES, SERVICES, JsonObject
from lab.lab import Lab
from lab.places import CLIENT, SWITCH

_NEW, _FAILOVERS, _MANY, _OTHERS = 60, 10, 500, 2000
_QUIET_S, _EVERY_S, _PATIENCE_S = 30.0, 0.4, 180.0
_SETTINGS: Final = {"KUBE_NFTLB_ADDRESSES": "on", "KUBE_NFTLB_NAMESPACE_FARMS_MAX": "100000"}


def main() -> None:
    """Measure all."""
    operator = {**_SETTINGS, "KUBE_NFTLB_DEFAULT_ENGINE": "nftables"}
    lab = Lab.up("bench-addresses", nodes=3, proxy="kube-nftlb", settings={"operator": operator, "agent": _SETTINGS})
    try:
        asyncio.run(_measure(lab))
    finally:
        lab.down()


async def _measure(lab: Lab) -> None:
    async with await Kube.connect(lab.kubeconfig) as kube:
        await kube.create(ADDRESS_POOLS, _pool("segment", "172.31.0.100-172.31.0.199", "fd00:31::1:0/112"))
        await cluster.run_pods(kube, {"web": 6})
        await _delays(lab, kube, "idle", 100, contextlib.nullcontext())
        changing = cluster.others(5, 10)
        await cluster.create_others(kube, len(changing))
        await _delays(lab, kube, "under change", 100, cluster.steady_change(kube, changing))
        await _failover(lab, kube)
        only = {"l2": {"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": NODE}}}}
        await kube.create(ADDRESS_POOLS, _pool("many", "fd00:31::2:0/112", announce=only, autoAssign=False))
        await _many(lab, kube)


def _pool(name: str, *ranges: str, **spec: Any) -> JsonObject:
    return {
        "apiVersion": ADDRESS_POOLS.api_version,
        "kind": ADDRESS_POOLS.kind,
        "metadata": {"name": name},
        "spec": {"ranges": list(ranges), **spec},
    }


def _service(name: str, ip: str) -> JsonObject:
    families = {"ipFamilies": ["IPv6" if ":" in ip else "IPv4"], "loadBalancerIP": ip}
    spec = {"type": "LoadBalancer", "loadBalancerClass": names.LOAD_BALANCER_CLASS, "selector": {"app": "web"}}
    ports = [{"name": "http", "port": 80}]
    return {
        "metadata": {"name": name},
        "spec": {**spec, **families, "allocateLoadBalancerNodePorts": False, "ports": ports},
    }


async def _delays(
    lab: Lab, kube: Kube, label: str, first: int, changing: contextlib.AbstractAsyncContextManager[Any]
) -> None:
    """Print how long after its Service was created a client connects to a new address."""
    ips = [f"172.31.0.{first + number}" for number in range(_NEW)]
    process = lab.popen(CLIENT, *TRAFFIC, "arrivals", "80")
    created: dict[str, float] = {}
    assert process.stdin  # noqa: S101 - narrows the type
    async with changing:
        for number, ip in enumerate(ips):
            process.stdin.write(f"{ip}\n")
            process.stdin.flush()
            created[ip] = time.monotonic()
            await kube.create(SERVICES, _service(f"new-{number}", ip), "default")
            await asyncio.sleep(_EVERY_S)
        met = json.loads((await asyncio.to_thread(process.communicate))[0])
    waited = [(each["connected_at"] - created[ip]) * 1000 for ip, each in met.items() if each["connected_at"]]
    failures = sum(len(each["failures"]) for each in met.values())
    bound = "300 ms, 1000 ms" if label == "idle" else "500 ms"
    text = f"median {median(waited):.0f} ms, at most {max(waited):.0f} ms, n = {len(waited)} of {_NEW}"
    _say(f"Service to connection, {label}", f"{text}, {failures} connections failed", bound)
    for number in range(_NEW):
        await kube.delete(SERVICES, f"new-{number}", "default")
    await _until(lambda: _no_leases(kube))


async def _failover(lab: Lab, kube: Kube) -> None:
    """Print how long a client waits whose address's holder loses its link."""
    ip, gaps = "172.31.0.100", []
    await kube.create(SERVICES, _service("failing", ip), "default")
    for _ in range(_FAILOVERS):
        await _until(lambda: _holder(kube, ip))
        await asyncio.sleep(3)
        node = await _holder(kube, ip)
        process = lab.popen(CLIENT, *TRAFFIC, "hammer", ip, "80", "--timeout", "0.5")
        await asyncio.sleep(1)
        lab.exec(SWITCH, "ip", "link", "set", node, "down")
        await asyncio.sleep(6)
        process.terminate()
        gaps.append(json.loads(process.communicate(timeout=60)[0])["longest_gap_ms"])
        lab.exec(SWITCH, "ip", "link", "set", node, "up")
    text = f"median {median(gaps):.0f} ms, at most {max(gaps):.0f} ms, n = {len(gaps)}"
    _say("link of the holder down", text, "2000 ms, 3000 ms")


async def _many(lab: Lab, kube: Kube) -> None:
    """Print what it costs to answer for many addresses, and how long answers take while Services are programmed."""
    ips = [f"fd00:31::2:{number:x}" for number in range(_MANY)]
    for number, ip in enumerate(ips):
        await kube.create(SERVICES, _service(f"many-{number}", ip), "default")
    await _until(lambda: _announces(kube, _MANY))
    await asyncio.sleep(5)
    pid = lab.pid("responder", NODE)
    before, began = usage(pid), time.monotonic()
    await asyncio.sleep(_QUIET_S)
    after, seconds = usage(pid), time.monotonic() - began
    share = (after.cpu_s - before.cpu_s) / seconds * 100
    _say(f"responder with {_MANY} addresses", f"{share:.2f} % of a core, {after.peak_mb:.1f} MB", "1 %, 25 MB")
    asking = lab.popen(CLIENT, sys.executable, "-m", "benchmarks.neighbours", *ips)
    await asyncio.sleep(2)
    await cluster.create_others(kube, _OTHERS, first=100)
    await asyncio.sleep(5)
    asking.terminate()
    met = json.loads(asking.communicate(timeout=60)[0])
    text = f"median {median(met['took']):.2f} ms, 99 % within {quantile(met['took'], 0.99):.2f} ms"
    more = f"n = {len(met['took'])}, {met['lost']} lost"
    _say(f"answers while {_OTHERS} Services are programmed", f"{text}, {more}", "5 ms")


async def _holder(kube: Kube, ip: str) -> str:
    items = (await kube.list(LEASES, label_selector=f"{records.LABEL}=true")).items
    return dict(map(records.parse, items)).get(ip, records.NOBODY).holder


async def _no_leases(kube: Kube) -> bool:
    return not (await kube.list(LEASES, label_selector=f"{records.LABEL}=true")).items


async def _announces(kube: Kube, number: int) -> bool:
    report = await kube.get(NFTLB_NODES, NODE)
    announced: int = (report.get("status") or {}).get("addresses", {}).get("number", 0)
    return announced >= number


async def _until(happened: Callable[[], Any]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not await happened():  # noqa: ASYNC110 - it happens elsewhere
            await asyncio.sleep(0.2)


def _say(what: str, figures: str, bound: str) -> None:
    print(f"{what:48} {figures} (bound: {bound})", flush=True)


if __name__ == "__main__":
    main()
