"""The farms and policies that some node has not programmed: only their statuses follow the nodes. No I/O."""

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.operator.cache.version_index import VersionIndex


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
