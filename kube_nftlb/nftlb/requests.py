"""The steps that change nftlb, each one request, and what each leaves behind. No I/O.

nftlb merges what it is sent into what it has: a list is never shortened by a POST, so removals are steps of their own.
"""

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from kube_nftlb.nftlb import objects

_T = TypeVar("_T")


class Request(NamedTuple):
    """An HTTP request to nftlb."""

    method: str
    path: str
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class PutFarm:
    """Create a farm, or merge into the existing one; all its backends change in one transaction."""

    farm: objects.Farm

    @property
    def name(self) -> str:
        """The farm's name."""
        return self.farm.name


@dataclass(frozen=True, slots=True)
class RemoveFarm:
    """Delete a farm with its addresses and backends."""

    name: str


@dataclass(frozen=True, slots=True)
class RemoveBackends:
    """Delete backends; this is cheapest if they are down already."""

    name: str
    backends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveAddress:
    """Delete an address; its listeners are free afterwards."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class RemoveSession:
    """Delete the static session of a client."""

    name: str
    client: str


Step = PutFarm | RemoveFarm | RemoveBackends | RemoveAddress | RemoveSession


def request(*steps: Step) -> Request:
    """Return the request for a step, or for several that put farms, of which nftlb makes a transaction each in turn."""
    match steps:
        case (RemoveFarm(name),):
            return Request("DELETE", f"/farms/{name}")
        case (RemoveBackends(name, (backend,)),):
            return Request("DELETE", f"/farms/{name}/backends/{backend}")
        case (RemoveBackends(name, backends),):
            gone = [{"name": backend, "action": "delete"} for backend in backends]
            return Request("POST", "/farms", json.dumps({"farms": [{"name": name, "backends": gone}]}).encode())
        case (RemoveAddress(name, address),):
            return Request("DELETE", f"/farms/{name}/addresses/{address}")
        case (RemoveSession(name, client),):
            # nftlb reads a blank for each underscore.
            return Request("DELETE", f"/farms/{name}/sessions/{client.replace(' ', '_')}")
    farms = [step.farm for step in steps if isinstance(step, PutFarm)]
    return Request("POST", "/farms", json.dumps(objects.document(farms)).encode())


def after(before: objects.Farm | None, step: Step) -> objects.Farm | None:
    """Return a farm in nftlb after a step, given what it was before."""
    match step:
        case PutFarm(farm):
            if before is None:
                return farm
            return replace(
                before,
                options={**before.options, **farm.options},
                addresses={**before.addresses, **farm.addresses},
                backends={**before.backends, **farm.backends},
                sessions={**before.sessions, **farm.sessions},
            )
        case RemoveFarm():
            return None
        case RemoveBackends(_, backends):
            gone = set(backends)
            sessions = {client: name for client, name in before.sessions.items() if name not in gone} if before else {}
            return before and replace(before, backends=_without(before.backends, gone), sessions=sessions)
        case RemoveAddress(_, address):
            return before and replace(before, addresses=_without(before.addresses, {address}))
        case RemoveSession(_, client):
            return before and replace(before, sessions=_without(before.sessions, {client}))


_RESTARTING = frozenset(
    ("persistence", "persist-ttl", "mode", "log", "helper", "source-addr", "intra-connect", "state")
)
"""Options whose change makes nftlb restart a farm."""


def restarts(before: objects.Farm | None, step: Step) -> bool:
    """Return True if nftlb restarts a farm in this step, with new maps of sessions."""
    if before is None or not isinstance(step, PutFarm):
        return False
    return any(before.options.get(key) != step.farm.options[key] for key in _RESTARTING & step.farm.options.keys())


def _without(entries: Mapping[str, _T], names: Set[str]) -> dict[str, _T]:
    return {key: entry for key, entry in entries.items() if key not in names}
