"""The connections of farms with ``onGone: cut`` that may stay, and the times to look for others. No I/O.

Nothing is remembered of what was served: whatever is not kept goes. So an agent that starts also ends the connections
to endpoints that went while it was away.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.listeners import Listener

GRACE_S = 1.0
"""Time in seconds that an endpoint must be gone: one that moves to another slice may be in neither for a moment."""

Endpoint = tuple[str, int]
"""An address and port; port 0 stands for all ports."""


class Cut(NamedTuple):
    """The TCP listeners of a farm, and the endpoints to which connections may stay."""

    namespace: str
    listeners: Collection[Listener]
    kept: frozenset[Endpoint]


@dataclass(slots=True)
class _Farm:
    namespace: str
    listeners: frozenset[Listener]
    kept: frozenset[Endpoint]
    leaving: dict[Endpoint, float]
    """The time from which each endpoint that has just left counts as gone."""
    due: float | None


class Cuts:
    """The farms whose connections are cut, and when."""

    def __init__(self) -> None:
        self._farms: dict[str, _Farm] = {}
        self.news = asyncio.Event()
        """Set when connections are to be looked for at another time than before."""

    def changed(self, name: str, farm: NodeFarm | None, now: float) -> None:
        """Note that this node has programmed a farm, or withdrawn it."""
        if farm is None or farm.spec.on_gone != "cut":
            self._farms.pop(name, None)
            return
        listeners = frozenset(each for each in farm.listeners if each.protocol in ("TCP", "All"))
        kept, gone_at = frozenset(_kept(farm.spec)), now + GRACE_S
        before = self._farms.get(name)
        if before is None:
            self._farms[name] = _Farm(farm.key.namespace, listeners, kept, {}, gone_at)
        else:
            left = before.kept - kept
            leaving = {each: at for each, at in before.leaving.items() if each not in kept}
            leaving.update((each, gone_at) for each in left)
            due = before.due
            if left or listeners != before.listeners:
                due = min(gone_at, due) if due is not None else gone_at
            self._farms[name] = _Farm(farm.key.namespace, listeners, kept, leaving, due)
        self.news.set()

    def next_due(self) -> float | None:
        """Return when to look for connections, or None if there is nothing to do."""
        return min((each.due for each in self._farms.values() if each.due is not None), default=None)

    def take(self, now: float) -> Mapping[str, Cut]:
        """Return what is due, by the farm's name."""
        cuts = {}
        for name, farm in self._farms.items():
            if farm.due is not None and farm.due <= now:
                farm.leaving = {each: at for each, at in farm.leaving.items() if at > now}
                farm.due = min(farm.leaving.values(), default=None)
                cuts[name] = Cut(farm.namespace, farm.listeners, farm.kept | farm.leaving.keys())
        return cuts

    def again(self, names: Collection[str], at: float) -> None:
        """Look for connections of these farms again, at a time."""
        for name in names:
            if (farm := self._farms.get(name)) is not None:
                farm.due = min(at, farm.due) if farm.due is not None else at


def _kept(spec: FarmSpec) -> Iterator[Endpoint]:
    """Yield the endpoints that are not gone."""
    return ((each.ip, each.port or 0) for each in spec.backends if each.ready or each.serving)
