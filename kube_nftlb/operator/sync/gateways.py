"""Decide about Gateways whenever something changes, and hand on what is decided: farms, addresses, statuses."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import structlog

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import GATEWAYS
from kube_nftlb.operator.addresses import gateways as addresses
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.requests import GatewayKey, Request
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import FarmRecord, problem_of
from kube_nftlb.operator.cache.gateway_store import GatewayStore, Ref
from kube_nftlb.operator.gateway.changes import Changes, everything
from kube_nftlb.operator.gateway.objects import AddressState, FarmState, ObjectKey
from kube_nftlb.operator.gateway.plan import Planner
from kube_nftlb.operator.gateway.wanted import AddressRequest, GatewayPlan
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.status.farm_endpoints import Problem
from kube_nftlb.operator.sync.cluster_ips import ClusterIPs, Wanted
from kube_nftlb.operator.sync.gateway_claims import GatewayClaims
from kube_nftlb.operator.sync.gateway_statuses import GatewayStatuses
from kube_nftlb.operator.sync.route_farms import RouteFarms
from kube_nftlb.operator.sync.route_pods import RoutePods

_AT_ONCE = 64
"""How many changed objects of each kind are followed at once, and how many Gateways get an address."""
_STEPS_S = 0.005
"""How long decisions may take before others than Gateways have their turn."""
_RETRY_S = 1.0

_log = structlog.get_logger()


class Gateways:
    """The loop that decides. It observes the statuses of farms (``FarmObserver``)."""

    def __init__(
        self,
        store: GatewayStore,
        cache: Cache,
        book: Book,
        farms: RouteFarms,
        statuses: GatewayStatuses,
        cluster_ips: ClusterIPs,
        on_change: Callable[[Affected], None],
        permissions: Permissions = Permissions(),  # noqa: B008 - immutable
    ) -> None:
        """``on_change`` gets the Services with an external IP that a Gateway has got as an address, or has lost."""
        self._store = store
        self._cache = cache
        self._book = book
        self._farms = farms
        self._statuses = statuses
        self._cluster_ips = cluster_ips
        self._on_change = on_change
        self._pods = RoutePods(cache, permissions)
        self._planner = Planner(store.objects)
        self._defined = store.versions, store.routability
        self.claimed = asyncio.Event()
        """Set once it is known which addresses Gateways have had; from then on their statuses count no more."""
        self._waiting: set[ObjectKey] = set()
        """Gateways that lack an address."""
        self._freed = False
        self._moved: set[ObjectKey] = set()
        """Gateways of whose cluster IPs something has changed."""
        self._refused: dict[FarmKey, str] = {}
        """Why farms cannot be written."""
        self._wake = asyncio.Event()
        farms.on_problem = self._farm_problem
        cluster_ips.on_change = self._cluster_ips_changed

    def wake(self) -> None:
        """Note that something in the store has changed."""
        self._wake.set()

    def services_changed(self, services: Iterable[ServiceKey]) -> None:
        """Look again at the routes that refer to Services, which have changed, or their Pods."""
        for each in services:
            self._store.note("services", each)
        self._wake.set()

    def namespace_changed(self, name: str) -> None:
        """Look again at what selects namespaces by labels."""
        self._store.note("namespaces", name)
        self._wake.set()

    def addresses_freed(self) -> int:
        """Look again at the Gateways that lack an address. Return how many do."""
        self._freed = True
        self._wake.set()
        return len(self._waiting)

    def about_farm(self, farm: FarmRecord, status: FarmStatus, _problems: Iterable[Problem]) -> None:
        """Take the status of a farm, if it is a route's."""
        if not farm.made_of_route:
            return
        counts = status.programmed_nodes, status.total_nodes
        self._state(farm.key, FarmState(*counts, problem_of(status), farm.digest_as_decided))

    def forget_farm(self, key: FarmKey) -> None:
        """Forget a farm that is gone, or about to go."""
        self._refused.pop(key, None)
        if self._store.farms.pop(ObjectKey(*key), None) is not None:
            self._store.note("farms", ObjectKey(*key))
            self._wake.set()

    async def run(self) -> None:
        """Decide until cancelled. Everything has been listed."""
        while True:
            try:
                await self._start()
                while self._defined == (self._store.versions, self._store.routability):
                    self._wake.clear()
                    if not await self._turn():
                        await self._wake.wait()
            except Exception:
                # What was decided before stays.
                _log.exception("cannot decide about Gateways, deciding about all of them anew")
                await asyncio.sleep(_RETRY_S)

    async def _turn(self) -> bool:
        """Assign addresses, follow some changes, and decide about one Gateway. Return False if nothing is left."""
        moved, self._moved = self._moved, set()
        await _in_steps(self._assign(moved))
        if self._freed:
            self._freed = False
            await self._look_again()
        plan, changes = GatewayPlan(), self._store.take(_AT_ONCE)
        if changes is not None:
            await _in_steps(self._planner.follow(changes, plan))
            await _in_steps(self._assign(plan.requests))
        if (key := self._planner.next()) is not None:
            await _in_steps(self._planner.decide(key, plan))
        self._hand_on(plan)
        if changes is not None:
            self._farms.want(self._pods.again(ServiceKey(*each) for each in changes.services))
        await asyncio.sleep(0)
        return changes is not None or key is not None

    async def _look_again(self) -> None:
        """Decide anew about the addresses of the Gateways that lack one, the oldest first."""
        waiting = sorted(self._waiting, key=self._age)
        for first in range(0, len(waiting), _AT_ONCE):
            await _in_steps(self._assign(waiting[first : first + _AT_ONCE]))
            await asyncio.sleep(0)

    def _age(self, key: ObjectKey) -> tuple[float, ObjectKey]:
        known = self._store.objects.gateways.get(key)
        return known.metadata.created_s if known is not None else 0, key

    async def _start(self) -> None:
        """Decide about everything anew, after those that have addresses have claimed them."""
        self._defined, objects = (self._store.versions, self._store.routability), self._store.objects
        self._planner = Planner(objects)
        self._recall_farms()
        self._store.follow()
        plan = GatewayPlan()
        await _in_steps(self._planner.follow(everything(objects), plan))
        if not self.claimed.is_set():
            requests = (self._request(key, wanted) for key, wanted in plan.requests.items())
            claims = GatewayClaims(self._store, self._cache, self._book, self._planner.gateways_of)
            claims.put(request for request in requests if request is not None)
            self.claimed.set()
        self._cluster_ips.replace(plan.requests)
        await _in_steps(self._assign({*self._store.addresses, *plan.requests}))
        while (key := self._planner.next()) is not None:
            await _in_steps(self._planner.decide(key, plan))
        self._farms.replace(self._pods.replace(plan.farms))
        self._statuses.replace(plan)

    def _recall_farms(self) -> None:
        """Begin with what the last leader has written of farms: nothing was observed yet, and they are not new."""
        for farm in self._cache.farms.values():
            seen = farm.status
            if farm.made_of_route and not farm.terminating and seen.observed_generation == farm.generation:
                counts = seen.programmed_nodes, seen.total_nodes
                state = FarmState(*counts, seen.problem, farm.digest_as_decided)
                self._store.farms.setdefault(ObjectKey(*farm.key), state)

    def _hand_on(self, plan: GatewayPlan) -> None:
        for name, farm in plan.farms.items():
            key = FarmKey(*name)
            if farm is None and self._cache.farms.get(key) is None:
                # It was never made; others are forgotten once they are gone.
                self.forget_farm(key)
        self._farms.want(self._pods.take(plan.farms))
        self._statuses.want(plan)

    def _assign(self, keys: Iterable[ObjectKey]) -> Iterator[None]:
        """Decide on the addresses of Gateways, in steps. Those are decided about again of which they are new.

        What is free goes to the oldest Gateways, after others have freed what they had.
        """
        requests = {key: self._planner.request_of(key) for key in keys}

        def rank(key: ObjectKey) -> tuple[bool, tuple[float, ObjectKey]]:
            return requests[key] is not None, self._age(key)

        for key in sorted(requests, key=rank):
            if self._assign_to(key, requests[key]):
                yield from self._planner.follow(Changes(addresses=frozenset({key})), GatewayPlan())
            yield

    def _request(self, key: ObjectKey, wanted: AddressRequest | None) -> Request | None:
        gateway = self._store.objects.gateways.get(key)
        if gateway is None or wanted is None:
            return None
        return addresses.request_of(GatewayKey(*key), gateway, wanted)

    def _assign_to(self, key: ObjectKey, wanted: AddressRequest | None) -> bool:
        """Decide on the addresses of a Gateway. Return True if they, or what is said of them, have changed."""
        holder = GatewayKey(*key)
        had = self._book.has(holder)
        state: AddressState | None = None
        self._cluster_ips.want(key, self._cluster_request(key, wanted))
        if (request := self._request(key, wanted)) is not None and wanted is not None:
            self._book.put_gateway(request, self._book.status(holder).ips)
            ips, state = addresses.allocate(request, wanted, self._book)
            self._book.assign(holder, ips)
            self._book.put_gateway(request, ())
            if wanted.cluster:
                state = addresses.joined(state, self._cluster_ips.state(key))
        else:
            self._book.remove(holder)
        if wanted is not None and state is not None and state.problem:
            self._waiting.add(key)
        else:
            self._waiting.discard(key)
        if moved := set(had) ^ set(self._book.has(holder)):
            self._on_change(Affected(services=self._cache.service_index.asking_for(map(str, moved))))
        if self._store.addresses.get(key) == state:
            return False
        if state is None:
            del self._store.addresses[key]
        else:
            self._store.addresses[key] = state
        return True

    def _cluster_request(self, key: ObjectKey, wanted: AddressRequest | None) -> Wanted | None:
        uid = self._store.uid(Ref(GATEWAYS, *key))
        if wanted is None or not wanted.cluster or uid is None:
            return None
        return Wanted(uid, wanted.cluster)

    def _cluster_ips_changed(self, key: ObjectKey) -> None:
        self._moved.add(key)
        self._wake.set()

    def _state(self, key: FarmKey, state: FarmState) -> None:
        state = replace(state, problem=self._refused.get(key) or state.problem)
        if self._store.farms.get(ObjectKey(*key)) != state:
            self._store.farms[ObjectKey(*key)] = state
            self._store.note("farms", ObjectKey(*key))
            self._wake.set()

    def _farm_problem(self, key: FarmKey, problem: str) -> None:
        """Take why a farm cannot be written; empty once it is."""
        if problem == self._refused.get(key, ""):
            return
        self._refused[key] = problem
        known = self._store.farms.get(ObjectKey(*key), FarmState(0, 0))
        self._state(key, replace(known, problem=""))


async def _in_steps(steps: Iterator[None]) -> None:
    """Take all steps, and let others have their turn in between."""
    began = time.monotonic()
    for _ in steps:
        if time.monotonic() - began > _STEPS_S:
            await asyncio.sleep(0)
            began = time.monotonic()
