"""The progress of the reconciler, for status and metrics: watermarks, lag. No I/O; times are seconds of a clock."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.node import NodeDraining
from kube_nftlb.reasons import FailureReason, KubeProxyReason

Watermark = Literal["watermark", "slice_watermark", "policy_watermark"]
WATERMARKS: tuple[Watermark, ...] = get_args(Watermark)
"""The fields with the resourceVersions up to which all farms, all EndpointSlices and all policies are programmed."""


class SliceWatermark:
    """The resourceVersion up to which all changes of EndpointSlices are programmed, as far as farms refer to them.

    It is separate from the watermark of farms, because each kind has a watch of its own.
    """

    def __init__(self) -> None:
        self._waiting: dict[FarmKey, int] = {}
        self._untaken: dict[FarmKey, int] = {}
        """The same of the changes since a farm was last taken from the queue."""
        self._seen = 0
        self.changed_at = 0
        """The latest resourceVersion at which a farm got other endpoints."""

    @property
    def pending(self) -> int:
        """The number of farms that were pending at the last ``update``, or changed since."""
        return len(self._waiting)

    def changed(self, keys: Iterable[FarmKey], version: int) -> None:
        """Note that farms got other endpoints at a resourceVersion.

        A slice that was cut may change what they get long after it changed itself: they wait as for news of the watch,
        since the watermark would else go back. That is no version that the watermark is to reach.
        """
        since = max(version, self._seen + 1)
        for key in keys:
            self._waiting.setdefault(key, since)
            self._untaken.setdefault(key, since)
            self.changed_at = max(self.changed_at, version)

    def taken(self, keys: Iterable[FarmKey]) -> None:
        """Note that farms are about to be programmed, with all changes until now."""
        for key in keys:
            self._untaken.pop(key, None)

    def incomplete(self, keys: Iterable[FarmKey]) -> None:
        """Note that an engine could not program all of these farms: they are to be taken again."""
        self._untaken.update({key: self._waiting[key] for key in keys if key in self._waiting})

    def verified(self, key: FarmKey) -> None:
        """Note that the kernel has a farm as it was last taken; it may wait again since."""
        if key in self._untaken:
            self._waiting[key] = self._untaken[key]

    def seen(self, version: int) -> None:
        """Note how far the watch has come."""
        self._seen = max(self._seen, version)

    def update(self, pending: Container[FarmKey]) -> int:
        """Return the watermark, if all farms are programmed but those that are ``pending``."""
        self._waiting = {key: version for key, version in self._waiting.items() if key in pending}
        # A list brings changes later than others that it has not brought yet.
        return min((self._seen + 1, *self._waiting.values())) - 1


Versions = tuple[int, ...]
"""One resourceVersion for each watch; those of different watches are not compared."""


class Lag:
    """Changes count as done when the watermarks reach the latest changes at the time when they began to wait.

    So while changes come without pause the queue need not become empty, only what was in it must be done.
    """

    def __init__(self) -> None:
        self.waiting_since: float | None = None
        """The time since which changes wait, or None."""
        self.done_at: float | None = None
        """The time at which all waiting changes were last programmed; None before the first."""
        self._until: Versions = ()

    def queued(self, latest: Versions, now: float) -> None:
        """Note that changes wait, the ``latest`` at these resourceVersions."""
        if self.waiting_since is None:
            self.waiting_since = now
            self._until = latest

    def advanced(self, watermarks: Versions, latest: Versions, now: float, *, pending: bool) -> None:
        """Note that everything up to the watermarks is programmed; ``pending`` if changes after them wait."""
        behind = any(watermark < until for watermark, until in zip(watermarks, self._until, strict=False))
        if pending and (self.waiting_since is None or behind):
            return
        self.done_at = now
        self.waiting_since = None
        if pending:
            self.queued(latest, now)

    def overdue(self, limit_s: float, now: float) -> bool:
        """Return True if changes have waited for longer than the limit."""
        return self.waiting_since is not None and now - self.waiting_since > limit_s


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
    caught_up: dict[Watermark, int] = field(default_factory=lambda: dict.fromkeys(WATERMARKS, 0))
    """The resourceVersions up to which watches have brought all since they began or failed: others may wait."""
    pending: int = 0
    began_at: float | None = None
    """The start of the loop's last pass, in seconds of ``time.monotonic``; None before the first."""
    lag: Lag = field(default_factory=Lag)
    """Of all changes. Times in seconds of ``time.monotonic``."""
    other_lag: Lag = field(default_factory=Lag)
    """The same without the farms that wait for nftlb, which is away or hangs."""
    is_mostly_nftlb: bool = False
    """True while farms wait for nftlb if at least half of all are nftlb's."""

    @property
    def node_lag(self) -> Lag:
        """The lag by which the whole node is judged: farms that wait for nftlb do not count beside more others."""
        return self.lag if self.is_mostly_nftlb else self.other_lag

    def lag_of(self, keys: Iterable[FarmKey]) -> Lag:
        """Return the lag by which farms are judged: others that wait for nftlb do not count."""
        waits = any((problem := self.problems.get(key)) is not None and problem.waits for key in keys)
        return self.lag if waits else self.other_lag

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
