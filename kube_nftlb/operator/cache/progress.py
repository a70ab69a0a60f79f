"""The farms and policies that some node has not programmed: only their statuses follow the nodes. No I/O."""

import bisect
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.node_record import NodeRecord

K = TypeVar("K", bound=tuple[Any, ...])


class VersionIndex(Generic[K]):
    """Finds the keys between two resourceVersions without a scan of all."""

    def __init__(self) -> None:
        self._since: dict[K, int] = {}
        self._ordered: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys."""
        return iter(self._since)

    def add(self, key: K, since: int) -> None:
        """Add a key, or move it to another resourceVersion."""
        if self._since.get(key) != since:
            self.discard(key)
            self._since[key] = since
            bisect.insort(self._ordered, (since, key))

    def discard(self, key: K) -> None:
        """Remove a key, if present."""
        if (since := self._since.pop(key, None)) is not None:
            del self._ordered[bisect.bisect_left(self._ordered, (since, key))]

    def within(self, above: int, upto: int) -> list[K]:
        """Return the keys after one resourceVersion, up to and including another."""
        first, last = (bisect.bisect_right(self._ordered, at, key=lambda entry: entry[0]) for at in (above, upto))
        return [key for _, key in self._ordered[first:last]]


class Progress:
    """What is accepted but not programmed everywhere, by resourceVersion, and the farms that are not accepted."""

    def __init__(self) -> None:
        self.farms: VersionIndex[FarmKey] = VersionIndex()
        """Accepted farms that some node has not programmed."""
        self.endpoints: VersionIndex[FarmKey] = VersionIndex()
        """Accepted farms whose endpoints some node has not programmed."""
        self.refused: set[FarmKey] = set()
        """Farms that are not accepted."""
        self._policies: VersionIndex[PolicyKey] = VersionIndex()

    def set_farm(
        self, key: FarmKey, *, accepted: bool, unfinished_since: int | None, endpoints_since: int | None
    ) -> None:
        """Note if a farm is accepted, and the resourceVersions that some node has not reached, or None.

        The first is that of the farm, the second that of the EndpointSlices that it refers to.
        """
        (self.refused.discard if accepted else self.refused.add)(key)
        for index, since in ((self.farms, unfinished_since), (self.endpoints, endpoints_since)):
            if since is not None:
                index.add(key, since)
            else:
                index.discard(key)

    def forget_farm(self, key: FarmKey) -> None:
        """Forget a farm that is gone."""
        self.set_farm(key, accepted=True, unfinished_since=None, endpoints_since=None)

    def set_policy(self, key: PolicyKey, unfinished_since: int | None) -> None:
        """Note the resourceVersion of a policy that some node has not reached, or None."""
        if unfinished_since is not None:
            self._policies.add(key, unfinished_since)
        else:
            self._policies.discard(key)

    def unfinished(self) -> Affected:
        """Return the farms that some node has not programmed, or whose endpoints it has not."""
        return Affected(farms=frozenset({*self.farms, *self.endpoints}))

    def between(self, before: NodeRecord, after: NodeRecord) -> Affected:
        """Return what a node has programmed from one report to the next."""
        farms = {
            *self.farms.within(before.watermark, after.watermark),
            *self.endpoints.within(before.slice_watermark, after.slice_watermark),
        }
        policies = self._policies.within(before.policy_watermark, after.policy_watermark)
        return Affected(farms=frozenset(farms), policies=frozenset(policies))
