"""What a change of the cache makes out of date. No I/O."""

from typing import NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.slices import ServiceKey


class Affected(NamedTuple):
    """Objects that a change may have outdated: the farms of Services, and the statuses of farms and of policies."""

    services: frozenset[ServiceKey] = frozenset()
    farms: frozenset[FarmKey] = frozenset()
    policies: frozenset[PolicyKey] = frozenset()

    def __or__(self, other: "Affected") -> "Affected":
        return Affected(self.services | other.services, self.farms | other.farms, self.policies | other.policies)


NOTHING = Affected()
