"""``python -m benchmarks.counting``: what it costs the traffic of a node to be counted per farm.

One packet at a time through one VIP, as the scenario ``datapath`` measures it, in rounds in which three states of the
node take turns: nothing is counted; the kernel counts bytes (nf_conntrack_acct); and the process that counts also
receives events. The figures to compare are those of one round, so their quotients are printed.
"""

import argparse
import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

from benchmarks import cluster, packets
from benchmarks.cluster import NODE
from benchmarks.datapath import packet_targets
from benchmarks.rounds import interleaved
from benchmarks.subjects import NFTABLES, NFTLB, Subject
from benchmarks.testbed import Place, app_of, place_of

_ACCOUNTING = "net.netfilter.nf_conntrack_acct"
_OFF, _BYTES, _ALL = "nothing is counted", "the kernel counts bytes", "and the process counts connections"
_STATES = (_OFF, _BYTES, _ALL)


def main() -> None:
    """Measure with both engines, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counting", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    for name in (NFTABLES, NFTLB):
        asyncio.run(_measure(name, rounds))


async def _measure(name: str, rounds: int) -> None:
    async with place_of(Subject(name), (1,)) as place:
        pod, address = next(iter((await cluster.pods_of(place.kube, app_of(1))).items()))
        with packets.server(place.lab, f"default/{pod}") as listener:
            for target in await packet_targets(place, address):
                _print(target.name, await asyncio.to_thread(_rounds, place, target, listener, rounds))


def _rounds(
    place: Place, target: packets.Target, listener: socket.socket, rounds: int
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, state in interleaved(_STATES, rounds):
        with _counted(place, state):
            found[packets.LATER][state].append(packets.later_ns(target, listener))
            found[packets.FIRST][state].append(packets.first_ns(target))
    return found


@contextlib.contextmanager
def _counted(place: Place, state: str) -> Iterator[None]:
    place.lab.exec(NODE, "sysctl", "-qw", f"{_ACCOUNTING}={int(state != _OFF)}")
    if state != _ALL:
        yield
        return
    command = place.lab.command(NODE, sys.executable, "-m", "kube_nftlb.netfilter.traffic", "1")
    environment = place.lab.environment(NODE)
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            # Once there is a report, it counts.
            process.stdout.readline()  # type: ignore[union-attr]  # it has a pipe
            yield
        finally:
            process.stdin.close()  # type: ignore[union-attr]  # it has a pipe
            process.kill()


def _print(name: str, found: dict[str, dict[str, list[float]]]) -> None:
    for metric, samples in found.items():
        print(f"{name}: {metric}")
        for state in _STATES:
            quotients = [each / off for each, off in zip(samples[state], samples[_OFF], strict=True)]
            middle = statistics.median(samples[state])
            print(f"  {state}: {middle:.0f} ns, {statistics.median(quotients):.3f} times as long", flush=True)


if __name__ == "__main__":
    main()
