"""How soon ``kubectl get farms`` is right: the time from a change in the kernels to the status at the API server.

Endpoints are added to Services and removed again, at a steady rate. The notifications of nftables on each node tell
when a change is in its kernel, a watch when the farm's status has that number of backends. Delays are counted from the
last node. What the changes cost is counted beside kube-proxy, which writes no status.
"""

import asyncio
import contextlib
import heapq
import re
import socket
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from benchmarks import cluster
from benchmarks.records import Records
from benchmarks.scope import Scope
from benchmarks.spending import counters
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB, Subject
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, JsonObject
from lab.lab import Lab

SCENARIO = "status"
SUBJECTS = (Subject(NFTABLES), Subject(NFTLB), Subject(KUBE_PROXY))
SHOWN: Final = "in the kernels until shown"
SHOWN_AS_PROGRAMMED: Final = "in the kernels until shown as programmed"
IN_KERNELS: Final = "written until in the kernels"
STATUSES: Final = "statuses per change"

_ENDPOINTS = 10
_STEPS = 4
"""A Service gets so many endpoints more, one by one, then loses them."""
_SETTLED_S = 15
_ADDRESS = re.compile(rb"\x0a[\xfa-\xfe]..", re.DOTALL)
_NETLINK_NETFILTER = 12
_NFNLGRP_NFTABLES = 7
_NEW_ELEMENT, _DELETED_ELEMENT = 10 << 8 | 12, 10 << 8 | 14
"""NFT_MSG_NEWSETELEM and NFT_MSG_DELSETELEM of the subsystem nftables (linux/netfilter/nf_tables.h)."""


class _Load(NamedTuple):
    services: int
    per_s: float
    seconds: int


_SHORT = (_Load(50, 5, 20),)
_FULL = (_Load(200, 5, 180), _Load(50, 10, 180), _Load(50, 50, 60))


class _Change(NamedTuple):
    """A change of the endpoints of a Service."""

    address: str
    """The endpoint that it adds or removes; no other change is about it, but the one that undoes it."""
    added: bool
    ready: int
    """The number of ready endpoints after it."""
    written_at: float


class _Kernel:
    """The times at which elements with an endpoint's address came to the nftables of a node, and went."""

    def __init__(self, lab: Lab, node: str) -> None:
        self.at: dict[tuple[str, bool], float] = {}
        self._closing = False
        self._socket = lab.inside(node, _subscribe)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while not self._closing:
            with contextlib.suppress(TimeoutError):
                self._note(self._socket.recv(1 << 20), time.monotonic())

    def _note(self, messages: bytes, now: float) -> None:
        """Note the addresses in a sequence of messages (struct nlmsghdr of linux/netlink.h, and what follows)."""
        while messages:
            length, kind = struct.unpack_from("=IH", messages)
            if kind in (_NEW_ELEMENT, _DELETED_ELEMENT):
                for address in _ADDRESS.findall(messages[:length]):
                    self.at.setdefault((socket.inet_ntoa(address), kind == _NEW_ELEMENT), now)
            messages = messages[length + 3 & ~3 :]


def _subscribe() -> socket.socket:
    subscription = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    subscription.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    subscription.bind((0, 1 << _NFNLGRP_NFTABLES - 1))
    subscription.settimeout(1)
    return subscription


