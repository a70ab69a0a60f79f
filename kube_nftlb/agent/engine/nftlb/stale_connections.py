"""Clean up stale conntrack entries and sessions after a farm changes.

Packets of a flow that conntrack knows do not ask the rules again: without this a UDP client would be sent where its
first packet went for as long as it sends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftlb.sessions import Sessions
from kube_nftlb.netfilter.conntrack import Connections, Destination
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.requests import PutFarm, RemoveAddress, RemoveBackends, RemoveFarm, Step

WATCH_S = 2
"""Stale connections are looked for until this long after a change: one may just have begun."""
_ATTEMPTS_MAX = 5
"""Times that the kernel is asked to forget what it refuses to, once in each pass."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Stale:
    """Everything that steps leave behind, determined before they are carried out.

    ``closed`` are farms that go, with all that they listened on, or with the one address that goes. By the farm's name:
    ``moved`` are marks that lead elsewhere afterwards, because a backend gets another address or port under its name,
    or its mark becomes another's; ``gone`` are the marks of backends that go. ``begun`` are farms that get their first
    backend, or a listener: there may be flows from before that led nowhere.
    """

    closed: list[objects.Farm]
    moved: dict[str, set[int]]
    gone: dict[str, set[int]]
    begun: set[str]


def stale_after(
    steps: Iterable[Step], wanted: Mapping[str, objects.Farm | None], present: Mapping[str, objects.Farm]
) -> Stale:
    """Return what is left behind when these steps bring what is present to what is wanted."""
    left = Stale([], {}, {}, {name for name, farm in wanted.items() if farm and _begins(farm, present.get(name))})
    for step in steps:
        match step:
            case RemoveFarm(name):
                left.closed.append(present[name])
            case RemoveAddress(name, address):
                farm = present[name]
                left.closed.append(replace(farm, addresses={address: farm.addresses[address]}))
            case RemoveBackends(name, backends):
                marks = {present[name].backends[backend].mark for backend in backends}
                taken = {other.mark for other in after.backends.values()} if (after := wanted.get(name)) else set()
                for kind, found in ((left.moved, marks & taken), (left.gone, marks - taken)):
                    if found:
                        kind.setdefault(name, set()).update(found)
            case PutFarm(farm) if farm.name in present and (marks := _moved(farm, present[farm.name])):
                left.moved.setdefault(farm.name, set()).update(marks)
    return left


def _begins(farm: objects.Farm, before: objects.Farm | None) -> bool:
    serves = any(backend.state == "up" for backend in farm.backends.values())
    served = before is not None and any(backend.state == "up" for backend in before.backends.values())
    return serves and (before is None or not served or not farm.addresses.keys() <= before.addresses.keys())


def _moved(farm: objects.Farm, before: objects.Farm) -> set[int]:
    return {
        backend.mark
        for name, backend in farm.backends.items()
        if name in before.backends
        and any(before.backends[name].options.get(key) != backend.options.get(key) for key in ("ip-addr", "port"))
        and backend.options
    }


class Cleaner(Protocol):
    """Cleans up after farms in nftlb."""

    async def forget_farm(self, farm: objects.Farm) -> None:
        """Forget the UDP flows to what a farm listened on; with them clients would be served by it for ever."""

    async def forget_flows(self, name: str, marks: set[int]) -> None:
        """Forget a farm's UDP flows to backends that are now somewhere else."""

    async def forget_untranslated(self, name: str) -> None:
        """Forget UDP flows that a farm's listeners got before they served anybody."""

    async def release(self, name: str, marks: set[int]) -> None:
        """Release UDP flows and sessions of backends that are gone: of ``marks``, and of those that sessions name."""

    async def cut(self, name: str, addresses: frozenset[str]) -> None:
        """End a farm's connections to these addresses, unless a backend is there that gets connections."""


class _Watch(NamedTuple):
    """The cleanup after a farm that changed a moment ago, and when it ends, in seconds."""

    marks: set[int]
    cut: frozenset[str]
    begun: bool
    until: float


_NO_WATCH = _Watch(set(), frozenset(), begun=False, until=0)


