"""Have the nodes program the Pods that wait for the readiness gate, and set its condition once they have."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import attrgetter

import structlog

from kube_nftlb import errors, metrics, names
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.backoff import Backoff
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.events import Events, Lasting, Subject
from kube_nftlb.kube.resources import PODS
from kube_nftlb.kube.workqueue import WorkQueue
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.model.gated_pods import EVENT_PART, GatedPod, slim
from kube_nftlb.operator.model.pods import PodKey
from kube_nftlb.operator.readiness.decide import Awaited, Nodes, Verdict, decide
from kube_nftlb.operator.readiness.gated_ips import counting_nodes, is_listed_as_wanted
from kube_nftlb.operator.readiness.senders import Sender

_PAUSE_S = 0.05
"""The minimum time between two looks at all that wait: nodes report in bursts."""
_ASK_AGAIN_S = 10.0
"""Time in seconds after which a Service is reconciled again whose farms still do not list what they are to."""
_UNSERVED_S = 1.0
"""Time in seconds that a Pod waits before it counts as one of no Service: its Service may be seen after it."""
_RETRY_S = 1.0
_REFUSED_RETRY_S = 60.0

_log = structlog.get_logger()


class ReadinessGateController:
    """Sets the readiness gate's condition of Pods. Namespaces take turns. ``clock`` returns seconds, ``now`` the date.

    ``reconcile`` queues what of a Service is to list other IPs: its farms, and those of routes to it. After
    ``tell_after_s`` seconds an Event tells what a Pod waits for.
    """

    def __init__(
        self,
        kube: Kube,
        ingest: Ingest,
        events: Events,
        clock: Callable[[], float],
        reconcile: Callable[[ServiceKey], None],
        tell_after_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kube = kube
        self._ingest = ingest
        self._cache = ingest.cache
        self._events = events
        self._clock = clock
        self._reconcile = reconcile
        self._tell_after_s = tell_after_s
        self._now = now
        self._wake = asyncio.Event()
        self._nodes = Nodes.of(())
        self._checks: WorkQueue[PodKey] = WorkQueue(clock, group=attrgetter("namespace"))
        self._lists: WorkQueue[ServiceKey] = WorkQueue(clock, group=attrgetter("namespace"))
        self._writes: WorkQueue[PodKey] = WorkQueue(clock, group=attrgetter("namespace"))
        self._awaited: dict[PodKey, Mapping[Sender, Awaited]] = {}
        self._since: dict[PodKey, float] = {}
        self._uids: dict[PodKey, str] = {}
        """Of the Pods that these are about."""
        self._asked_at: dict[PodKey, float] = {}
        self._withdrawn_at: dict[ServiceKey, float] = {}
        self._backoff: Backoff[PodKey] = Backoff()
        self._verdicts: dict[PodKey, tuple[str, Verdict]] = {}
        """What is to be written, and the UID of the Pod that it was decided for."""

    def wake(self) -> None:
        """Look again: something of the cache may have changed."""
        self._wake.set()

    async def look(self) -> None:
        """Queue all Pods whose turn it is whenever something has changed, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            gates = self._cache.gates
            if namespaces := gates.namespaces():
                self._nodes = Nodes.of(counting_nodes(self._cache))
            for namespace in namespaces:
                self._checks.add_all(gates.turn(namespace))
            for key in [key for key in self._since if not self._waits(key)]:
                self._forget(key)
            listing = set(self._cache.farm_index.listing.keys())
            self._lists.add_all(listing)
            if self._withdrawn_at:
                self._withdrawn_at = {key: at for key, at in self._withdrawn_at.items() if key in listing}
            await asyncio.sleep(_PAUSE_S)

    async def withdraw(self) -> None:
        """Have Services reconciled for which farms list other Pods than they are to, until cancelled."""
        while True:
            service = await self._lists.get()
            began = self._clock()
            try:
                if is_listed_as_wanted(self._cache, service):
                    self._withdrawn_at.pop(service, None)
                elif began - self._withdrawn_at.get(service, float("-inf")) >= _ASK_AGAIN_S:
                    self._withdrawn_at[service] = began
                    self._lists.remind(service, _ASK_AGAIN_S)
                    self._reconcile(service)
            finally:
                self._lists.done(service)
            await asyncio.sleep(self._clock() - began)

    async def check(self) -> None:
        """Decide on the queued Pods until cancelled."""
        while True:
            key = await self._checks.get()
            began = self._clock()
            try:
                self._check(key)
            except Exception:
                # A defect with one Pod must not stop the others.
                _log.exception("cannot decide on readiness gate", namespace=key.namespace, pod=key.name)
            finally:
                self._checks.done(key)
            # However many wait, half of the time is for others.
            await asyncio.sleep(self._clock() - began)

    async def write(self) -> None:
        """Write conditions until cancelled."""
        await self._writes.work("readiness gate", self._write_verdict)

    def _check(self, key: PodKey) -> None:
        pod = self._cache.gates.pods.get(key)
        if pod is None or not pod.waits:
            return
        now = self._clock()
        self._know(key, pod)
        verdict = decide(key, pod, self._cache, self._nodes, self._awaited.get(key))
        self._awaited[key] = verdict.awaited
        if verdict.unlisted and now - self._asked_at.get(key, float("-inf")) >= _ASK_AGAIN_S:
            # Not with each look: the API server may refuse the farm each time.
            self._asked_at[key] = now
            self._checks.remind(key, _ASK_AGAIN_S)
            for service in verdict.unlisted:
                self._reconcile(service)
        if verdict.reason == "NotServed" and now - self._since[key] < _UNSERVED_S:
            self._wait_for_service(key)
        elif verdict.programmed:
            if key not in self._verdicts:
                self._verdicts[key] = pod.uid, verdict
                self._writes.add(key)
        elif now - self._since[key] >= self._tell_after_s:
            self._events.report(_subject(key, pod), [Lasting("ReadinessGatePending", verdict.message)], EVENT_PART)
            if self._cache.gates.defer(key):
                self._begin(key)

    def _know(self, key: PodKey, pod: GatedPod) -> None:
        if self._uids.get(key) == pod.uid:
            return
        # Another one may have had its name, and the watch has missed that there was none for a while.
        self._forget(key)
        self._uids[key] = pod.uid
        self._begin(key)

    def _wait_for_service(self, key: PodKey) -> None:
        self._checks.remind(key, _UNSERVED_S)
        if self._cache.gates.defer(key):
            self.wake()

    def _begin(self, key: PodKey) -> None:
        self._since[key] = self._clock()
        self._checks.remind(key, self._tell_after_s)

    async def _write_verdict(self, key: PodKey) -> float | None:
        if (retry_s := await self._write(key)) is None:
            self._verdicts.pop(key, None)
            self._backoff.forget(key)
        return retry_s

    async def _write(self, key: PodKey) -> float | None:
        """Set the condition of a Pod; return the seconds until a retry, or None if all is done."""
        pod = self._cache.gates.pods.get(key)
        uid, verdict = self._verdicts.get(key, ("", None))
        if pod is None or verdict is None or not pod.waits:
            return None
        if pod.uid != uid:
            # Another one has its name, and waits for a verdict of its own.
            self.wake()
            return None
        condition = {
            "type": names.READINESS_GATE,
            "status": "True",
            "reason": verdict.reason,
            "message": verdict.message,
            "lastTransitionTime": timestamps.seconds(self._now()),
        }
        metadata = {"namespace": key.namespace, "name": key.name, "uid": pod.uid}
        body = {"metadata": metadata, "status": {"conditions": [condition]}}
        try:
            answer = await self._kube.apply(PODS, body, field_manager=names.FIELD_MANAGER_STATUS, subresource="status")
        except errors.NotFoundError:
            return None
        except errors.ConflictError:
            # Another one has its name, which the watch is about to deliver, or others write to it without a pause.
            return _RETRY_S
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            _log.warning("cannot set readiness gate, retrying", namespace=key.namespace, pod=key.name, error=str(error))
            refused = isinstance(error, errors.KubeError) and error.is_refusal
            return _REFUSED_RETRY_S if refused else self._backoff.failed(key)
        if (since := self._since.get(key)) is not None:
            metrics.READINESS_GATE_SECONDS.observe(self._clock() - since)
        if (slimmed := slim(answer)) is not None:
            self._ingest.put_gated_pod(slimmed)
        self._forget(key)
        # The next one has its turn.
        self.wake()
        return None

    def _waits(self, key: PodKey) -> bool:
        pod = self._cache.gates.pods.get(key)
        return pod is not None and pod.waits

    def _forget(self, key: PodKey) -> None:
        self._awaited.pop(key, None)
        self._since.pop(key, None)
        self._uids.pop(key, None)
        self._asked_at.pop(key, None)
        self._verdicts.pop(key, None)
        if (pod := self._cache.gates.pods.get(key)) is not None:
            self._events.report(_subject(key, pod), [], EVENT_PART)


def _subject(key: PodKey, pod: GatedPod) -> Subject:
    return Subject(PODS, *key, pod.uid)
