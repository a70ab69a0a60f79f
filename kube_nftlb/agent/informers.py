"""List and watch NftlbFarms, EndpointSlices and NftlbPolicies for the loop."""

import asyncio
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any, NamedTuple

import structlog
from pydantic import ValidationError

from kube_nftlb import names
from kube_nftlb.agent.budget_filter import NamespaceBudgetFilter
from kube_nftlb.agent.farm_objects import parse
from kube_nftlb.agent.health.health_check_ports import HealthCheckPorts
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table.policy_references import raw_references
from kube_nftlb.api.base import first_error
from kube_nftlb.api.budgets import Budget, farm_rank, farm_size, policy_rank, policy_size
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.index import SliceKey
from kube_nftlb.endpointslices.slices import SERVED_SLICES, Slice, parse_slice
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.read_again import read_again
from kube_nftlb.kube.reflector import Handlers, list_and_watch, name_only
from kube_nftlb.kube.resource_versions import check_listed
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, POLICIES
from kube_nftlb.limits import NamespaceLimits

Json = dict[str, Any]

_log = structlog.get_logger()


async def watch_farms(kube: Kube, state: LoopState, health_checks: HealthCheckPorts, limits: NamespaceLimits) -> None:
    """Pass all farms and each change to the loop and the health checks, until cancelled.

    Farms beyond the limit of their namespace are passed as if there were none. While the API server is unreachable
    nothing changes.
    """
    farms = _Farms(state, health_checks, limits)
    handlers = Handlers(farms.replace, farms.put, farms.remove, state.seen, partial(state.caught_up, "watermark"))
    watch = list_and_watch(kube, FARMS, handlers, transform=farms.take)
    await _together(watch, farms.budget_filter.read_missing(kube, farms.read))


class _Seen(NamedTuple):
    fingerprint: int
    version: int

    @classmethod
    def of(cls, raw: Json) -> "_Seen":
        return cls(_metadata_fingerprint(raw), _version(raw))


class _Farms:
    def __init__(self, state: LoopState, health_checks: HealthCheckPorts, limits: NamespaceLimits) -> None:
        budget: Budget[FarmKey] = Budget(sys.maxsize, limits.farms)
        self.budget_filter = NamespaceBudgetFilter(budget, FARMS, farm_rank, farm_size, self._leave_out)
        self._state = state
        self._health_checks = health_checks
        self._seen: dict[FarmKey, _Seen] = {}

    def take(self, raw: Json) -> Json:
        """Parse a farm of a list at once: as JSON, all of them need six times as much memory."""
        farm = parse(raw) if self.budget_filter.admits(FarmKey.of(raw), raw) else None
        metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
        return {
            "metadata": metadata,
            "farm": farm,
            "references": raw_references(raw) if isinstance(farm, Problem) else None,
        }

    def replace(self, listing: Listing) -> None:
        version = int(listing.resource_version)
        for item in listing.items:
            if (known := self._seen.get(FarmKey.of(item))) is not None:
                check_listed(f"{FARMS.plural} {item['metadata']['name']}", _version(item), known.version, version)
        self._seen = {FarmKey.of(item): _Seen.of(item) for item in listing.items}
        parsed = {FarmKey.of(item): item for item in listing.items if item["farm"] is not None}
        parsed = {key: item for key, item in parsed.items() if self.budget_filter.has(key)}
        farms = [item["farm"] for item in parsed.values() if isinstance(item["farm"], Farm)]
        problems = {key: item["farm"] for key, item in parsed.items() if isinstance(item["farm"], Problem)}
        self._state.replace_all(farms, version, problems)
        last_valid = [farm for key in problems if (farm := self._state.index.get(key)) is not None]
        self._health_checks.replace_all(_checked(farm, self._state) for farm in (*farms, *last_valid))
        for key, problem in problems.items():
            self._state.put_unreadable(key, problem, version, parsed[key]["references"])
        self.budget_filter.listed(self._seen.keys(), parsed.keys())

    def put(self, raw: Json) -> None:
        # Half of all events change the status alone, which the agent does not read, and parsing a farm takes time.
        known = self._seen.get(FarmKey.of(raw))
        if known is None or known.fingerprint != _metadata_fingerprint(raw):
            self.read(raw)

    def read(self, raw: Json) -> None:
        self._seen[FarmKey.of(raw)] = _Seen.of(raw)
        if not self.budget_filter.admits(FarmKey.of(raw), raw):
            self._leave_out(FarmKey.of(raw))
            return
        farm = parse(raw)
        if isinstance(farm, Farm):
            self._state.put(farm)
            self._health_checks.put(_checked(farm, self._state))
        else:
            self._state.put_unreadable(FarmKey.of(raw), farm, _version(raw), raw_references(raw))

    def remove(self, raw: Json) -> None:
        self._seen.pop(FarmKey.of(raw), None)
        self._state.remove(FarmKey.of(raw), _version(raw))
        self._health_checks.remove(FarmKey.of(raw))
        self.budget_filter.remove(FarmKey.of(raw))

    def _leave_out(self, key: FarmKey) -> None:
        self._state.remove(key, self._state.seen_version + 1)
        self._health_checks.remove(key)


