"""The state of the loop: what the watches have reported, the farms that wait, their problems, and the progress. No I/O.

Watches report to it, which queues farms; the loop takes farms from the queue, notes what became of them, and reports.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

import structlog

from kube_nftlb import metrics, names
from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.connections.connections import Connections
from kube_nftlb.agent.endpoints.selection import may_drain
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.farm_index import FarmIndex
from kube_nftlb.agent.sync.load_balancers import LoadBalancers
from kube_nftlb.agent.sync.plan import Expected
from kube_nftlb.agent.sync.pool_ranges import PoolRanges
from kube_nftlb.agent.sync.problems import Problems, log_fields
from kube_nftlb.agent.sync.programming_latency import ProgrammingLatency
from kube_nftlb.agent.sync.progress import Problem, Progress, SliceWatermark, Watermark
from kube_nftlb.agent.sync.queue import FarmQueue
from kube_nftlb.agent.table.base import environment
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.agent.table.policy_references import References
from kube_nftlb.agent.table.policy_sets import Json
from kube_nftlb.api.address_ranges import AddressRange
from kube_nftlb.api.base import Family
from kube_nftlb.api.conflicts import FarmKey, farm_key
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.index import SliceKey
from kube_nftlb.endpointslices.slices import Slice
from kube_nftlb.limits import NamespaceLimits

_log = structlog.get_logger()


class LoopState:
    """What watches and loop know together. No method blocks; ``wake`` is set if there may be work."""

    def __init__(
        self,
        engines: Engines,
        features: FeatureProbe,
        latency: ProgrammingLatency,
        connections: Connections,
        clock: Clock,
        limits: NamespaceLimits = NamespaceLimits(),  # noqa: B008 - immutable
    ) -> None:
        self._engines = engines
        self.latency = latency
        self._clock = clock
        self.progress = Progress()
        self.problems = Problems(self.progress.problems)
        self.policies = Policies()
        self.index = FarmIndex(self.policies, features, limits)
        self.queue = FarmQueue(self._comes_or_goes)
        self.expected: dict[str, Expected] = {}
        """What was planned for farms that are not verified yet, by name on the node."""
        self.dropping: set[FarmKey] = set()
        """Farms whose clients are dropped because no backend is on this node, as they were last verified."""
        self.changed: set[str] = set()
        """Names of farms that the engines have changed, until that is logged."""
        self.load_balancers = LoadBalancers()
        self.connections = connections
        self.environment = environment({}, {})
        self.pools = PoolRanges()
        self.wake = asyncio.Event()
        self.slices = SliceWatermark()
        self.seen_version = 0
        """The latest resourceVersion that the watch of farms has reported."""
        self._farms_listed = False
        self._slices_listed = False
        self._node_known = False
        self._node_ips_known = False

    @property
    def complete(self) -> bool:
        """True once farms, EndpointSlices, policies, nodes and pools are known. Nothing is programmed before."""
        return self.complete_but_for_pools and self.pools.known

    @property
    def complete_but_for_pools(self) -> bool:
        """True once all of these are known, whether pools are or not."""
        nodes_known = self._node_known and self._node_ips_known
        return self._farms_listed and self._slices_listed and nodes_known and self.policies.listed

    def put(self, farm: Farm, since: int | None = None) -> None:
        """Add or update a farm; ignore a known generation.

        ``since`` is the earliest resourceVersion at which it may have changed; None: the farm's own.
        """
        if not (affected := self.index.put(farm)):
            return
        key = farm_key(farm)
        _log.debug("farm seen", **log_fields(key, farm), generation=farm.metadata.generation)
        self._changed(affected, int(farm.metadata.resource_version or 0) if since is None else since)

    def put_unreadable(
        self, key: FarmKey, problem: Problem, resource_version: int, refers: References | None = None
    ) -> None:
        """Add or update a farm that the model rejects, such as one of a newer version.

        The engine keeps what it has, and the problem is reported. ``refers`` counts only for a farm that has never been
        valid.
        """
        self.index.put_unreadable(key, refers)
        self.problems.report(key, problem, self.index.get(key))
        self._changed([key], resource_version)

    def remove(self, key: FarmKey, resource_version: int) -> None:
        """Remove a farm."""
        self.latency.gone(key)
        self.problems.forget(key)
        if affected := self.index.remove(key):
            self.add(affected, resource_version)

    def replace_all(self, farms: Iterable[Farm], resource_version: int, unreadable: Collection[FarmKey] = ()) -> None:
        """Replace all farms; those not listed are removed, and ``unreadable`` ones stay as they were."""
        present = {farm_key(farm): farm for farm in farms}
        before = self.seen_version
        for key in self.index.all() - present.keys() - set(unreadable):
            self.remove(key, before + 1)
        for farm in present.values():
            self.put(farm, before + 1)
        self._farms_listed = True
        self.seen(resource_version)

    def caught_up(self, watermark: Watermark, version: int) -> None:
        """Note that the watch behind a watermark has brought all up to this version since it began or failed."""
        self.progress.caught_up[watermark] = version

    def seen(self, resource_version: int) -> None:
        """Record how far the watch of farms has come."""
        self.seen_version = max(self.seen_version, resource_version)
        self.wake.set()

    def put_slice(self, key: SliceKey, new: Slice | None, version: int, made_at: datetime | None) -> list[Farm]:
        """Add or replace an EndpointSlice; None removes it. Return the farms with health checks that it concerns.

        ``made_at`` is the time of the change that caused it, if known; None if it was long ago.
        """
        affected = self.index.put_slice(key, new)
        if affected:
            metrics.ENDPOINT_SLICE_CHANGES.inc()
        self.slices.changed(affected, version)
        for each in affected:
            self.latency.changed(each, made_at)
        self._queue(affected, self.seen_version + 1)
        farms = (farm for each in affected if (farm := self.index.get(each)) is not None)
        return [farm for farm in farms if farm.spec.health_check_node_port is not None]

    def slices_listed(self, present: Collection[SliceKey], version: int) -> list[Farm]:
        """Remove the EndpointSlices that are not present in a complete list made at a resourceVersion.

        Return the farms with health checks that this concerns.
        """
        farms = [
            farm for key in self.index.slices.missing(present) for farm in self.put_slice(key, None, version, None)
        ]
        self._slices_listed = True
        self.slices_seen(version)
        return farms

    def resolved(self, farm: Farm) -> Farm:
        """Return a farm with the backends that it refers to."""
        return self.index.resolved(farm_key(farm)) or farm

    def draining(self) -> Iterator[Farm]:
        """Yield the farms of which a backend may drain, with the backends that they refer to."""
        for key in list(self.index):
            farm = self.index.get(key)
            if farm is not None and may_drain(farm.spec):
                yield self.resolved(farm)

    def may_serve(self, key: FarmKey) -> bool:
        """Return True if an engine sends a farm's clients somewhere; also if nobody can tell, as nftlb is away."""
        name = names.node_farm_name(*key)
        sent = self._engines.sent.get(name)
        return not sent.refuses if sent is not None else self._engines.listeners(name) is None

    def has_failed(self, key: FarmKey) -> bool:
        """Return True if a farm has a problem, and no engine sends its clients anywhere."""
        return key in self.problems.current and not self.may_serve(key)

    def has_listener(self, listener: Listener) -> bool:
        """Return True if an engine has a listener."""
        return bool(self._engines.owners([listener]))

    def slices_seen(self, version: int) -> None:
        """Record how far the watch of EndpointSlices has come."""
        self.slices.seen(version)
        self.wake.set()

    def set_node(self, facts: NodeFacts, service_ranges: Mapping[Family, Iterable[str]]) -> None:
        """Update the node and the cluster's ranges for Services; queue every farm if anything has changed."""
        contents = environment(facts.pod_cidrs, service_ranges)
        if self._node_known and (facts, contents) == (self.index.node, self.environment):
            return
        self._node_known = True
        self.environment = contents
        self.index.set_node(facts)
        self.add(self.index)

    def set_pools(self, ranges: Collection[AddressRange]) -> None:
        """Update the addresses that only Services can have. No farm changes by that."""
        if self.pools.set(ranges):
            self.wake.set()

    def set_node_ips(self, ips: Collection[str]) -> None:
        """Update the addresses of all nodes; queue the farms that may get or lose a listener by that."""
        self._node_ips_known = True
        self.add(self.index.set_node_ips(ips))
        self.wake.set()

    def replace_policies(self, raws: Iterable[Json], resource_version: int) -> None:
        """Replace all policies."""
        self.policies.replace_all(raws, resource_version)
        self.wake.set()

    def refuse_policy(self, key: PolicyKey) -> None:
        """Treat a policy as missing that does not fit the budget of its namespace."""
        self.policies.refuse(key)
        self.wake.set()

    def policies_seen(self, resource_version: int) -> None:
        """Record how far the watch of policies has come."""
        self.policies.seen(resource_version)
        self.wake.set()

    def put_policy(self, raw: Json) -> None:
        """Add or update a policy."""
        self.policies.put(raw)
        self.policies_seen(int(raw["metadata"]["resourceVersion"]))

    def remove_policy(self, raw: Json) -> None:
        """Remove a policy; ``raw`` is its last state, with the resourceVersion of the deletion."""
        version = int(raw["metadata"]["resourceVersion"])
        self.policies.remove(PolicyKey.of(raw), version)
        self.policies_seen(version)

    def add(self, keys: Iterable[FarmKey], since: int | None = None) -> None:
        """Queue farms, which may be out of date since a resourceVersion; None: since the latest that was seen."""
        keys, since = list(keys), self.seen_version if since is None else since
        if keys:
            self.progress.changed_at = max(self.progress.changed_at, since)
        self._queue(keys, since)

    def _changed(self, keys: Collection[FarmKey], version: int) -> None:
        """Queue farms that changed at a resourceVersion. One that fits its budget again did so long ago."""
        self.progress.changed_at = max(self.progress.changed_at, version)
        self._queue(keys, max(version, self.seen_version + 1))

    def _queue(self, keys: Collection[FarmKey], since: int) -> None:
        self.queue.add(keys, since)
        if self.queue.waiting:
            metrics.LAST_QUEUED.set_to_current_time()
            self.progress.slices_changed_at = self.slices.changed_at
            for lag in (self.progress.lag, self.progress.other_lag):
                lag.queued(self.progress.latest, self._clock.now())
        self.wake.set()

    def update_progress(self, *, adopted: bool) -> None:
        """Compute the watermarks from what is in the queue; nothing counts as done before the engine is ``adopted``."""
        progress = self.progress
        progress.pending = len(self.queue)
        # Everything before the oldest event that still waits is done.
        oldest = self.queue.oldest_since
        progress.watermark = max(oldest - 1, 0) if oldest is not None else self.seen_version
        progress.slice_watermark = self.slices.update(self.queue)
        progress.slices_changed_at = self.slices.changed_at
        waits = any(problem.waits for problem in progress.problems.values())
        progress.is_mostly_nftlb = waits and self.index.is_mostly_nftlb
        if adopted:
            for lag in (progress.other_lag,) if waits else (progress.other_lag, progress.lag):
                lag.advanced(progress.watermarks, progress.latest, self._clock.now(), pending=oldest is not None)
        progress.policy_watermark = self.policies.watermark
        progress.policy_changed_at = self.policies.changed_at

    @property
    def is_progress_old(self) -> bool:
        """True if a watch has come further than the watermarks say, while nothing waits."""
        seen = (self.seen_version, self.slices.update(self.queue), self.policies.watermark)
        return seen != (*self.progress.watermarks, self.progress.policy_watermark)

    @property
    def has_work(self) -> bool:
        """True if farms, policies or pools wait."""
        return bool(self.queue.waiting) or self.policies.pending or self.pools.pending

    def _comes_or_goes(self, key: FarmKey) -> bool:
        return key not in self.index or names.node_farm_name(*key) not in self._engines.sent
