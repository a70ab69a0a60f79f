"""What is wrong with farms on this node, for its status, its metrics and its log."""

from collections.abc import MutableMapping

import structlog

from kube_nftlb import metrics, names
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm

_log = structlog.get_logger()


def where(key: FarmKey, farm: Farm | None) -> dict[str, str]:
    """What a log line calls a farm, and the Service that it was made from."""
    service = farm.metadata.labels.get(names.LABEL_SERVICE) if farm is not None else None
    return {"namespace": key.namespace, "farm": key.name, **({"service": service} if service else {})}


class Problems:
    """A problem is counted and logged once for as long as it lasts, however often it is met."""

    def __init__(self, of: MutableMapping[FarmKey, Problem]) -> None:
        """``of`` is kept up to date."""
        self.of = of
        self._told: dict[FarmKey, Problem] = {}

    def tell(self, key: FarmKey, problem: Problem, farm: Farm | None) -> None:
        """A farm, of which nothing may be known yet, has a problem."""
        if self._told.get(key) != problem:
            self._told[key] = problem
            metrics.FARMS_FAILED.labels(problem.reason).inc()
            _log.warning("farm failed", **where(key, farm), reason=problem.reason, message=problem.message)
        self.of[key] = problem

    def changed(self, key: FarmKey) -> None:
        """A farm is another one: what was wrong with it may be right now."""
        self.of.pop(key, None)

    def solved(self, key: FarmKey) -> bool:
        """A farm works; returns whether it had a problem that was told."""
        return self._told.pop(key, None) is not None

    def gone(self, key: FarmKey) -> None:
        """There is no such farm any more."""
        self._told.pop(key, None)
        self.of.pop(key, None)
