"""What a change of a farm leaves behind in conntrack and among the sessions, and how it is forgotten.

The packets of a flow that conntrack knows do not ask the rules again: without this a client that sends UDP would be led
where its first packet went for as long as it sends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kube_nftlb.agent.engine.nftlb.engine import NftlbEngine
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.requests import PutFarm, RemoveAddress, RemoveBackend, RemoveFarm, Step

PART_FOR_S = 2
"""How long after a change what it left behind is looked for: a connection may just be begun."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What steps leave behind: told before they are carried out, by what nftlb has then.

    ``closed`` are farms that go, with all that they listened on, or with the one address that goes. By the farm's name:
    ``moved`` are marks that lead somewhere else afterwards, because a backend gets another address or port under its
    name, or its mark becomes another's; ``gone`` are the marks of backends that go. ``begun`` are farms that get their
    first backend, or a listener: there are flows from before that led nowhere.
    """

    closed: list[objects.Farm]
    moved: dict[str, set[int]]
    gone: dict[str, set[int]]
    begun: set[str]


def leftovers(
    steps: Iterable[Step], wanted: Mapping[str, objects.Farm | None], present: Mapping[str, objects.Farm]
) -> Leftovers:
    """What is left behind when these steps bring what is present to what is wanted."""
    left = Leftovers([], {}, {}, {name for name, farm in wanted.items() if farm and _begins(farm, present.get(name))})
    for step in steps:
        match step:
            case RemoveFarm(name):
                left.closed.append(present[name])
            case RemoveAddress(name, address):
                farm = present[name]
                left.closed.append(replace(farm, addresses={address: farm.addresses[address]}))
            case RemoveBackend(name, backend):
                mark = present[name].backends[backend].mark
                taken = (
                    mark in {other.mark for other in after.backends.values()} if (after := wanted.get(name)) else False
                )
                (left.moved if taken else left.gone).setdefault(name, set()).add(mark)
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


class _Parting(NamedTuple):
    """What a farm parted from a moment ago, and until when to look for what is left of it.

    That is the marks of backends that went, the addresses of those whose connections are cut, and whether there may be
    flows from before it served.
    """

    marks: set[int]
    cut: frozenset[str]
    begun: bool
    until: float


_NO_PARTING = _Parting(set(), frozenset(), begun=False, until=0)


class Partings:
    """Forgets what is left behind, at once and for a while after."""

    def __init__(self, engine: NftlbEngine) -> None:
        self._engine = engine
        self._expected: list[Leftovers] = []
        self._open: dict[str, _Parting] = {}

    def expect(self, left: Leftovers) -> None:
        """Before the steps: where they break off half-way, nothing else tells any more what they have left behind."""
        self._expected.append(left)

    async def begin(self, cut: Mapping[str, frozenset[str]], now: float) -> None:
        """After the steps. ``cut`` are addresses whose connections end, by the farm's name; ``now`` in seconds."""
        names = set(cut)
        for left in self._expected:
            for farm in left.closed:
                await self._engine.forget(farm)
            for name, marks in left.moved.items():
                await self._engine.forget_flows(name, marks)
            names |= left.gone.keys() | left.begun
        for name in names:
            earlier = self._open.get(name, _NO_PARTING)
            parting = _Parting(
                earlier.marks.union(*(left.gone.get(name, set()) for left in self._expected)),
                cut.get(name, frozenset()),
                begun=earlier.begun or any(name in left.begun for left in self._expected),
                until=now + PART_FOR_S,
            )
            self._open[name] = parting
            await self._part(name, parting)
        self._expected.clear()

    async def again(self, now: float) -> None:
        """Look once more for what is left of the farms that changed a moment ago."""
        for name, parting in list(self._open.items()):
            if now > parting.until:
                del self._open[name]
            await self._part(name, parting)

    async def _part(self, name: str, parting: _Parting) -> None:
        if parting.marks:
            await self._engine.part(name, parting.marks)
        if parting.cut:
            await self._engine.cut(name, parting.cut)
        if parting.begun:
            await self._engine.forget_untranslated(name)
