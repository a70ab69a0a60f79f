"""A copy of what nftlb has, and the requests that change both.

The copy (``present``) saves reading what is known; after an answer that leaves doubt everything is read.
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Iterator, Mapping
from typing import TypeVar

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.engine.base import TAKEN
from kube_nftlb.agent.engine.nftlb.sessions import Remembered, SessionReader, Sessions
from kube_nftlb.agent.engine.nftlb.suspects import Suspects
from kube_nftlb.agent.engine.nftlb.translate import KEEPER
from kube_nftlb.agent.engine.sent import SentFarms
from kube_nftlb.agent.model import SentFarm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.values import Protocol
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.nftlb import layout, objects
from kube_nftlb.nftlb.client import SILENT_AFTER_S, TIMEOUT_S, NftlbClient
from kube_nftlb.nftlb.requests import PutFarm, Request, Step, after, request, restarts

BATCH = 16
"""New farms per request: each is a transaction of its own all the same, so more would only make others wait longer."""
_PATIENCE_PER_FARM_S = 0.01
"""Additional time in seconds for nftlb's answer, for each farm that it has: its transactions read all."""
_PATIENCE_PER_BYTE_S = 0.0001
"""The same, for each byte of the request."""
_PATIENCE_PER_BACKEND_S = 0.005
"""The same, for each backend of the farms that it rewrites."""

_PROTOCOLS: dict[str, Protocol] = {"tcp": "TCP", "udp": "UDP", "sctp": "SCTP", "all": "All"}

_T = TypeVar("_T")

_log = structlog.get_logger()


class Mirror:
    """One node's nftlb, as far as its HTTP API tells."""

    def __init__(
        self,
        client: NftlbClient,
        reader: SessionReader,
        nft: Nftables,
        suspects: Suspects,
        on_end: Callable[[], None],
    ) -> None:
        """``on_end`` is called when nftlb ended over a request, before anything is read from the next one."""
        self._client = client
        self._suspects = suspects
        self._on_end = on_end
        self._nft = nft
        self.present: dict[str, objects.Farm] = {}
        self.sent = SentFarms()
        self.sessions = Sessions(self.present, reader, nft)
        self._unrestored: dict[str, Remembered] = {}
        """The sessions that a change was to keep which nftlb has not answered."""

    async def sync(self, known: Mapping[str, objects.Farm] | None = None) -> None:
        """Read what nftlb has; what it never returns is as it was, or of ``known``. Raises NftlbUnreachableError."""
        known = self.present if known is None else known
        read = objects.recalled(await self._watched(self._client.farms(), TIMEOUT_S), known)
        self.present.clear()
        self.sent.clear()
        for name, farm in read.items():
            self._set(name, farm)

    def locate(self, targets: Mapping[str, objects.Farm | None]) -> None:
        """Note on which interfaces nftlb has the addresses of these farms, which an agent that starts cannot read.

        Otherwise nobody would miss listeners there, and nftlb would start without them the next time.
        """
        for name, target in targets.items():
            if target is not None and (farm := self.present.get(name)) is not None:
                located = objects.located(farm, target)
                if located is not farm:
                    self._set(name, located)

    def restarted(self) -> bool:
        """Return True if nftlb has been restarted, so that ``present`` is what another process had."""
        return self._client.restarted()

    async def ping(self) -> None:
        """Check that nftlb answers. Raises NftlbUnreachableError."""
        with contextlib.suppress(errors.NftlbError):
            # It has no lighter request than one for a farm that does not exist, which it refuses.
            await self._watched(self._client.send(Request("GET", "/farms/-")))

    async def _change(self, request: Request, names: Collection[str]) -> None:
        """Send a request that changes these farms; without names it makes nftlb rewrite all."""
        self._suspects.sending(names)
        rewritten = sum(len(self.present[name].backends) for name in names or self.present if name in self.present)
        patience_s = (
            _PATIENCE_PER_FARM_S * len(self.present)
            + _PATIENCE_PER_BACKEND_S * rewritten
            + _PATIENCE_PER_BYTE_S * len(request.body)
        )
        await self._watched(self._client.change(request), SILENT_AFTER_S + patience_s)

    async def _watched(self, asking: Awaitable[_T], patience_s: float = SILENT_AFTER_S) -> _T:
        """Return nftlb's answer, and note if it ends instead: later, of a request that it hangs over."""
        self._client.patience_s = patience_s
        try:
            answer = await asking
        except errors.NftlbEndedError as error:
            if ended := self._suspects.ended():
                _log.warning("nftlb ended over a request", farms=sorted(ended), error=str(error))
                self._on_end()
            raise
        except errors.NftlbHangsError:
            raise
        except errors.KubeNftlbError:
            self._suspects.answered()
            raise
        self._suspects.answered()
        return answer

    async def send_steps(self, steps: Iterable[Step]) -> dict[str, str]:
        """Carry out steps in their order. Return what failed, by the farm's name. Raises NftlbUnreachableError.

        After a failure everything is read anew, and the failed farm's further steps are left out.
        """
        sessions: dict[str, Remembered] = {}
        with self._restoring_later(sessions):
            failed = await self._carry_out(steps, sessions)
            await self._restore(sessions)
        return failed

    async def _carry_out(self, steps: Iterable[Step], sessions: dict[str, Remembered]) -> dict[str, str]:
        """Carry out steps, and add to ``sessions`` those that must be restored then. Return what failed."""
        failed: dict[str, str] = {}
        for batch in _batches(steps, alone=self._suspects):
            failed.update({step.name: TAKEN for step in batch if step.name not in failed and self._is_taken(step)})
            if remaining := [step for step in batch if step.name not in failed]:
                failed.update(await self._attempt(remaining, sessions))
        return failed

    def _is_taken(self, step: Step) -> bool:
        """Return True if another farm has what a step adds: the step that was to free it has failed."""
        return isinstance(step, PutFarm) and bool(self.sent.owners(set(listeners(step.farm))) - {step.name})

    @contextlib.contextmanager
    def _restoring_later(self, sessions: Mapping[str, Remembered]) -> Iterator[None]:
        try:
            yield
        except errors.KubeNftlbError:
            self._unrestored |= sessions
            raise

    async def _restore(self, sessions: Mapping[str, Remembered]) -> None:
        for name, remembered in sessions.items():
            await self.sessions.restore(name, remembered)

    async def restore_sessions(self) -> None:
        """Restore what a change that was not answered was to keep, once nftlb was read again."""
        sessions, self._unrestored = self._unrestored, {}
        try:
            await self._restore(sessions)
        except errors.KernelError as error:
            _log.warning("cannot restore sessions", farms=len(sessions), error=str(error))

    def forget_sessions(self) -> None:
        """Note that nftlb was restarted, so that a mark may be another backend's."""
        self._unrestored = {}

    async def _attempt(self, batch: list[Step], sessions: dict[str, Remembered]) -> dict[str, str]:
        try:
            await self._send(batch, sessions)
        except errors.NftlbError as error:
            await self.sync()
            if len(batch) == 1:
                return {batch[0].name: str(error)}
            failed: dict[str, str] = {}
            for step in batch:
                failed |= await self.send_steps([step])
            return failed
        return {}

    async def _send(self, batch: list[Step], sessions: dict[str, Remembered]) -> None:
        farms = {step.name: self.present.get(step.name) for step in batch}
        restarted = {step.name for step in batch if restarts(farms[step.name], step)}
        for step in batch:
            farms[step.name] = after(farms[step.name], step)
        asked = request(*batch)
        for name in restarted - sessions.keys():
            sessions[name] = await self.sessions.remembered(name)
        await self._change(asked, farms.keys())
        for name, farm in farms.items():
            self._set(name, farm)
        for name in farms:
            # At once: what nftlb has left in the map is in the way of what it adds next.
            await self.sessions.settle(name)

    def _set(self, name: str, farm: objects.Farm | None) -> None:
        self.present.pop(name, None)
        self.sent.remove(name)
        if farm is not None:
            self.present[name] = farm
            if name != KEEPER:
                self.sent.put(name, as_sent(farm))

    async def rebuild(self) -> None:
        """Make nftlb write all its rules anew; sessions are kept."""
        sessions = {name: await self.sessions.remembered(name) for name in self.present}
        with self._restoring_later(sessions):
            await self._rebuild()
            await self._restore(sessions)

    async def _rebuild(self) -> None:
        """Rebuild without the sessions that packets made.

        Without its table a farm with addresses cannot be loaded; nftlb then recovers by loading everything from memory.
        """
        for family in layout.FAMILIES:
            await self._nft.run(f"table {family} {layout.TABLE} {{}}\ndelete table {family} {layout.TABLE}\n")
        # One that nftlb has no rules of in these tables would be loaded as it is.
        if farm := next((farm for farm in self.present.values() if layout.expected(farm).listeners), None):
            await self._change(request(PutFarm(objects.Farm(farm.name, {}, farm.addresses))), ())
        for name in self.present:
            await self.sessions.settle(name)

    async def reload(self, name: str) -> None:
        """Make nftlb write one farm's rules anew, by putting it down and up; its open connections survive."""
        sessions = {name: await self.sessions.remembered(name)}
        with self._restoring_later(sessions):
            for part in _anew(self.present.get(name), name):
                await self._change(request(PutFarm(part)), {name})
            await self.sessions.settle(name)
            await self._restore(sessions)


