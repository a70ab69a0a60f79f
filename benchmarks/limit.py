"""The minimum time of kernel, netlink and nftlb: nothing built on them can be faster.

All of it is measured in new network namespaces, which disappear with the programs in them.
"""

import asyncio
import ipaddress
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pyroute2 import IPRoute

from benchmarks import cluster
from benchmarks.records import Records
from benchmarks.scope import Scope
from benchmarks.wire import Wire
from kube_nftlb import errors
from kube_nftlb.commands import manifests
from kube_nftlb.commands.render import render
from kube_nftlb.commands.ruleset import ruleset
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.netfilter import namespaces
from kube_nftlb.netfilter.conntrack import filters
from kube_nftlb.netfilter.conntrack.entries import UDP
from kube_nftlb.netfilter.conntrack.table import Conntrack
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.readback import RulesetReader
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.requests import Request
from lab import build, programs

SCENARIO = "limit"
LOAD = "nft -f of the whole ruleset"
QUESTION = "a question over netlink"
QUESTION_AGENT = "the same as the agent asks it"
CHANGE = "one element, one transaction over netlink"
CHANGE_LIBNFTABLES = "the same through libnftables"
NFTLB_QUESTION = "a GET to nftlb"
NFTLB_CHANGE = "a POST to nftlb that changes one backend"
PROGRAMS = (LOAD, QUESTION, QUESTION_AGENT, CHANGE, CHANGE_LIBNFTABLES, NFTLB_QUESTION, NFTLB_CHANGE)
TIME = "time"
STALE_FLOWS = "connections of a backend that goes"
"""UDP flows that the agent finds and deletes."""

_ENDPOINTS = 10
_LOOPBACK = 1
_PORT = 5555
_TABLE, _SET = "benchmark", "addresses"
_DAEMON_STARTS_WITHIN_S = 20
_FIRST_MARK = 0x202
_FLOWS, _BACKENDS = 5000, 5
_GONE = {"of a backend that had none": 9, "of one of five": 0}
"""The backend that is removed; each of the five has as many flows."""
_BATCH = 100
"""Farms per request: nftlb responds when all are in the kernel, which takes minutes for thousands."""


class _Extent(NamedTuple):
    services: tuple[int, ...]
    loads: int
    round_trips: int


_SHORT = _Extent((1, 100), 3, 50)
_FULL = _Extent((1, 100, 1000, 3000), 3, 200)


def run(records: Records, scope: Scope) -> None:
    """Measure with few Services and with many."""
    extent = _FULL if scope.full else _SHORT
    nftlb = build.nftlb(programs.cache_folder(), print)
    os.environ["PATH"] = f"{nftlb.parent}:{os.environ['PATH']}"
    for number in extent.services:
        made = ruleset(render(manifests.complete(_objects(number))))
        with tempfile.TemporaryDirectory(prefix="kube-nftlb-bench-") as folder:
            Path(folder, "ruleset.nft").write_text(made.text)
            for action, times in (
                ("load", extent.loads),
                ("netlink", extent.round_trips),
                ("nftlb", extent.round_trips),
            ):
                for what, samples in _in_new_network(action, folder, number, times).items():
                    for repetition, milliseconds in enumerate(samples):
                        keys = {"services": number, "endpoints": _ENDPOINTS, "repetition": repetition}
                        records.add(SCENARIO, what, TIME, "ms", milliseconds, **keys)
    for which, samples in _in_new_network("flows", "", 0, extent.loads).items():
        for repetition, milliseconds in enumerate(samples):
            records.add(
                SCENARIO,
                "kube-nftlb",
                STALE_FLOWS,
                "ms",
                milliseconds,
                flows=_FLOWS,
                which=which,
                repetition=repetition,
            )


def _objects(services: int) -> Iterator[JsonObject]:
    for each, addresses in enumerate(cluster.others(services, _ENDPOINTS).values()):
        name = f"s-{each}"
        yield {"apiVersion": "v1", "kind": "Service", **cluster.service(name, cluster.vip(0, each), None)}
        slice_ = cluster.endpoint_slice(name, addresses)
        yield {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **slice_}


