"""How long after a Service was created its VIP answers: kube-nftlb beside kube-proxy, in one run.

    python benchmarks/service_latency.py [--services 20] [--replicas 10] [--proxies kube-nftlb,kube-proxy-nftables]

For each proxy a lab of two nodes is started, with a Deployment whose pods are ready. Then Services are created one at a
time, two seconds apart; a pod tries the VIP every millisecond, and the time from the API server's answer to the first
connection that is answered is counted. Prints a table and, with --json FILE, writes every measurement.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kube_nftlb.kube import PODS, SERVICES, Kube, Resource
from kube_nftlb.lab.lab import Lab

PROXIES = ("kube-nftlb", "kube-proxy-nftables", "kube-proxy-iptables")
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
PAUSE_S = 2.0


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--proxies", default=",".join(PROXIES))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {
        proxy: asyncio.run(_measure(proxy, arguments.services, arguments.replicas))
        for proxy in arguments.proxies.split(",")
    }
    print(f"{'proxy':22}{'min':>8}{'median':>8}{'max':>8}   ms from the API's answer to the first answer of the VIP")
    for proxy, figures in results.items():
        print(f"{proxy:22}{min(figures):8.1f}{statistics.median(figures):8.1f}{max(figures):8.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


async def _measure(proxy: str, services: int, replicas: int) -> list[float]:
    lab = Lab.up(f"latency-{proxy}", nodes=2, proxy=proxy)
    try:
        async with await Kube.connect(lab.kubeconfig) as kube:
            await kube.create(DEPLOYMENTS, _deployment(replicas), "default")
            await kube.create(PODS, _client(), "default")
            while len(await _ready(kube)) < replicas + 1:  # noqa: ASYNC110 - the pods are the API server's, not ours
                await asyncio.sleep(0.2)
            return [await _one(kube, lab, number) for number in range(services)]
    finally:
        lab.down()


async def _one(kube: Kube, lab: Lab, number: int) -> float:
    vip = f"10.96.200.{number + 1}"
    waiting = lab.popen(
        "default/client",
        sys.executable,
        "-m",
        "kube_nftlb.lab.traffic",
        "until-answers",
        vip,
        "80",
        "--interval-ms",
        "1",
    )
    await asyncio.sleep(PAUSE_S / 2)
    await kube.create(SERVICES, _service(f"service-{number}", vip), "default")
    created = time.monotonic_ns()
    out, err = await asyncio.to_thread(waiting.communicate, timeout=60)
    if waiting.returncode != 0:
        raise subprocess.CalledProcessError(waiting.returncode, "until-answers", out, err)
    await asyncio.sleep(PAUSE_S / 2)
    answered: int = json.loads(out)["monotonic_ns"]
    return (answered - created) / 1e6


async def _ready(kube: Kube) -> list[str]:
    pods = (await kube.list(PODS, "default")).items
    return [
        pod["metadata"]["name"]
        for pod in pods
        if any(c["type"] == "Ready" and c["status"] == "True" for c in pod.get("status", {}).get("conditions", ()))
    ]


def _service(name: str, vip: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"clusterIP": vip, "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]},
    }


def _client() -> dict[str, Any]:
    return {
        "metadata": {"name": "client"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "client", "image": "client"}]},
    }


def _deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "server", "image": "server"}]},
            },
        },
    }


if __name__ == "__main__":
    main()
