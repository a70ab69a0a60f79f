"""How long a node takes to load many Services, and how much memory operator and agent have then.

    python benchmarks/load.py [--services 1000] [--endpoints 10]

In a lab of one node the Services and their EndpointSlices are created while the agent is stopped. Then the agent is
started, and it is counted how long it takes until nftlb has all farms, and until all were compared with the kernel.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

from kube_nftlb.kube import ENDPOINT_SLICES, FARMS, NFTLB_NODES, SERVICES, JsonObject, Kube, Resource
from kube_nftlb.lab.lab import Lab

WRITERS = 16
NODE = "node-1"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--endpoints", type=int, default=10)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(_measure(arguments.services, arguments.endpoints)), indent=2))


async def _measure(services: int, endpoints: int) -> dict[str, Any]:
    lab = Lab.up("load", nodes=1)
    try:
        async with await Kube.connect(lab.kubeconfig) as kube:
            lab.stop("agent")
            began = time.monotonic()
            await _create_all(kube, services, endpoints)
            created = time.monotonic()
            await _until(kube, FARMS, lambda items: _complete(items, endpoints) == services)
            farms = time.monotonic()
            lab.start("agent")
            loaded = await asyncio.to_thread(_until_nftlb_has, lab, services)
            await _until(kube, NFTLB_NODES, lambda items: _in_sync(items, services))
            return {
                "created_s": round(created - began, 1),
                "farms_after_creation_s": round(farms - created, 1),
                "nftlb_has_them_s": round(loaded - farms, 1),
                "compared_with_the_kernel_s": round(time.monotonic() - farms, 1),
                "operator_mb": _memory_mb(lab.pid("operator")),
                "agent_mb": _memory_mb(lab.pid("agent", NODE)),
                "nftlb_mb": _memory_mb(lab.pid("nftlb", NODE)),
            }
    finally:
        lab.down()


async def _create_all(kube: Kube, services: int, endpoints: int) -> None:
    todo = iter(range(services))

    async def writer() -> None:
        for number in todo:
            await kube.create(SERVICES, _service(number), "default")
            await kube.create(ENDPOINT_SLICES, _slice(number, endpoints), "default")

    await asyncio.gather(*(writer() for _ in range(WRITERS)))


async def _until(kube: Kube, resource: Resource, done: Any) -> None:
    while not done((await kube.list(resource)).items):  # noqa: ASYNC110 - what is waited for is at the API server
        await asyncio.sleep(0.5)


def _until_nftlb_has(lab: Lab, services: int) -> float:
    while lab.exec(NODE, "nft", "list", "map", "ip", "nftlb", "nat-proto-services").stdout.count("goto") < services:
        time.sleep(0.3)
    return time.monotonic()


def _complete(farms: list[JsonObject], endpoints: int) -> int:
    return sum(len(farm["spec"].get("backends", ())) == endpoints for farm in farms)


def _in_sync(nodes: list[JsonObject], services: int) -> bool:
    status = nodes[0].get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    return status.get("farms", 0) >= services and conditions.get("InSync") == "True"


def _memory_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise ValueError(f"the process {pid} tells no memory")


def _service(number: int) -> JsonObject:
    return {"metadata": {"name": f"s-{number}"}, "spec": {"ports": [{"name": "http", "port": 80}]}}


def _slice(number: int, endpoints: int) -> JsonObject:
    return {
        "metadata": {"name": f"s-{number}", "labels": {"kubernetes.io/service-name": f"s-{number}"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [
            {"addresses": [f"10.{100 + entry}.{number // 250}.{number % 250 + 1}"], "conditions": {"ready": True}}
            for entry in range(endpoints)
        ],
    }


if __name__ == "__main__":
    main()
