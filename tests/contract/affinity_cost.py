"""Measure what farms that remember clients cost others: the changes of a bystander in the kernel."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from tests.builders import farm, raw_backend
from tests.contract.nftables_node import HERE, Node

STICKY: dict[str, Any] = {"persistence": "srcip", "persistTTL": 10800}
_BATCH = 64
_CHANGES = 40


class Crowd(NamedTuple):
    """Farms on a cluster IP and a node port each; the functions tell what the one with a number has."""

    farms: int
    endpoints: Callable[[int], int]
    options: Callable[[int], dict[str, Any]] = lambda _: STICKY
    namespace: Callable[[int], str] = lambda _: "default"

    def changes(self) -> list[FarmChange]:
        return [self._change(number) for number in range(self.farms)]

    def _change(self, number: int) -> FarmChange:
        addresses = [
            {
                "type": "ClusterIP",
                "ip": f"10.{97 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}",
                "ports": "80",
            },
            {"type": "NodePort", "ip": "", "ports": str(20000 + number)},
        ]
        count = self.endpoints(number)
        backends = [
            raw_backend(f"b{each}", f"10.{240 + number // 250 % 4}.{number % 250}.{each + 1}") for each in range(count)
        ]
        spec = {"engine": "nftables", "addresses": addresses, "backends": backends, **self.options(number)}
        wanted = node_farm(farm(f"other-{number}", namespace=self.namespace(number), **spec), HERE, None)
        return FarmChange(wanted.name, wanted)


def ordinary(number: int) -> int:
    return 2 + number % 9


CROWDS = {
    "nobody": Crowd(0, ordinary),
    "600 plain": Crowd(600, ordinary, lambda _: {}),
    "600 ClientIP": Crowd(600, ordinary),
    "600 ClientIP in 50 namespaces": Crowd(600, ordinary, namespace=lambda number: f"team-{number % 50}"),
    "600 ClientIP in 600 namespaces": Crowd(600, ordinary, namespace=lambda number: f"team-{number}"),
    "128 ClientIP with 50 endpoints and as many timeouts": Crowd(
        128, lambda _: 50, lambda number: STICKY | {"persistTTL": 1000 + 37 * number}
    ),
    "4,000 plain": Crowd(4000, ordinary, lambda _: {}),
    "4,000 ClientIP in 50 namespaces": Crowd(4000, ordinary, namespace=lambda number: f"team-{number % 50}"),
}


async def apply(node: Node, changes: list[FarmChange]) -> None:
    """Program farms, as many at once as an agent does."""
    for first in range(0, len(changes), _BATCH):
        applied = await node.applier.apply(changes[first : first + _BATCH])
        assert not {**applied.refused, **applied.rules_refused}


class Stopwatch:
    """Measures the time that the kernel takes for each transaction, in seconds of a clock."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: list[float] = []
        self._clock = clock
        self._send: Callable[..., Any] = NftSocket._send  # noqa: SLF001 - the kernel works during it alone

    def method(self) -> Callable[..., Any]:
        """Return what takes the place of ``NftSocket._send``."""

        def timed(*arguments: Any) -> Any:
            begun = self._clock()
            try:
                return self._send(*arguments)
            finally:
                self.seconds.append(self._clock() - begun)

        return timed

    async def bystander_s(self, node: Node) -> float:
        """Return the median of a farm's changes that gets and loses an endpoint by turns."""
        for count in (2, 3) * (_CHANGES // 2):
            backends = [raw_backend(f"b{each}", f"10.244.0.{each + 1}") for each in range(count)]
            spec = {"addresses": [{"ip": "10.96.0.1", "ports": "80"}], "backends": backends, "engine": "nftables"}
            wanted = node_farm(farm("bystander", **spec), HERE, None)
            await apply(node, [FarmChange(wanted.name, wanted)])
        return statistics.median(self.seconds[-_CHANGES:])
