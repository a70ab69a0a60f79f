"""The sessions of persistent farms in nftlb's maps, which nftlb empties or leaves stale when it rewrites a farm."""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import structlog

from kube_nftlb import errors
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.nftlb import encoding, layout, objects
from kube_nftlb.nftlb.readback import TimedSession

_log = structlog.get_logger()

_RESTORES = 5
"""The number of attempts to restore a farm's clients, as one of them may come back at any time."""


class SessionReader(Protocol):
    """Reads nftlb's maps of sessions."""

    async def full_marks(self, family: layout.TableFamily, farm: str) -> dict[int, int]:
        """Return the connection marks of a farm's backends with all bits, by the part that tells backends apart."""

    async def sessions(self, family: layout.TableFamily, map_: str) -> dict[bytes, int]:
        """Return a map of sessions: client as the kernel has it, and the mark of its backend."""

    async def timed_sessions(self, family: layout.TableFamily, map_: str) -> list[TimedSession]:
        """Return what packets have added to a map of sessions."""


class Remembered(NamedTuple):
    """The clients that a farm remembered, as nft spells them, and by which fields it did."""

    persistence: str
    clients: list[tuple[str, TimedSession]]


class Sessions:
    """Reads and writes the sessions of the farms that nftlb has (``present``)."""

    def __init__(self, present: Mapping[str, objects.Farm], reader: SessionReader, nft: Nftables) -> None:
        self._present = present
        self._reader = reader
        self._nft = nft

    async def remembered(self, name: str) -> Remembered:
        """Return the clients that a farm remembers."""
        farm = self._present[name]
        if not farm.persistent:
            return Remembered("", [])
        family, persistence = layout.family(farm), farm.options["persistence"]
        found = await self._reader.timed_sessions(family, layout.sessions_map(name))
        return Remembered(persistence, [(encoding.session_text(persistence, family, each.key), each) for each in found])

    async def restore(self, name: str, remembered: Remembered) -> None:
        """Remember clients again, if their backend still exists and they are identified by the same fields."""
        farm = self._present.get(name)
        if farm is None or not remembered.clients or farm.options.get("persistence") != remembered.persistence:
            return
        family, map_ = layout.family(farm), layout.sessions_map(name)
        ttl_ms = int(farm.options["persist-ttl"]) * 1000
        marks = await self._reader.full_marks(family, name)
        for attempts_left in reversed(range(_RESTORES)):
            present = await self._reader.sessions(family, map_)
            elements = [
                f"{client} expires {min(each.remaining_ms, ttl_ms)}ms : {marks[own]:#x}"
                for client, each in remembered.clients
                if (own := each.mark & objects.MARK_LAST) in marks and each.key not in present
            ]
            if not elements:
                return
            try:
                await self._nft.run(f"add element {family} {layout.TABLE} {map_} {{ {', '.join(elements)} }}")
            except errors.KernelError as error:
                # A client that comes back meanwhile is in the map with another backend, and nft refuses all of it.
                if not attempts_left:
                    _log.warning("cannot restore sessions", farm=name, clients=len(elements), error=str(error))
            else:
                return

    async def settle(self, name: str) -> None:
        """Bring the kernel's map of a farm's static sessions to what they are.

        nftlb leaves those of a backend there that has gone or got another mark, and none of one that drains.
        """
        farm = self._present.get(name)
        if farm is None or not farm.persistent:
            return
        family, map_ = layout.family(farm), layout.static_sessions_map(name)
        wanted, found = layout.expected(farm).sessions, await self.static(farm)
        commands = [f"delete element {family} {layout.TABLE} {map_} {{ {entry.client} }}" for entry in found - wanted]
        if missing := wanted - found:
            marks = await self._reader.full_marks(family, name)
            commands += [
                f"add element {family} {layout.TABLE} {map_} {{ {entry.client} : {marks[entry.mark]:#x} }}"
                for entry in missing
                if entry.mark in marks
            ]
        if commands:
            await self._nft.run("\n".join(commands))

    async def static(self, farm: objects.Farm) -> set[layout.StaticSession]:
        """Return a farm's static sessions in the kernel."""
        family, persistence = layout.family(farm), farm.options["persistence"]
        found = await self._reader.sessions(family, layout.static_sessions_map(farm.name))
        return {
            layout.StaticSession(encoding.session_text(persistence, family, key), mark) for key, mark in found.items()
        }

    async def dynamic(self, farm: objects.Farm) -> dict[bytes, int]:
        """Return the sessions that packets or the spec made: client as the kernel has it, and mark."""
        return await self._reader.sessions(layout.family(farm), layout.sessions_map(farm.name))

    async def forget(self, farm: objects.Farm, marks: set[int]) -> None:
        """Delete a farm's sessions with these marks."""
        family, persistence = layout.family(farm), farm.options["persistence"]
        sessions = await self.dynamic(farm)
        if stale := [
            encoding.session_text(persistence, family, key) for key, mark in sessions.items() if mark in marks
        ]:
            map_ = layout.sessions_map(farm.name)
            # One that expired meanwhile makes nft refuse all of it; what is left is found at the next look.
            with contextlib.suppress(errors.KernelError):
                await self._nft.run(f"delete element {family} {layout.TABLE} {map_} {{ {', '.join(stale)} }}")
