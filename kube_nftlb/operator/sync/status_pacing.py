"""Decide when the status of a farm is written: late enough that one write is enough. No I/O."""

from dataclasses import dataclass

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.operator.cache.farm_record import FarmRecord, status_digest, urgent


@dataclass(frozen=True)
class StatusTiming:
    """Times in seconds. To the API server a status costs as much as the farm itself."""

    delay_s: float = 0.2
    """The delay of each status: they are for people, and nodes come first."""
    delay_each_s: float = 0.01
    """Added for each waiting status of the namespace, since thousands of farms are not programmed at once."""
    delay_max_s: float = 10.0
    interval_s: float = 1.0
    """The minimum time between two writes of one status."""
    nodes_s: float = 2.0
    """Time in seconds that the status of a changed farm waits for its nodes, which report within 1.4 s."""
    nodes_each_s: float = 0.03
    """Added for each waiting farm: when thousands change, nodes need some 30 ms for each."""
    nodes_max_s: float = 60.0
    quiet_s: float = 1.0
    """Time in seconds that the endpoints of a farm must be unchanged for its status to follow them."""
    endpoints_s: float = 4.0
    """Maximum time in seconds until a status follows endpoints, however often they change or nodes are behind."""
    endpoints_per_s: float = 20.0
    """The maximum rate of such writes for all farms: a rolling update changes the endpoints of thousands."""
    endpoints_burst: int = 4
    """The number of such writes of one farm in a row. After them there is one for each ``refill_s``: to the API server
    a status costs three times as much as the change of the EndpointSlice that it follows, and all nodes get it.
    """
    refill_s: float = 180.0
    settled_s: float = 30.0
    """Time in seconds without a change after which the status of a farm that has had its writes follows anyway."""


@dataclass(slots=True)
class _Pending:
    """Endpoints that a status does not show yet: which, since when, when they last changed, and when they may."""

    shown: bytes
    since: float
    changed_at: float
    turn: float | None = None


class StatusPacing:
    """Remembers when statuses were written, and which farms wait for their nodes. Times are seconds of any clock."""

    def __init__(self, timing: StatusTiming) -> None:
        self._timing = timing
        self._written: dict[FarmKey, float] = {}
        self._awaited: dict[FarmKey, tuple[int, float]] = {}
        self._endpoints: dict[FarmKey, _Pending] = {}
        self._next_turn = 0.0
        self._free_at: dict[FarmKey, float] = {}
        """The time at which a farm that follows its endpoints has its whole burst again."""

    def delay_s(self, waiting: int) -> float:
        """Return the delay of a status that is queued while so many others of its namespace wait."""
        return min(self._timing.delay_s + waiting * self._timing.delay_each_s, self._timing.delay_max_s)

    def wait_s(self, farm: FarmRecord, status: FarmStatus, now: float) -> float:
        """Return the seconds until a status may be written; 0 or less for now."""
        if (wait_s := self._wait_for_nodes_s(farm, status, now)) > 0:
            return wait_s
        written_at = self._written.get(farm.key, float("-inf"))
        if _is_urgent(farm, status):
            return written_at + self._timing.interval_s - now
        return self._wait_for_endpoints_s(farm, status, now)

    def written(self, key: FarmKey, now: float) -> None:
        """Note that a status is being written."""
        if key in self._endpoints:
            self._free_at[key] = max(self._free_at.get(key, now), now) + self._timing.refill_s
        self._written[key] = now
        self._awaited.pop(key, None)
        self._endpoints.pop(key, None)

    def unchanged(self, key: FarmKey) -> None:
        """Note that a status is as it was written: the next change of endpoints waits anew."""
        self._endpoints.pop(key, None)

    def forget(self, key: FarmKey) -> None:
        """Forget a deleted farm."""
        self._free_at.pop(key, None)
        self._written.pop(key, None)
        self._awaited.pop(key, None)
        self._endpoints.pop(key, None)

    def _wait_for_endpoints_s(self, farm: FarmRecord, status: FarmStatus, now: float) -> float:
        """Return how long to wait for quiet, for the nodes to have the endpoints, and for the turn of the farm."""
        timing, written_at = self._timing, self._written.get(farm.key, float("-inf"))
        shown = status_digest(status.model_copy(update={"conditions": (), "reason": ""}))
        pending = self._endpoints.setdefault(farm.key, _Pending(shown, now, now))
        if pending.shown != shown:
            pending.shown, pending.changed_at = shown, now
        latest = max(pending.since, written_at) + timing.endpoints_s
        everywhere = all(condition.reason != "EndpointsPending" for condition in status.conditions)
        due = min(latest, pending.changed_at + timing.quiet_s) if everywhere else latest
        spent_until = self._free_at.get(farm.key, now) - (timing.endpoints_burst - 1) * timing.refill_s
        due = max(due, written_at + timing.interval_s, min(spent_until, pending.changed_at + timing.settled_s))
        if due <= now and pending.turn is None:
            # Each waits for a turn of its own: if all waited for the next one, all would be looked at for each write.
            pending.turn = max(now, self._next_turn)
            self._next_turn = pending.turn + 1 / timing.endpoints_per_s
        return max(due, pending.turn or due) - now

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


def _is_urgent(farm: FarmRecord, status: FarmStatus) -> bool:
    """Return True if more changes than what follows from endpoints."""
    return status_digest(urgent(status)) != farm.status.urgent_digest
