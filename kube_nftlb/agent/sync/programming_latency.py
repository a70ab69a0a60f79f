"""How long changes of the cluster took to come to this node's kernel (kube-proxy's network programming latency)."""

from datetime import UTC, datetime

from kube_nftlb import metrics, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.kube import timestamps


class ProgrammingLatency:
    """Measures each change once. What was changed before ``begun`` waited for this agent's start, and does not count.

    A farm tells of its last change in an annotation, which says nothing new where others change the farm's spec.
    """

    def __init__(self, begun: datetime) -> None:
        self._begun = begun
        self._waiting: dict[FarmKey, datetime] = {}
        self._last: dict[FarmKey, datetime] = {}

    def changed(self, key: FarmKey, farm: Farm) -> None:
        """A farm is to be programmed anew. Of changes that come together the oldest counts."""
        made_at = timestamps.parse(farm.metadata.annotations.get(names.ANNOTATION_CHANGED_AT))
        if made_at is None or made_at <= self._last.get(key, self._begun):
            return
        self._last[key] = made_at
        self._waiting.setdefault(key, made_at)

    def programmed(self, key: FarmKey) -> None:
        """A farm is in the kernel, and was compared."""
        if (made_at := self._waiting.pop(key, None)) is not None:
            # The clock of who made the change may be ahead.
            metrics.PROGRAMMING_SECONDS.observe(max(0.0, (datetime.now(UTC) - made_at).total_seconds()))

    def dropped(self, key: FarmKey) -> None:
        """A farm is not to be programmed for now: when it will be tells nothing of how long that takes."""
        self._waiting.pop(key, None)

    def gone(self, key: FarmKey) -> None:
        """A farm was deleted."""
        self._waiting.pop(key, None)
        self._last.pop(key, None)
