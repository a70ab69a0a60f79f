"""What is wrong with farms on this node, for its status, its metrics and its log."""

from collections.abc import MutableMapping

import structlog

from kube_nftlb import metrics, names
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm

_log = structlog.get_logger()


def log_fields(key: FarmKey, farm: Farm | None) -> dict[str, str]:
    """Return what identifies a farm in a log line, and the Service that it was made from."""
    service = farm.metadata.labels.get(names.LABEL_SERVICE) if farm is not None else None
    return {"namespace": key.namespace, "farm": key.name, **({"service": service} if service else {})}


class Problems:
    """Counts and logs each problem once for as long as it lasts."""

    def __init__(self, current: MutableMapping[FarmKey, Problem]) -> None:
        """``current`` is kept up to date."""
        self.current = current
        self._reported: dict[FarmKey, Problem] = {}

    def report(self, key: FarmKey, problem: Problem, farm: Farm | None) -> None:
        """A farm, of which nothing may be known yet, has a problem."""
        if self._reported.get(key) != problem:
            self._reported[key] = problem
            metrics.FARMS_FAILED.labels(problem.reason).inc()
            _log.warning("farm failed", **log_fields(key, farm), reason=problem.reason, message=problem.message)
        self.current[key] = problem

    def clear(self, key: FarmKey) -> None:
        """A farm has changed, or is programmed: what was wrong with it may be right now."""
        self.current.pop(key, None)

    def solved(self, key: FarmKey) -> bool:
        """Forget that a farm had a problem. Return True if one was reported."""
        return self._reported.pop(key, None) is not None

    def forget(self, key: FarmKey) -> None:
        """A farm is gone."""
        self._reported.pop(key, None)
        self.current.pop(key, None)
