"""Give Gateways cluster IPs: create, find and delete the IPAddresses that ``addresses.cluster_ips`` decides on."""

import contextlib
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

import structlog

from kube_nftlb import errors
from kube_nftlb.api.address_ranges import Ip
from kube_nftlb.api.base import Family
from kube_nftlb.kube.backoff import Backoff
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import IP_ADDRESSES
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.addresses.cluster_ips import ClusterState, Decision, Facts, decide, seed_of
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ip_addresses import IPAddresses, manifest, parse
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.wanted import ClusterRequest

_LOOK_S = 5.0
"""The interval in which a Gateway that lacks an address is looked at again."""
_TAKEN_S = 60.0
"""How long it is remembered that somebody has an address who is no Service."""
_SERVED_S = 0.2
"""The interval in which an address to be freed is looked at, while a farm has it."""
_REFUSED_RETRY_S = 60.0
_ROUNDS = 16

_log = structlog.get_logger()


class Wanted(NamedTuple):
    """What a Gateway wants."""

    uid: str
    request: ClusterRequest


class _TryLaterError(Exception):
    """An IPAddress cannot be created: ``problem`` says why, in ``retry_s`` it may be tried again."""

    def __init__(self, problem: str, retry_s: float) -> None:
        super().__init__(problem)
        self.problem = problem
        self.retry_s = retry_s


