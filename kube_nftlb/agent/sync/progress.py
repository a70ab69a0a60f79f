"""What the reconciler has come to, for those who tell of it. No I/O."""

from dataclasses import dataclass, field

from kube_nftlb.agent.sync.lag import Lag
from kube_nftlb.agent.sync.queue import FarmQueue
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.reasons import FailureReason


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a farm is not programmed: a word for machines, a sentence for people."""

    reason: FailureReason
    message: str
    generation: int = 0

    @property
    def harmless(self) -> bool:
        """Whether the farm is programmed, and only a part of its spec has no effect."""
        return self.reason == "NoEffect"


@dataclass(slots=True)
class Progress:
    """What the loop has come to, for the node's status."""

    problems: dict[FarmKey, Problem] = field(default_factory=dict)
    drift_repaired: int = 0
    last_error: str = ""
    engine_error: str = ""
    watermark: int = 0
    policy_watermark: int = 0
    policy_changed_at: int = 0
    """The resourceVersion at which a policy was last to be programmed."""
    changed_at: int = 0
    """The resourceVersion at which something was last to be done."""
    pending: int = 0
    began_at: float | None = None
    """When the loop began its last pass, in seconds of ``time.monotonic``; None where it has not begun yet."""
    lag: Lag = field(default_factory=Lag)
    """How long changes have waited, in seconds of ``time.monotonic``."""

    def update(self, queue: FarmQueue, seen: int, policies: Policies, now: float, *, adopted: bool) -> None:
        """Compute the watermarks from what is in the queue."""
        self.pending = len(queue)
        # What waits since an event is not done; all that came before that event is.
        oldest = queue.oldest_since
        self.watermark = max(oldest - 1, 0) if oldest is not None else seen
        if adopted:
            self.lag.advanced(self.watermark, self.changed_at, now, pending=oldest is not None)
        self.policy_watermark = policies.watermark
        self.policy_changed_at = policies.changed_at

    @property
    def news(self) -> tuple[object, ...]:
        """What is worth a report if it changes while nothing is to be done."""
        return self.drift_repaired, self.last_error, self.engine_error