class _Statuses:
    """The numbers of ready backends in the statuses of farms, by Service, with the time of each."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[float, int, bool]]] = defaultdict(list)
        self.written = 0

    async def follow(self, kube: Kube) -> None:
        version = (await kube.list(FARMS, "default")).resource_version
        while True:
            async for event in kube.watch(FARMS, version, namespace="default"):
                version = event.object["metadata"]["resourceVersion"]
                if event.type == "MODIFIED":
                    self._note(event.object)

    def _note(self, farm: JsonObject) -> None:
        status = farm.get("status") or {}
        conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
        name = farm["spec"]["backendsFrom"][0]["service"]
        programmed = conditions.get("EndpointsProgrammed") == "True"
        self.seen[name].append((time.monotonic(), status.get("readyBackends", 0), programmed))
        self.written += 1

    def shown_at(self, service: str, changes: list[_Change], number: int) -> tuple[float, float] | None:
        """Return when a change, or a later one of its Service, was shown, and when it was programmed everywhere.

        Changes that are undone before they are shown have a status that is right again as it is.
        """
        found = [
            next(self._right(service, changes[number:], programmed=programmed), None) for programmed in (False, True)
        ]
        shown, everywhere = found
        return (shown, everywhere) if shown is not None and everywhere is not None else None

    def _right(self, service: str, changes: list[_Change], *, programmed: bool) -> Iterator[float]:
        """Yield the times at which a status shows one of these changes, or one is made that is shown already."""
        seen, expected = self.seen[service], {change.ready for change in changes}
        written = (
            at
            for at, ready, everywhere in seen
            if at >= changes[0].written_at and ready in expected and (everywhere or not programmed)
        )
        undone = (
            change.written_at
            for change in changes
            if any(
                ready == change.ready and (everywhere or not programmed)
                for at, ready, everywhere in [each for each in seen if each[0] <= change.written_at][-1:]
            )
        )
        yield from heapq.merge(written, undone)


def run(records: Records, scope: Scope) -> None:
    """Measure both engines and kube-proxy."""
    asyncio.run(_run(records, _FULL if scope.full else _SHORT))


async def _run(records: Records, loads: tuple[_Load, ...]) -> None:
    for subject in SUBJECTS:
        async with _place(subject, max(load.services for load in loads)) as (lab, kube):
            for load in loads:
                await _measure(records, subject, lab, kube, load)


@contextlib.asynccontextmanager
async def _place(subject: Subject, services: int) -> AsyncIterator[tuple[Lab, Kube]]:
    lab = await asyncio.to_thread(subject.lab, SCENARIO, nodes=2)
    try:
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            await cluster.create_others(kube, services, endpoints=_ENDPOINTS)
            if subject.ours:
                await cluster.until_in_sync(kube, 300)
            await asyncio.sleep(_SETTLED_S)
            yield lab, kube
    finally:
        await asyncio.to_thread(lab.down)


async def _measure(records: Records, subject: Subject, lab: Lab, kube: Kube, load: _Load) -> None:
    keys: dict[str, str | int | float] = {"services": load.services, "changes per s": load.per_s}
    if not subject.ours:
        await _spent(records, subject, lab, kube, load, keys)
        return
    statuses = _Statuses()
    following = asyncio.create_task(statuses.follow(kube))
    with contextlib.ExitStack() as stack:
        kernels = [stack.enter_context(contextlib.closing(_Kernel(lab, node.name))) for node in lab.nodes]
        await asyncio.sleep(2)
        changes = await _spent(records, subject, lab, kube, load, keys)
        written = statuses.written
        await asyncio.sleep(_SETTLED_S)
        following.cancel()
        _record(records, subject, load, changes, kernels, statuses)
    number = sum(map(len, changes.values()))
    records.add(SCENARIO, subject.name, STATUSES, "", written / number, **keys)


async def _spent(
    records: Records,
    subject: Subject,
    lab: Lab,
    kube: Kube,
    load: _Load,
    keys: dict[str, str | int | float],
) -> dict[str, list[_Change]]:
    """Make the changes of a load, and record what one cost. Return the changes of each Service."""
    before = await counters(lab, subject.programs)
    changes = await _change(kube, load)
    after = await counters(lab, subject.programs)
    number = sum(map(len, changes.values()))
    for counter, value in after.items():
        unit = "bytes" if counter.startswith("bytes") else "ms"
        records.add(SCENARIO, subject.name, f"{counter} per change", unit, (value - before[counter]) / number, **keys)
    return changes


async def _change(kube: Kube, load: _Load) -> dict[str, list[_Change]]:
    """Change one Service after another at the rate of the load. Return the changes of each."""
    slices = cluster.others(load.services, _ENDPOINTS)
    added: dict[str, list[str]] = {name: [] for name in slices}
    grows = dict.fromkeys(slices, True)
    changes: dict[str, list[_Change]] = {name: [] for name in slices}
    begin = time.monotonic()
    for done in range(round(load.per_s * load.seconds)):
        await asyncio.sleep(begin + done / load.per_s - time.monotonic())
        name = f"other-{done % load.services}"
        extra = added[name]
        if len(extra) in (0, _STEPS):
            grows[name] = not extra
        if grows[name]:
            extra.append(next(_addresses))
            address = extra[-1]
        else:
            address = extra.pop()
        addresses = [*slices[name], *extra]
        written_at = time.monotonic()
        await kube.patch(ENDPOINT_SLICES, name, {"endpoints": cluster.endpoints_of(addresses)}, "default")
        changes[name].append(_Change(address, grows[name], len(addresses), written_at))
    return changes


def _numbered_addresses() -> Iterator[str]:
    for number in range(5 << 16):
        yield f"10.{250 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


_addresses = _numbered_addresses()


def _record(
    records: Records,
    subject: Subject,
    load: _Load,
    changes: dict[str, list[_Change]],
    kernels: list[_Kernel],
    statuses: _Statuses,
) -> None:
    keys: dict[str, str | int | float] = {"services": load.services, "changes per s": load.per_s}
    delays: dict[str, list[float]] = defaultdict(list)
    missing: Counter[str] = Counter()
    for service, its in changes.items():
        for number, change in enumerate(its):
            if subject.name == NFTLB and not change.added:
                # It replaces the rules of the farm: the kernel does not tell which endpoints the old ones had.
                continue
            shown = statuses.shown_at(service, its, number)
            at = [kernel.at.get((change.address, change.added)) for kernel in kernels]
            if shown is None or None in at:
                missing["not shown" if shown is None else "not seen in a kernel"] += 1
                continue
            kernel_at = max(each for each in at if each is not None)
            delays[SHOWN].append(max(shown[0] - kernel_at, 0))
            delays[SHOWN_AS_PROGRAMMED].append(max(shown[1] - kernel_at, 0))
            delays[IN_KERNELS].append(kernel_at - change.written_at)
    for reason, number in missing.items():
        records.skip(SCENARIO, subject.name, f"{number} changes: {reason} within {_SETTLED_S} s", **keys)
    for metric, found in delays.items():
        found.sort()
        for quantile in (0.5, 0.9, 0.99, 1.0):
            value = found[min(int(len(found) * quantile), len(found) - 1)] * 1000
            records.add(SCENARIO, subject.name, metric, "ms", value, **keys, quantile=quantile, changes=len(found))
