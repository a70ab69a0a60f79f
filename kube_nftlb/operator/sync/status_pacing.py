"""Decide when the status of a farm is written: late enough that one write is enough. No I/O."""

from dataclasses import dataclass

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.operator.cache.farm_record import FarmRecord


@dataclass(frozen=True)
class StatusTiming:
    """Times in seconds. To the API server a status costs as much as the farm itself."""

    delay_s: float = 0.2
    """The delay of each status: they are for people, and nodes come first."""
    delay_each_s: float = 0.01
    """Added to the delay for each waiting status, since thousands of farms are not programmed at once."""
    delay_max_s: float = 10.0
    interval_s: float = 1.0
    """The minimum time between two writes of one status."""
    nodes_s: float = 2.0
    """How long the status of a changed farm waits for its nodes, which report within 1.4 s."""
    nodes_each_s: float = 0.03
    """Added for each waiting farm: when thousands change, nodes need some 30 ms for each."""
    nodes_max_s: float = 60.0


class StatusPacing:
    """Remembers when statuses were written, and which farms wait for their nodes. Times are seconds of any clock."""

    def __init__(self, timing: StatusTiming) -> None:
        self._timing = timing
        self._written: dict[FarmKey, float] = {}
        self._awaited: dict[FarmKey, tuple[int, float]] = {}

    def delay_s(self, waiting: int) -> float:
        """Return the delay of a status that is queued while so many others wait."""
        return min(self._timing.delay_s + waiting * self._timing.delay_each_s, self._timing.delay_max_s)

    def wait_s(self, farm: FarmRecord, status: FarmStatus, now: float) -> float:
        """Return the seconds until a status may be written; 0 or less for now."""
        if (wait_s := self._wait_for_nodes_s(farm, status, now)) > 0:
            return wait_s
        return self._written.get(farm.key, 0) + self._timing.interval_s - now

    def written(self, key: FarmKey, now: float) -> None:
        """Note that a status is being written."""
        self._written[key] = now
        self._awaited.pop(key, None)

    def forget(self, key: FarmKey) -> None:
        """Forget a deleted farm."""
        self._written.pop(key, None)
        self._awaited.pop(key, None)

    def _wait_for_nodes_s(self, farm: FarmRecord, status: FarmStatus, now: float) -> float:
        pending = any(condition.reason == "Pending" for condition in status.conditions)
        if not pending or farm.status.observed_generation == farm.generation:
            self._awaited.pop(farm.key, None)
            return 0
        if self._awaited.get(farm.key, (0, 0.0))[0] != farm.generation:
            self._awaited[farm.key] = farm.generation, now
        _, since = self._awaited[farm.key]
        timing = self._timing
        return since + min(timing.nodes_s + len(self._awaited) * timing.nodes_each_s, timing.nodes_max_s) - now
