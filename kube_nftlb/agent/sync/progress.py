"""What the reconciler has come to, for those who tell of it. No I/O."""

from dataclasses import dataclass, field

from kube_nftlb.agent.sync.lag import Backlog
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
    nftlb_error: str = ""
    watermark: int = 0
    policy_watermark: int = 0
    policy_changed_at: int = 0
    """The resourceVersion at which a policy was last to be programmed."""
    changed_at: int = 0
    """The resourceVersion at which something was last to be done."""
    pending: int = 0
    began_at: float | None = None
    """When the loop began its last pass, in seconds of ``time.monotonic``; None where it has not begun yet."""
    backlog: Backlog = field(default_factory=Backlog)
    """How long changes have waited, in seconds of ``time.monotonic``."""
