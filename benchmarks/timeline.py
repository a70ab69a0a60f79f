"""The steps between the creation of a Service and the first reply of its VIP."""

import asyncio
import re
import subprocess
from typing import NamedTuple

from benchmarks import taps
from lab.lab import Lab

_OF_FARMS = re.compile(r'resource="nftlbfarms".*subresource="",verb="(APPLY|PATCH|POST|PUT)"')


def segments(
    seen: taps.Seen, name: str, before: int, created: int, answered: int, farm_write_ms: float
) -> list[tuple[str, float]]:
    """Return the duration of each step in order, in ms; times are CLOCK_MONOTONIC in ns.

    Steps that cannot be told apart are counted in the next one. A point observed out of order has no duration.
    """
    points: list[tuple[str, int | None]] = [
        ("API: the Service", created),
        ("controller: the slice", seen.objects.get(f"endpointslices/{name}")),
    ]
    if (farm := seen.objects.get(f"nftlbfarms/{name}")) is not None:
        points += [("operator", farm - int(farm_write_ms * 1e6)), ("API: the farm", farm)]
        if (post := next((at for at in seen.posts if at >= created), None)) is not None:
            loaded = next((at for at, program in seen.transactions if program == "nftlb" and at >= post), None)
            points += [("agent", post), ("nftlb and the kernel", loaded)]
        else:
            written = next((at for at, _ in seen.transactions if at >= farm), None)
            points.append(("agent and the kernel", written))
    else:
        synced = [at for at, _ in seen.transactions if created <= at <= answered]
        points.append(("kube-proxy and the kernel", synced[-1] if synced else None))
    points.append(("until a packet is answered", answered))
    parts, last = [], before
    for segment, at in points:
        if at is not None:
            # Our own clock may be read late, but not after the response.
            end = max(last, min(at, answered))
            parts.append((segment, (end - last) / 1e6))
            last = end
    return parts


class Writes(NamedTuple):
    """Number of requests, and their total duration."""

    number: float
    seconds: float

    def __sub__(self, other: "Writes") -> "Writes":
        return Writes(self.number - other.number, self.seconds - other.seconds)

    @property
    def mean_ms(self) -> float:
        """The mean duration, 0 if there are none."""
        return self.seconds / self.number * 1000 if self.number else 0.0


async def farm_writes(lab: Lab) -> Writes:
    """Return the API server's metrics on writes of NftlbFarms, without statuses."""
    kubectl = [
        str(lab.bin / "kubectl"),
        "--kubeconfig",
        str(lab.kubeconfig),
        "get",
        "--raw",
        "/metrics",
    ]
    done = await asyncio.to_thread(subprocess.run, kubectl, capture_output=True, text=True, check=True)
    return parse_farm_writes(done.stdout)


def parse_farm_writes(metrics: str) -> Writes:
    """Parse the number of writes of NftlbFarms and their total seconds from the API server's metrics."""
    sums = dict.fromkeys(("count", "sum"), 0.0)
    for line in metrics.splitlines():
        match = re.match(r"apiserver_request_duration_seconds_(count|sum)\{(.*)\} (\S+)", line)
        if match and _OF_FARMS.search(match[2]):
            sums[match[1]] += float(match[3])
    return Writes(sums["count"], sums["sum"])
