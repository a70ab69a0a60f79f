"""The budgets of namespaces, and the messages for what does not fit. No I/O."""

import sys

from kube_nftlb.api.budgets import ENTRIES_PER_SHARE, Budget
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.limits import NamespaceLimits


class Budgets:
    """The budgets of namespaces, by kind. The methods return why an object does not fit, or None if it does."""

    def __init__(self, limits: NamespaceLimits) -> None:
        self.limits = limits
        self.services: Budget[ServiceKey] = Budget(sys.maxsize, limits.farms)
        """The Services, by the number of farms that they need: one that does not fit gets none."""
        self.farms: Budget[FarmKey] = Budget(sys.maxsize, limits.farms)
        self.policies: Budget[PolicyKey] = Budget(limits.policies, limits.policy_ranges)

    def refusal_of_farm(self, key: FarmKey) -> str | None:
        """Judge a farm."""
        if not self.farms.refuses(key):
            return None
        message = f"the namespace has more farms than the {self.limits.farms} that the administrator allows"
        large = f"one counts once for each {ENTRIES_PER_SHARE} of its ports and backends"
        return f"{message}; those of Services come first, then older ones, and {large}; delete some"

    def refusal_of_service(self, key: ServiceKey) -> str | None:
        """Judge the farms of a Service."""
        if not self.services.refuses(key):
            return None
        message = f"the Services of the namespace need more farms than the {self.limits.farms}"
        return f"{message} that the administrator allows: it is not served, older ones are; each port is a farm or more"

    def refusal_of_policy(self, key: PolicyKey) -> str | None:
        """Judge a policy."""
        if not self.policies.refuses(key):
            return None
        limits = f"{self.limits.policies} policies with {self.limits.policy_ranges} address ranges"
        message = f"the namespace has more than the {limits} that the administrator allows"
        return f"{message}; older policies come first; farms that refer to this one admit nobody"