class ClusterIPs:
    """The queue of Gateways, for one worker: so what a namespace has is counted. ``clock`` returns seconds.

    Nothing is deleted before ``replace``: until then what is wanted is not known.
    """

    def __init__(
        self, kube: Kube, cache: Cache, addresses: IPAddresses, clock: Callable[[], float], namespace_max: int
    ) -> None:
        """``namespace_max`` is the number of cluster IPs that the Gateways of a namespace may have."""
        self.on_change: Callable[[ObjectKey], None] = lambda _: None
        """Gets each Gateway for which ``state`` returns something else."""
        self.unavailable: Callable[[], str | None] = lambda: None
        """Returns why the cluster has no IPAddresses, as a sentence; None if it has."""
        self._kube = kube
        self._cache = cache
        self._addresses = addresses
        self._clock = clock
        self._namespace_max = namespace_max
        self._wanted: dict[ObjectKey, Wanted] = {}
        self._states: dict[ObjectKey, ClusterState] = {}
        self._taken: dict[Ip, float] = {}
        """Addresses that somebody else was found to have, and until when that counts."""
        self._full: dict[Family, float] = {}
        """Families of which no address was free, and until when that counts."""
        self._settled = False
        self._queue: WorkQueue[ObjectKey] = WorkQueue(clock, group=attrgetter("namespace"))
        self._backoff: Backoff[ObjectKey] = Backoff()

    def want(self, key: ObjectKey, wanted: Wanted | None) -> None:
        """Take what a Gateway wants; None: nothing any more."""
        if wanted == self._wanted.get(key):
            return
        if wanted is not None:
            self._wanted[key] = wanted
        else:
            self._wanted.pop(key, None)
            self._states.pop(key, None)
        self._queue.add(key)

    def replace(self, keys: Iterable[ObjectKey]) -> None:
        """Take the Gateways that want any: from now on those of others go."""
        for key in self._wanted.keys() - set(keys):
            self.want(key, None)
        self._settled = True
        self._queue.add_all(self._addresses.gateways())

    def seen(self, keys: Iterable[ObjectKey]) -> None:
        """Look again at Gateways whose IPAddresses have changed."""
        # Before that nobody takes them, as in a replica that stands by; ``replace`` looks at all.
        if self._settled:
            self._queue.add_all(list(keys))

    def state(self, key: ObjectKey) -> ClusterState | None:
        """Return what a Gateway has: until that is decided, what is reserved for it; None: nothing is yet.

        A new leader must not take from clients what they have.
        """
        if (decided := self._states.get(key)) is not None:
            return decided
        return ClusterState(ips) if (ips := self.has(key)) else None

    def has(self, key: ObjectKey) -> tuple[Ip, ...]:
        """Return the addresses that are reserved for a Gateway."""
        return tuple(held.ip for held in self._addresses.of(key))

    async def work(self) -> None:
        """Write IPAddresses until cancelled."""
        await self._queue.work("IPAddresses of Gateway", self._reconcile_or_retry)

    async def _reconcile_or_retry(self, key: ObjectKey) -> float | None:
        try:
            return await self._reconcile(key)
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            where = {"namespace": key.namespace, "gateway": key.name}
            _log.warning("cannot write IPAddresses of Gateway, retrying", **where, error=str(error))
            return self._backoff.failed(key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        """Write the IPAddresses of a Gateway; return the seconds until a retry, or None if all is done."""
        retry_s: float | None = None
        state = ClusterState()
        if (wanted := self._wanted.get(key)) is not None:
            try:
                state = await self._take_all(key, wanted)
                retry_s = _LOOK_S if state.problem else None
            except _TryLaterError as error:
                state, retry_s = ClusterState(self.has(key), error.problem), error.retry_s
            if self._wanted.get(key) != wanted:
                return 0
            if self._states.get(key) != state:
                self._states[key] = state
                self.on_change(key)
        freed = await self._free(key, state.ips) if self._settled else True
        self._backoff.forget(key)
        return retry_s if freed else _SERVED_S

    async def _take_all(self, key: ObjectKey, wanted: Wanted) -> ClusterState:
        """Create what a Gateway lacks, and return what it has. Raises _TryLaterError."""
        if (why := self.unavailable()) is not None and not wanted.request.only_kept:
            raise _TryLaterError(why, _LOOK_S)
        for _ in range(_ROUNDS):
            decision = self._decide(key, wanted)
            if not decision.takes:
                return ClusterState(decision.ips, decision.problem, decision.unasked)
            for ip in decision.takes:
                await self._take(key, ip)
        # Many others take addresses meanwhile.
        raise _TryLaterError("all addresses that were tried are taken meanwhile, trying others", _SERVED_S)

    def _decide(self, key: ObjectKey, wanted: Wanted) -> Decision:
        now, reserved = self._clock(), self._cache.reserved
        while self._taken and self._taken[first := next(iter(self._taken))] <= now:
            del self._taken[first]
        before = self._states.get(key, ClusterState()).ips
        held = sorted(self.has(key), key=lambda ip: ip not in before)

        def is_taken(ip: Ip) -> bool:
            ours = self._addresses.get(ip)
            is_other = ours is not None and ours.gateway != key
            return is_other or ip in self._taken or reserved.service_at(str(ip)) is not None

        has = self._addresses.of_namespace(key.namespace)
        facts = Facts(
            tuple(reserved.assignable()),
            is_taken,
            len(self._addresses) + len(self._taken) + reserved.cluster_ips,
            self._namespace_max - has,
            self._namespace_max,
            frozenset(family for family, until in self._full.items() if until > now),
        )
        decision = decide(wanted.request, seed_of(wanted.uid), held, before, facts)
        self._full.update(dict.fromkeys(decision.full - facts.full, now + _LOOK_S))
        return decision

    async def _take(self, key: ObjectKey, ip: Ip) -> None:
        """Create an IPAddress; if somebody else has it, note that. Raises _TryLaterError."""
        try:
            raw = await self._kube.create(IP_ADDRESSES, manifest(ip, key))
        except errors.ConflictError:
            try:
                raw = await self._kube.get(IP_ADDRESSES, str(ip))
            except errors.NotFoundError:
                return
            if (found := parse(raw)) is None or found.gateway != key or raw["metadata"].get("deletionTimestamp"):
                self._taken.pop(ip, None)
                self._taken[ip] = self._clock() + _TAKEN_S
                return
        except errors.KubeError as error:
            if error.status in (403, 404, 422):
                raise _TryLaterError(f"the API server refuses an IPAddress: {error}", _REFUSED_RETRY_S) from error
            raise
        self._addresses.put(raw)

    async def _free(self, key: ObjectKey, keeps: Iterable[Ip]) -> bool:
        """Delete the IPAddresses of a Gateway but those that it keeps; return False if farms have some of them still.

        Until then the address of a Service could be theirs.
        """
        freed = True
        for held in self._addresses.of(key):
            if held.ip in keeps:
                continue
            if self._cache.farm_index.inside.get(str(held.ip)):
                freed = False
                continue
            # It may be gone, or another one may have its name: the watch says so.
            with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
                await self._kube.delete(IP_ADDRESSES, str(held.ip), uid=held.uid)
            self._addresses.remove(held.ip, held.version)
        return freed
