"""The problems of farms on this node, for its status, metrics and log."""

from collections.abc import MutableMapping

import structlog

from kube_nftlb import metrics, names
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm

_log = structlog.get_logger()


def log_fields(key: FarmKey, farm: Farm | None) -> dict[str, str]:
    """Return the fields that identify a farm and its Service in a log line."""
    service = farm.metadata.labels.get(names.LABEL_SERVICE) if farm is not None else None
    return {"namespace": key.namespace, "farm": key.name, **({"service": service} if service else {})}


class Problems:
    """Counts and logs each problem once for as long as it lasts.

    The problem of a farm that changes lasts until the change is verified: the watermarks have passed what failed.
    """

    def __init__(self, current: MutableMapping[FarmKey, Problem]) -> None:
        """Keep ``current`` up to date."""
        self.current = current
        self._reported: dict[FarmKey, Problem] = {}

    def report(self, key: FarmKey, problem: Problem, farm: Farm | None) -> None:
        """Set the problem of a farm; ``farm`` is None if it has never been valid."""
        if self._reported.get(key) != problem:
            self._reported[key] = problem
            metrics.FARMS_FAILED.labels(problem.reason).inc()
            _log.warning("farm failed", **log_fields(key, farm), reason=problem.reason, message=problem.message)
        self.current[key] = problem

    def supersede(self, key: FarmKey, problem: Problem, farm: Farm | None) -> None:
        """Set the problem of a farm that waits again, unless one of a later generation is known or the farm is gone."""
        known = self.current.get(key)
        if farm is not None and (known is None or known.harmless or known.generation < problem.generation):
            self.report(key, problem, farm)

    def clear(self, key: FarmKey) -> None:
        """Clear the problem of a farm that is programmed, or is not to be."""
        self.current.pop(key, None)

    def solved(self, key: FarmKey) -> bool:
        """Forget a farm's problem. Return True if one was reported."""
        return self._reported.pop(key, None) is not None

    def forget(self, key: FarmKey) -> None:
        """Forget a removed farm."""
        self._reported.pop(key, None)
        self.current.pop(key, None)