def _in_new_network(action: str, folder: str, services: int, times: int) -> dict[str, list[float]]:
    command = [sys.executable, "-m", "benchmarks.limit", action, folder, str(services), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise errors.LabError(f"{' '.join(command)}: {done.stderr[-1000:]}")
    samples: dict[str, list[float]] = json.loads(done.stdout)
    return samples


def _load(folder: Path, _: int, times: int) -> dict[str, list[float]]:
    samples = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(["nft", "-f", folder / "ruleset.nft"], check=True)
        samples.append((time.perf_counter() - began) * 1000)
        subprocess.run(["nft", "flush", "ruleset"], check=True)
    return {LOAD: samples}


def _flows(_folder: Path, _services: int, times: int) -> dict[str, list[float]]:
    vip = "10.96.0.10"
    lines = [
        f"-I -p udp -s 10.244.{each // 250}.{each % 250 + 1} -d {vip} --sport 1000 --dport 53 -t 300"
        f" -m {_FIRST_MARK + each % _BACKENDS} --dst-nat 10.245.0.{each % _BACKENDS + 1}"
        for each in range(_FLOWS)
    ]

    async def release(mark: int) -> float:
        conntrack = Conntrack.open()
        narrowed = filters.with_mark(mark, objects.MARK_LAST)
        began = time.perf_counter()
        target = ipaddress.ip_address(vip).packed, UDP, 53
        await conntrack.forget(await conntrack.find([target], lambda each: each.mark == mark, narrowed))
        passed = (time.perf_counter() - began) * 1000
        conntrack.close()
        return passed

    samples: dict[str, list[float]] = {}
    for which, number in _GONE.items():
        for _ in range(times):
            subprocess.run(["conntrack", "-R", "-"], input="\n".join(lines), text=True, check=True, capture_output=True)
            samples.setdefault(which, []).append(asyncio.run(release(_FIRST_MARK + number)))
            subprocess.run(["conntrack", "-F"], check=True, capture_output=True)
    return samples


def _netlink(folder: Path, _: int, times: int) -> dict[str, list[float]]:
    subprocess.run(["nft", "-f", folder / "ruleset.nft"], check=True)
    wire = Wire()
    wire.create_set(_TABLE, _SET)
    addresses = (f"10.0.{number >> 8}.{number & 255}" for number in range(1 << 16))
    samples = {
        QUESTION: _sample(times, wire.generation),
        CHANGE: _sample(times, lambda: wire.add_element(_TABLE, _SET, next(addresses))),
    }
    wire.close()

    async def through_libraries() -> None:
        kernel, nft = RulesetReader.open(), Nft.open()
        samples[QUESTION_AGENT] = await _sample_async(times, kernel.generation)
        samples[CHANGE_LIBNFTABLES] = await _sample_async(
            times, lambda: nft.run(f"add element inet {_TABLE} {_SET} {{ {next(addresses)} }}")
        )
        kernel.close()

    asyncio.run(through_libraries())
    return samples


def _nftlb(folder: Path, services: int, times: int) -> dict[str, list[float]]:
    environment = {
        "KUBE_NFTLB_RUN_DIR": str(folder),
        "KUBE_NFTLB_NFTLB_PORT": str(_PORT),
        "PATH": os.environ["PATH"],
    }
    command = [sys.executable, "-m", "kube_nftlb", "nftlb-daemon"]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere) as daemon:
        try:
            return asyncio.run(_ask_nftlb(folder, services, times))
        finally:
            daemon.kill()


async def _ask_nftlb(folder: Path, services: int, times: int) -> dict[str, list[float]]:
    client = NftlbClient(f"http://127.0.0.1:{_PORT}", folder / "nftlb.key")
    try:
        async with asyncio.timeout(_DAEMON_STARTS_WITHIN_S):
            await _until_there(client)
        farms = [_farm(each) for each in range(services)]
        for first in range(0, services, _BATCH):
            await client.change(Request("POST", "/farms", _body(farms[first : first + _BATCH])))
        weights = iter(range(1 << 16))

        async def change() -> None:
            backend = {"name": "b-0", "weight": str(1 + next(weights) % 9)}
            await client.change(Request("POST", "/farms", _body([{"name": "f-0", "backends": [backend]}])))

        return {
            NFTLB_QUESTION: await _sample_async(times, lambda: client.send(Request("GET", "/farms/f-0"))),
            NFTLB_CHANGE: await _sample_async(times, change),
        }
    finally:
        await client.close()


async def _until_there(client: NftlbClient) -> None:
    while True:
        try:
            await client.send(Request("GET", "/farms"))
        except errors.NftlbUnreachableError:
            await asyncio.sleep(0.05)
        else:
            return


def _body(farms: list[JsonObject]) -> bytes:
    return json.dumps({"farms": farms}).encode()


def _farm(number: int) -> JsonObject:
    block, host = divmod(number, 250)
    address = {"name": f"f-{number}-a", "family": "ipv4", "ip-addr": cluster.vip(0, number), "ports": "80"}
    backends = [
        {
            "name": f"b-{each}",
            "ip-addr": f"10.{100 + each}.{block}.{host + 1}",
            "port": "80",
            "mark": hex(each + 2),
            "state": "up",
        }
        for each in range(_ENDPOINTS)
    ]
    return {
        "name": f"f-{number}",
        "mode": "snat",
        "scheduler": "rr",
        "state": "up",
        "addresses": [{**address, "protocol": "tcp"}],
        "backends": backends,
    }


def _sample(times: int, call: Callable[[], None]) -> list[float]:
    samples = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        samples.append((time.perf_counter() - began) * 1000)
    return samples


async def _sample_async(times: int, call: Callable[[], Awaitable[object]]) -> list[float]:
    samples = []
    for _ in range(times):
        began = time.perf_counter()
        await call()
        samples.append((time.perf_counter() - began) * 1000)
    return samples


_ACTIONS = {"load": _load, "netlink": _netlink, "nftlb": _nftlb, "flows": _flows}


def main() -> None:
    """Measure one thing in a new network namespace, and print the samples in ms as JSON."""
    action, folder, services, times = sys.argv[1:]
    namespaces.unshare(namespaces.CLONE_NEWNET)
    with IPRoute() as ip:
        ip.link("set", index=_LOOPBACK, state="up")
    json.dump(_ACTIONS[action](Path(folder), int(services), int(times)), sys.stdout)


if __name__ == "__main__":
    main()
