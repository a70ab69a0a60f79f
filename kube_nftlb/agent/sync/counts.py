"""Count farms, backends and policies on this node, for metrics."""

from collections import Counter
from typing import Literal

from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.sync.inputs import Inputs
from kube_nftlb.api.conflicts import FarmKey

FarmState = Literal["programmed", "pending", "failed", "refused"]
BackendState = Literal["up", "off"]


class Counts:
    """Counts what the loop works on."""

    def __init__(self, inputs: Inputs, engines: Engines) -> None:
        self._inputs = inputs
        self._engines = engines

    @property
    def policies(self) -> int:
        """The number of policies."""
        return self._inputs.policies.count

    @property
    def endpoint_changes(self) -> int:
        """The number of farms that are not programmed with their endpoints yet."""
        return self._inputs.slices.pending

    def farms(self) -> Counter[str]:
        """Return the number of farms in each FarmState."""
        pending = self._inputs.queue.pending
        return Counter(self._state(key, pending=key in pending) for key in self._inputs.index.all())

    def backends(self) -> Counter[str]:
        """Return the number of backends in the engine in each BackendState."""
        farms = list(self._engines.programmed.values())
        up = sum(farm.scheduled for farm in farms)
        return Counter({"up": up, "off": sum(farm.endpoints for farm in farms) - up})

    def without_local_backends(self) -> int:
        """Return how many farms drop connections because their traffic policy is Local and no backend is here."""
        index = self._inputs.index
        local = [key for key in index if (farm := index.get(key)) and farm.spec.traffic_policy == "Local"]
        farms = (farm for key in local if (farm := index.resolved(key)) is not None)
        candidates = (selection.candidates(farm.spec, index.node) for farm in farms)
        return sum(1 for endpoints in candidates if endpoints.cluster and not endpoints.local)

    def _state(self, key: FarmKey, *, pending: bool) -> FarmState:
        if self._inputs.index.loses(key):
            return "refused"
        if (problem := self._inputs.progress.problems.get(key)) is not None and not problem.harmless:
            return "failed"
        return "pending" if pending else "programmed"
