"""Write the statuses of the objects of Gateway API: our part of them, when it changes."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from operator import attrgetter

import structlog

from kube_nftlb import errors, names
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.backoff import Backoff
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Lasting, Subject
from kube_nftlb.kube.resources import GATEWAY_CLASSES, GATEWAYS, LISTENER_SETS, JsonObject
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.gateway_store import GatewayStore, Ref, ref_of_route
from kube_nftlb.operator.gateway.merge import merge_class, merge_gateway, merge_released, merge_route
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.status import released_set
from kube_nftlb.operator.gateway.wanted import (
    ClassStatus,
    GatewayPlan,
    GatewayStatus,
    ParentStatus,
    ReleasedStatus,
    WantedCondition,
)
from kube_nftlb.operator.sync.status_budget import StatusBudget
from kube_nftlb.reasons import EventReason

_DELAY_S = 0.05
"""The delay of each status: several objects change one after the other."""
_CONFLICT_RETRY_S = 0.2
_REFUSED_RETRY_S = 60.0
_REASONS: dict[str, EventReason] = {"Accepted": "NotAccepted", "ResolvedRefs": "RefsNotResolved"}
"""Reasons of Events, by the condition that is false."""
_ADDRESS_REASONS = ("AddressNotAssigned", "AddressNotUsable")

_Status = ClassStatus | GatewayStatus | ReleasedStatus | tuple[ParentStatus, ...]

_log = structlog.get_logger()


class GatewayStatuses:
    """The queue of objects and its workers. ``clock`` returns seconds, ``now`` the date."""

    def __init__(
        self,
        kube: Kube,
        store: GatewayStore,
        events: Events,
        budget: StatusBudget,
        clock: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kube = kube
        self._store = store
        self._events = events
        self._budget = budget
        self._clock = clock
        self._now = now
        self._queue: WorkQueue[Ref] = WorkQueue(clock, group=attrgetter("namespace"))
        self._wanted: dict[Ref, _Status] = {}
        self._unkept: dict[Ref, tuple[str, _Status, JsonObject]] = {}
        """The uid, what was written, and what is kept of it: a CustomResourceDefinition lacks some."""
        self._backoff: Backoff[Ref] = Backoff()

    def replace(self, plan: GatewayPlan) -> None:
        """Take what was decided about all statuses; of others nothing is wanted any more."""
        self._wanted.clear()
        self.want(plan)

    def want(self, plan: GatewayPlan) -> None:
        """Take what was decided about statuses."""
        for name, of_class in plan.classes.items():
            self._want(Ref(GATEWAY_CLASSES, "", name), of_class)
        for key, status in plan.gateways.items():
            self._want(Ref(GATEWAYS, *key), status)
        for key, status in plan.listener_sets.items():
            self._want(Ref(LISTENER_SETS, *key), status or self._released_set(key))
        for key, released in plan.released.items():
            self._want(Ref(GATEWAYS, *key), released)
        for route, parents in plan.routes.items():
            self._want(ref_of_route(route), parents)

    def seen(self, ref: Ref) -> None:
        """Look again at an object that has changed: somebody may have written its status."""
        if ref in self._wanted:
            self._queue.add(ref, _DELAY_S)

    async def work(self) -> None:
        """Write statuses until cancelled."""
        await self._queue.work("status of Gateway API", self._write, self._until_budget)

    def _want(self, ref: Ref, status: _Status | None) -> None:
        if status is None or ref not in self._store.written:
            self._wanted.pop(ref, None)
            return
        if self._wanted.get(ref) != status:
            self._wanted[ref] = status
            self._queue.add(ref, _DELAY_S)

    def _released_set(self, key: ObjectKey) -> ReleasedStatus | None:
        """Return what to take back from a ListenerSet without a Gateway of ours; None if it has nothing of us."""
        before, known = self._wanted.get(Ref(LISTENER_SETS, *key)), self._store.objects.listener_sets.get(key)
        if known is not None and isinstance(before, GatewayStatus):
            return released_set(before, known.metadata.generation)
        return before if isinstance(before, ReleasedStatus) else None

    async def _until_budget(self) -> None:
        if (wait_s := self._budget.wait_s(self._clock())) > 0:
            await asyncio.sleep(wait_s)

    async def _write(self, ref: Ref) -> float | None:
        """Write a status if it differs; return the seconds until a retry, or None if all is done."""
        wanted, known = self._wanted.get(ref), self._store.written.get(ref)
        if wanted is None or known is None:
            self._wanted.pop(ref, None)
            self._unkept.pop(ref, None)
            self._backoff.forget(ref)
            return None
        self._events.report(Subject(ref.resource, ref.namespace, ref.name, known.uid), _findings(wanted))
        now = timestamps.seconds(self._now())
        merged = _merged(known.status, wanted, now)
        if merged is None or self._unkept.get(ref) == (known.uid, wanted, known.status):
            self._forget_released(ref, wanted)
            return None
        began = self._clock()
        self._budget.take(began)
        try:
            answer = await self._kube.patch(
                ref.resource,
                ref.name,
                {"metadata": {"uid": known.uid, "resourceVersion": str(known.version)}, "status": merged},
                ref.namespace or None,
                subresource="status",
                field_manager=names.FIELD_MANAGER_STATUS,
            )
        except errors.NotFoundError:
            return None
        except errors.ConflictError:
            return _CONFLICT_RETRY_S
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return self._failed(ref, error, began)
        self._budget.done(self._clock() - began, self._clock(), overloaded=False)
        self._store.put_answer(ref.resource, answer)
        self._unkept.pop(ref, None)
        if _merged(answer.get("status") or {}, wanted, now) is not None:
            # To write it again and again would not help.
            self._unkept[ref] = known.uid, wanted, answer.get("status") or {}
            _log.warning("the API server does not keep all of a status: update the definitions", kind=ref.resource.kind)
        self._backoff.forget(ref)
        self._forget_released(ref, wanted)
        return None

    def _forget_released(self, ref: Ref, wanted: _Status) -> None:
        """Forget what was taken back: from now on the status is another controller's."""
        if isinstance(wanted, ReleasedStatus) and self._wanted.get(ref) is wanted:
            del self._wanted[ref]

    def _failed(self, ref: Ref, error: errors.KubeError | errors.KubeUnreachableError, began: float) -> float:
        refused = isinstance(error, errors.KubeError) and error.is_refusal
        now = self._clock()
        self._budget.done(now - began, now, overloaded=not refused)
        where = {"kind": ref.resource.kind, "namespace": ref.namespace, "name": ref.name}
        _log.warning("cannot write status, retrying", **where, error=str(error))
        return _REFUSED_RETRY_S if refused else self._backoff.failed(ref)


def _merged(before: JsonObject, wanted: _Status, now: str) -> JsonObject | None:
    if isinstance(wanted, ClassStatus):
        return merge_class(before, wanted, now)
    if isinstance(wanted, GatewayStatus):
        return merge_gateway(before, wanted, now)
    if isinstance(wanted, ReleasedStatus):
        return merge_released(before, wanted, now)
    return merge_route(before, wanted, now)


def _findings(wanted: _Status) -> list[Lasting]:
    """Return what is wrong for Events: what its owner can change, not what is on its way."""
    parts = wanted if isinstance(wanted, tuple) else (wanted,)
    found = [finding for each in parts for condition in each.conditions if (finding := _finding(condition)) is not None]
    return list(dict.fromkeys(found))


def _finding(condition: WantedCondition) -> Lasting | None:
    if condition.status != "False":
        return None
    if condition.type == "Programmed" and condition.reason in _ADDRESS_REASONS:
        return Lasting("AddressNotAssigned", condition.message)
    reason = _REASONS.get(condition.type)
    return Lasting(reason, f"{condition.reason}: {condition.message}") if reason is not None else None
