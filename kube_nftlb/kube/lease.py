"""Hold the Lease (coordination.k8s.io) that makes one replica of the operator the leader.

Not kubernetes.aio.leaderelection (37.0.2): it has no timeout around a renewal, so a leader whose API server hangs
leads beyond its deadline; a refused connection ends it; it measures by the wall clock, does not release the Lease on
exit, and polls it where this watches.
"""

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from kube_nftlb import errors
from kube_nftlb.kube import leader_election
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.leader_election import NO_LEASE, RENEW_DEADLINE_S, RETRY_S, Record, Seen
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import LEASES, JsonObject

_ATTEMPT_S = RENEW_DEADLINE_S / 2
_RELEASE_S = 2.0

_log = structlog.get_logger()


def _clocks() -> tuple[float, ...]:
    """Return the seconds of clocks that go on while this process, or its machine, stands still."""
    return time.clock_gettime(time.CLOCK_BOOTTIME), time.time()


def new_identity() -> str:
    """Return an identity for this process: the pod's name and a random suffix."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class Lease:
    """One replica in the election. ``clock`` returns monotonic seconds."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        clock: Callable[[], float],
        identity: str,
        clocks: Callable[[], tuple[float, ...]] = _clocks,
    ) -> None:
        """``clocks`` returns the seconds of those that go on while this process stands still."""
        self.leading = asyncio.Event()
        """Set while this replica is the leader."""
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._me = identity
        self._clocks = clocks
        self._written_at = clocks()
        self._seen = Seen(NO_LEASE, clock())
        self._known = False
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Acquire the Lease, then renew it. Raises LeaseLostError when it is lost, and RestoredError if etcd was.

        The watch never ends by itself.
        """
        watch, acquisition = asyncio.create_task(self._watch()), asyncio.create_task(self._acquire())
        try:
            await asyncio.wait([watch, acquisition], return_when=asyncio.FIRST_COMPLETED)
            # Without news nobody would ever acquire it.
            await (acquisition if acquisition.done() else watch)
        finally:
            for task in (watch, acquisition):
                task.cancel()
            await asyncio.gather(watch, acquisition, return_exceptions=True)
        self.leading.set()
        _log.info("became the leader", identity=self._me)
        try:
            await self._keep()
        finally:
            self.leading.clear()

    @property
    def is_certain(self) -> bool:
        """Return whether a leader leads for certain: another may if this one stood still for long. For any thread."""
        return max(now - at for now, at in zip(self._clocks(), self._written_at, strict=True)) < RENEW_DEADLINE_S

    async def release(self) -> None:
        """Release the Lease if this replica holds it. A failure is ignored: the Lease expires."""
        if self._seen.record.holder != self._me:
            return
        with contextlib.suppress(errors.KubeError, errors.KubeUnreachableError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                await self._write(leader_election.released(self._seen.record, datetime.now(UTC)))
                _log.info("lease released", identity=self._me)

    async def _acquire(self) -> None:
        while True:
            self._news.clear()
            patience_s = leader_election.wait_s(self._seen, self._clock(), self._me) if self._known else RETRY_S
            if self._known and patience_s <= 0:
                try:
                    async with asyncio.timeout(_ATTEMPT_S):
                        await self._write(leader_election.acquisition(self._seen.record, datetime.now(UTC), self._me))
                except errors.ConflictError:
                    # Another replica was faster; the watch will deliver its record.
                    patience_s = RETRY_S
                except (errors.KubeError, errors.KubeUnreachableError, TimeoutError) as error:
                    _log.warning("cannot acquire lease, retrying", lease=self._name, error=str(error) or repr(error))
                    patience_s = RETRY_S
                else:
                    return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._news.wait()

    async def _keep(self) -> None:
        renewed_at = self._clock()
        while True:
            await asyncio.sleep(RETRY_S)
            began_at = self._clock()
            try:
                async with asyncio.timeout(min(_ATTEMPT_S, renewed_at + RENEW_DEADLINE_S - began_at)):
                    await self._renew()
                renewed_at = began_at
            except (errors.KubeError, errors.KubeUnreachableError, TimeoutError) as error:
                _log.warning("cannot renew lease, retrying", lease=self._name, error=str(error) or repr(error))
            if self._seen.record.holder != self._me:
                raise errors.LeaseLostError(
                    f"the lease {self._namespace}/{self._name} was taken by {self._seen.record.holder!r}"
                )
            if self._clock() - renewed_at >= RENEW_DEADLINE_S:
                raise errors.LeaseLostError(
                    f"the lease {self._namespace}/{self._name} could not be renewed for {RENEW_DEADLINE_S:.0f} s"
                )

    async def _renew(self) -> None:
        try:
            await self._write(leader_election.acquisition(self._seen.record, datetime.now(UTC), self._me))
        except (errors.ConflictError, errors.NotFoundError):
            # Changed or deleted by someone else: its current state decides.
            try:
                raw = await self._kube.get(LEASES, self._name, self._namespace)
            except errors.NotFoundError:
                self._see(NO_LEASE._replace(holder=self._me))
            else:
                self._see(leader_election.parse(raw))
            if self._seen.record.holder == self._me:
                await self._write(leader_election.acquisition(self._seen.record, datetime.now(UTC), self._me))

    async def _write(self, spec: JsonObject) -> None:
        version, began_at = self._seen.record.version, self._clocks()
        if version:
            # The API server rejects a patch with an outdated resourceVersion.
            body = {"metadata": {"resourceVersion": version}, "spec": spec}
            raw = await self._kube.patch(LEASES, self._name, body, self._namespace)
        else:
            raw = await self._kube.create(LEASES, {"metadata": {"name": self._name}, "spec": spec}, self._namespace)
        self._written_at = began_at
        self._see(leader_election.parse(raw))

    async def _watch(self) -> None:
        def update(raw: JsonObject | None) -> None:
            self._see(leader_election.parse(raw) if raw is not None else NO_LEASE)

        selector = f"metadata.name={self._name}"
        handlers = Handlers.for_one(update)
        await list_and_watch(self._kube, LEASES, handlers, namespace=self._namespace, field_selector=selector)

    def _see(self, record: Record) -> None:
        if record != self._seen.record or not self._known:
            self._known = True
            self._seen = Seen(record, self._clock())
            self._news.set()
