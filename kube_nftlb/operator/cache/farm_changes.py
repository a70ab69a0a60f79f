"""Change farms, and what they refer to: EndpointSlices and policies. No I/O.

Each change returns what it makes out of date.
"""

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.index import SliceKey
from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from kube_nftlb.operator.cache.affected import NOTHING, Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_index import made_from, policies_of
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.cache.policy_record import PolicyRecord
from kube_nftlb.operator.cache.slice_cache import SliceChange
from kube_nftlb.operator.model.pods import PodKey


class FarmChanges:
    """Makes changes to a cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def put(self, record: FarmRecord, farm: Farm | None) -> Affected:
        """Add or replace a farm; ``farm`` is None if its spec has no valid listeners."""
        cache = self._cache
        before = cache.farms.get(record.key)
        if not cache.farms.put(record.key, record):
            return NOTHING
        refitted = cache.budgets.farms.put(record.key, record.rank, record.size) - {record.key}
        fits = not cache.budgets.farms.refuses(record.key)
        others = cache.conflicts.put(farm) if farm is not None and fits else cache.conflicts.remove(record.key)
        return self._move(record.key, before, record, others | self._refit(refitted))

    def remove(self, key: FarmKey, version: int) -> Affected:
        """Remove a farm."""
        cache = self._cache
        if (before := cache.farms.remove(key, version)) is None:
            return NOTHING
        cache.progress.forget_farm(key)
        others = cache.conflicts.remove(key) | self._refit(cache.budgets.farms.remove(key))
        return self._move(key, before, None, others)

    def put_slice(self, key: SliceKey, version: int, new: Slice | None) -> Affected:
        """Add or replace an EndpointSlice; ``new`` is None if no farm needs it."""
        return self._affected_by_slice(key, self._cache.slices.put(key, version, new))

    def put_slice_again(self, key: SliceKey, version: int, new: Slice | None) -> Affected:
        """Replace an EndpointSlice that was cut."""
        return self._affected_by_slice(key, self._cache.slices.put_again(key, version, new))

    def remove_slice(self, key: SliceKey, version: int) -> Affected:
        """Remove an EndpointSlice."""
        return self._affected_by_slice(key, self._cache.slices.remove(key, version))

    def put_policy(self, policy: PolicyRecord) -> Affected:
        """Add or replace a policy."""
        if not self._cache.policies.put(policy.key, policy):
            return NOTHING
        refitted = self._cache.budgets.policies.put(policy.key, policy.rank, policy.cidrs)
        return Affected(policies=frozenset({policy.key, *refitted}))

    def remove_policy(self, key: PolicyKey, version: int) -> Affected:
        """Remove a policy."""
        if self._cache.policies.remove(key, version) is None:
            return NOTHING
        self._cache.progress.set_policy(key, None)
        return Affected(policies=frozenset({key, *self._cache.budgets.policies.remove(key)}))

    def _refit(self, farms: set[FarmKey]) -> set[FarmKey]:
        """Have those of these farms have listeners that fit the budget, and no others. Return all that this affects."""
        cache, affected = self._cache, set(farms)
        for key in farms:
            record = cache.farms.get(key)
            if cache.budgets.farms.refuses(key):
                affected |= cache.conflicts.remove(key)
            elif record is not None and record.listeners_json:
                affected |= cache.conflicts.put(record.farm_with_listeners())
        return affected

    def _move(
        self, key: FarmKey, before: FarmRecord | None, after: FarmRecord | None, others: set[FarmKey]
    ) -> Affected:
        self._cache.farm_index.move(key, before, after)
        for record in (before, after):
            if record is not None and record.reference is not None:
                for referred in record.reference.services:
                    self._forget_unused(referred)
        services = {service for record in (before, after) if (service := made_from(record)) is not None}
        if before is not None and after is not None and before.made_as == after.made_as:
            # Only the status changed, for example, which does not matter to the Service.
            services.clear()
        policies = {*policies_of(before)} ^ {*policies_of(after)}
        return Affected(frozenset(services), frozenset({key, *others}), frozenset(policies))

    def _affected_by_slice(self, key: SliceKey, change: SliceChange) -> Affected:
        """Return the farms that follow a change of endpoints. Overrides are in farms, all else follows by reference."""
        namespace, _ = key
        annotated = any(self._cache.pods.get(PodKey(namespace, pod)) is not None for pod in change.pods)
        farms = set[FarmKey]().union(*(self._cache.farm_index.referring.get(service) for service in change.services))
        for service in change.services:
            self._forget_unused(service)
        return Affected(frozenset(change.services if annotated else ()), frozenset(farms))

    def _forget_unused(self, service: ServiceKey) -> None:
        if not self._cache.farm_index.referring.get(service):
            self._cache.slices.forget_unused(service)
