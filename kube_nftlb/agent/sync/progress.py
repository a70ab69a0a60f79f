"""The progress of the reconciler, for status and metrics. No I/O."""

from dataclasses import dataclass, field

from kube_nftlb.agent.sync.lag import Lag, Versions
from kube_nftlb.agent.sync.queue import FarmQueue
from kube_nftlb.agent.sync.slice_watermark import SliceWatermark
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.node import NodeDraining
from kube_nftlb.reasons import FailureReason, KubeProxyReason


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason that a farm is not programmed as requested."""

    reason: FailureReason
    message: str
    generation: int = 0

    @property
    def harmless(self) -> bool:
        """True if the farm is programmed, and only a part of its spec has no effect."""
        return self.reason == "NoEffect"

    @property
    def waits(self) -> bool:
        """True if the farm waits for its engine to be back."""
        return self.reason == "NftlbUnreachable"


@dataclass(frozen=True, slots=True)
class KubeProxy:
    """The state of kube-proxy on this node."""

    reason: KubeProxyReason
    message: str
    rules: bool = False
    """True if there are rules of kube-proxy."""

    @property
    def gone(self) -> bool:
        """True if there is nothing of it."""
        return self.reason == "NoKubeProxy"


@dataclass(slots=True)
class Progress:
    """The progress of the loop, for the node's status."""

    problems: dict[FarmKey, Problem] = field(default_factory=dict)
    draining: NodeDraining = field(default_factory=NodeDraining)
    drift_repaired: int = 0
    pass_error: str | None = None
    """Reason the last pass failed; None if it did not."""
    upkeep_error: str | None = None
    """The engine's last failure beside its farms, such as a file that it cannot write; None if none."""
    engine_error: str | None = None
    nftlb_version: str = ""
    kube_proxy: KubeProxy | None = None
    """The state of kube-proxy; None before the first look."""
    watermark: int = 0
    slice_watermark: int = 0
    policy_watermark: int = 0
    policy_changed_at: int = 0
    """The latest resourceVersion at which a policy changed."""
    changed_at: int = 0
    """The latest resourceVersion at which a farm changed."""
    slices_changed_at: int = 0
    """The latest resourceVersion at which a farm got other endpoints."""
    pending: int = 0
    began_at: float | None = None
    """The start of the loop's last pass, in seconds of ``time.monotonic``; None before the first."""
    lag: Lag = field(default_factory=Lag)
    """Times in seconds of ``time.monotonic``."""

    def update(
        self, queue: FarmQueue, seen: int, slices: SliceWatermark, policies: Policies, now: float, *, adopted: bool
    ) -> None:
        """Compute the watermarks from what is in the queue."""
        self.pending = len(queue)
        # Everything before the oldest event that still waits is done.
        oldest = queue.oldest_since
        self.watermark = max(oldest - 1, 0) if oldest is not None else seen
        self.slice_watermark = slices.update(queue)
        self.slices_changed_at = slices.changed_at
        if adopted and not any(problem.waits for problem in self.problems.values()):
            self.lag.advanced(self.watermarks, self.latest, now, pending=oldest is not None)
        self.policy_watermark = policies.watermark
        self.policy_changed_at = policies.changed_at

    @property
    def last_error(self) -> str | None:
        """The current failure; None if there is none."""
        return self.pass_error or self.upkeep_error

    @property
    def failed(self) -> dict[FarmKey, Problem]:
        """The farms that are not programmed as requested."""
        return {key: problem for key, problem in self.problems.items() if not problem.harmless}

    @property
    def warnings(self) -> dict[FarmKey, Problem]:
        """The farms that are programmed, and part of which has no effect."""
        return {key: problem for key, problem in self.problems.items() if problem.harmless}

    @property
    def watermarks(self) -> Versions:
        """The watermarks of farms, and of EndpointSlices."""
        return self.watermark, self.slice_watermark

    @property
    def latest(self) -> Versions:
        """The latest changes of farms, and of their endpoints."""
        return self.changed_at, self.slices_changed_at

    @property
    def news(self) -> tuple[object, ...]:
        """Fields whose change is worth a report while there is no work."""
        return self.drift_repaired, self.last_error, self.engine_error