async def watch_slices(kube: Kube, state: LoopState, health_checks: HealthCheckPorts) -> None:
    """Pass the EndpointSlices of all Services and each change to the loop and the health checks, until cancelled."""

    def change(raw: Json, new: Slice | None, *, again: bool = False) -> None:
        annotations = {} if again else raw["metadata"].get("annotations") or {}
        made_at = timestamps.parse(annotations.get(names.ANNOTATION_TRIGGER_TIME))
        for farm in state.put_slice(_slice_key(raw), new, _version(raw), made_at):
            health_checks.put(state.resolved(farm))

    def put(raw: Json) -> None:
        kube.servers.learn(raw)
        change(raw, parsed_slice(raw))

    def remove(raw: Json) -> None:
        kube.servers.forget(raw)
        change(raw, None)

    def take(raw: Json) -> Json:
        put(raw)
        return name_only(raw)

    def replace(listing: Listing) -> None:
        present = {_slice_key(raw) for raw in listing.items}
        for farm in state.slices_listed(present, int(listing.resource_version)):
            health_checks.put(state.resolved(farm))

    def put_again(raw: Json) -> None:
        change(raw, parsed_slice(raw), again=True)

    handlers = Handlers(replace, put, remove, state.slices_seen, partial(state.caught_up, "slice_watermark"))
    watch = list_and_watch(kube, ENDPOINT_SLICES, handlers, label_selector=SERVED_SLICES, transform=take)
    await _together(watch, read_again(kube, ENDPOINT_SLICES, state.index.slices, put_again))


def _checked(farm: Farm, state: LoopState) -> Farm:
    """Return a farm as health checks need it: with its backends if it has one, which few have."""
    return farm if farm.spec.health_check_node_port is None else state.resolved(farm)


def parsed_slice(raw: Json) -> Slice | None:
    """Return an EndpointSlice in its compact form, or None if it is malformed or no farm needs it."""
    try:
        return parse_slice(raw)
    except ValidationError as error:
        # The API server validates slices. One that it should not have admitted must not stop all others.
        _log.warning("cannot parse EndpointSlice, ignored", name=raw["metadata"]["name"], error=first_error(error))
        return None


async def watch_policies(kube: Kube, state: LoopState, limits: NamespaceLimits) -> None:
    """Pass all policies and each change to the loop, until cancelled; none beyond the limits of their namespaces."""

    def leave_out(key: PolicyKey) -> None:
        state.refuse_policy(key)

    budget: Budget[PolicyKey] = Budget(limits.policies, limits.policy_ranges)
    budget_filter = NamespaceBudgetFilter(budget, POLICIES, policy_rank, policy_size, leave_out)

    def take(raw: Json) -> Json:
        return raw if budget_filter.admits(PolicyKey.of(raw), raw) else name_only(raw)

    def replace(listing: Listing) -> None:
        raws = {PolicyKey.of(raw): raw for raw in listing.items}
        parsed = {key: raw for key, raw in raws.items() if "spec" in raw and budget_filter.has(key)}
        state.replace_policies(parsed.values(), int(listing.resource_version))
        for key in raws.keys() - parsed.keys():
            state.refuse_policy(key)
        budget_filter.listed(raws.keys(), parsed.keys())

    def put(raw: Json) -> None:
        if budget_filter.admits(PolicyKey.of(raw), raw):
            state.put_policy(raw)
        else:
            state.refuse_policy(PolicyKey.of(raw))

    def remove(raw: Json) -> None:
        state.remove_policy(raw)
        budget_filter.remove(PolicyKey.of(raw))

    handlers = Handlers(replace, put, remove, state.policies_seen, partial(state.caught_up, "policy_watermark"))
    watch = list_and_watch(kube, POLICIES, handlers, transform=take)
    await _together(watch, budget_filter.read_missing(kube, put))


async def _together(*works: Coroutine[None, None, None]) -> None:
    """Do all of this until cancelled, or until one fails. Raises what that raises, which the log has in one line."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for work in works:
                tasks.create_task(work)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


def _metadata_fingerprint(raw: Json) -> int:
    """Return a hash of the metadata that changes with what the agent reads: spec has a generation, the others none.

    It is kept also of farms that are left out, whose labels may be large.
    """
    metadata = raw["metadata"]
    labels = frozenset((metadata.get("labels") or {}).items())
    return hash((metadata.get("uid"), metadata.get("generation"), str(metadata.get("ownerReferences")), labels))


def _slice_key(raw: Json) -> SliceKey:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _version(raw: Json) -> int:
    return int(raw["metadata"]["resourceVersion"])