def _anew(present: objects.Farm | None, name: str) -> Iterator[objects.Farm]:
    """Yield what to send one after another to have a farm's rules written anew."""
    yield objects.Farm(name, {"state": "down"})
    if present is not None and present.ingress:
        # nftlb may have started without their interfaces, and looks for them only as it reads an address.
        outlet = {key: value for key, value in present.options.items() if key == "oface"}
        yield objects.Farm(name, outlet, present.addresses)
    yield objects.Farm(name, {"state": "up"})


def as_sent(farm: objects.Farm) -> SentFarm:
    """Return what nftlb has of a farm, in no engine's words."""
    return SentFarm(
        "nftlb",
        frozenset(listeners(farm)),
        len(farm.backends),
        sum(backend.state == "up" for backend in farm.backends.values()),
        answers_itself=farm.options.get("mode") == "local",
    )


def listeners(farm: objects.Farm) -> Iterator[Listener]:
    """Yield everything that a farm listens on in nftlb."""
    return (Listener(port.ip, _PROTOCOLS[port.protocol], port.port) for port in farm.bound_ports())


def _batches(steps: Iterable[Step], alone: Container[str]) -> Iterator[list[Step]]:
    """Yield neighbouring PutFarm steps together, up to BATCH; others, and those of farms that go ``alone``, alone."""
    batch: list[Step] = []
    for step in steps:
        joins = isinstance(step, PutFarm) and step.name not in alone
        if not joins or len(batch) == BATCH:
            if batch:
                yield batch
            batch = []
        if joins:
            batch.append(step)
        else:
            yield [step]
    if batch:
        yield batch