class StaleConnections:
    """Cleans up at once, and for a while after."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self._expected: list[Stale] = []
        self._attempts = 0
        """Calls that failed since all was cleaned up."""
        self._watched: dict[str, _Watch] = {}

    def expect(self, stale: Stale) -> None:
        """Note what steps will leave behind, before they are carried out, as they may break off half-way."""
        self._expected.append(stale)

    async def clean(self, cut: Mapping[str, frozenset[str]], now: float) -> None:
        """Clean up after the steps. ``cut`` are addresses whose connections end, by the farm's name.

        Raises KernelError. What the kernel refuses is asked again by the next calls, but not for ever.
        """
        self._attempts += 1
        try:
            await self._clean_expected(cut, now)
        except errors.KernelError:
            if self._attempts >= _ATTEMPTS_MAX:
                _log.warning("stale connections are left: the kernel has refused to forget them too often")
                self._expected.clear()
                self._attempts = 0
            raise
        self._attempts = 0

    async def _clean_expected(self, cut: Mapping[str, frozenset[str]], now: float) -> None:
        names = set(cut)
        for stale in self._expected:
            for farm in stale.closed:
                await self._cleaner.forget_farm(farm)
            for name, marks in stale.moved.items():
                await self._cleaner.forget_flows(name, marks)
            names |= stale.gone.keys() | stale.begun
        for name in names:
            earlier = self._watched.get(name, _NO_WATCH)
            watch = _Watch(
                earlier.marks.union(*(stale.gone.get(name, set()) for stale in self._expected)),
                cut.get(name, frozenset()),
                begun=earlier.begun or any(name in stale.begun for stale in self._expected),
                until=now + WATCH_S,
            )
            self._watched[name] = watch
            await self._clean(name, watch)
        self._expected.clear()

    async def again(self, now: float) -> None:
        """Clean up once more after the farms that changed a moment ago."""
        for name, watch in list(self._watched.items()):
            if now > watch.until:
                del self._watched[name]
            await self._clean(name, watch)

    async def _clean(self, name: str, watch: _Watch) -> None:
        if watch.marks:
            await self._cleaner.release(name, watch.marks)
        if watch.cut:
            await self._cleaner.cut(name, watch.cut)
        if watch.begun:
            await self._cleaner.forget_untranslated(name)


class ConnectionCleaner:
    """Cleans up connections and sessions of the farms that nftlb has (``present``)."""

    def __init__(self, present: Mapping[str, objects.Farm], sessions: Sessions, connections: Connections) -> None:
        self._present = present
        self._sessions = sessions
        self._connections = connections

    async def release(self, name: str, marks: set[int]) -> None:
        """See ``Cleaner``."""
        farm = self._present.get(name)
        if farm is None:
            return
        alive = {backend.mark for backend in farm.backends.values() if backend.state != "down"}
        held = await self._sessions.held(farm) if farm.persistent else {}
        gone = (marks | set(held.values())) - alive
        if not gone:
            return
        if farm.persistent or _has_flows(farm):
            await self._connections.release(_destinations(farm), gone)
        if farm.persistent:
            # Only now: with its mark a connection would have made a session anew.
            await self._sessions.forget(farm, gone)

    async def forget_farm(self, farm: objects.Farm) -> None:
        """See ``Cleaner``."""
        if _has_flows(farm):
            await self._connections.release(_destinations(farm), {backend.mark for backend in farm.backends.values()})

    async def forget_flows(self, name: str, marks: set[int]) -> None:
        """See ``Cleaner``."""
        farm = self._present.get(name)
        if farm is not None and _has_flows(farm):
            await self._connections.release(_destinations(farm), marks)

    async def forget_untranslated(self, name: str) -> None:
        """See ``Cleaner``."""
        farm = self._present.get(name)
        if farm is not None and _has_flows(farm) and farm.options.get("mode") in ("snat", "dnat"):
            await self._connections.forget_untranslated(_destinations(farm))

    async def cut(self, name: str, addresses: frozenset[str]) -> None:
        """See ``Cleaner``."""
        farm = self._present.get(name)
        if farm is not None:
            in_use = {backend.options["ip-addr"] for backend in farm.backends.values() if backend.state != "down"}
            await self._connections.cut(_destinations(farm), addresses - in_use)


def _destinations(farm: objects.Farm) -> list[Destination]:
    return [
        Destination(port.ip, protocol, port.port)
        for port in farm.bound_ports()
        for protocol in objects.PROTOCOLS[port.protocol]
    ]


def _has_flows(farm: objects.Farm) -> bool:
    """Return True if clients use UDP, whose flows have no visible end."""
    return any("udp" in objects.PROTOCOLS[port.protocol] for port in farm.bound_ports())
