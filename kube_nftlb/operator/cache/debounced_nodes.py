"""The nodes as statuses show them: one that comes and goes changes the statuses of all farms each time. No I/O."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kube_nftlb.operator.cache.node_record import NodeRecord

HOLD_S = 5.0
"""Time in seconds that a node must be unready, or gone, for statuses to say so; it doubles with each flap."""
HOLD_MAX_S = 300.0
CALM_S = 600.0
"""Time in seconds without a flap after which a node's earlier ones are forgotten."""


class _Flaps(NamedTuple):
    """The number of times that a node came or went of late, and the time of the last."""

    number: int
    at: float


class _Pending(NamedTuple):
    state: NodeRecord | None
    due: float


class DebouncedNodes:
    """The state of each node that has lasted. ``clock`` returns seconds.

    A node that is seen for the first time counts at once, and so does all news that concerns single farms.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shown: dict[str, NodeRecord] = {}
        self._pending: dict[str, _Pending] = {}
        self._flaps: dict[str, _Flaps] = {}

    def __iter__(self) -> Iterator[NodeRecord]:
        """Iterate over the nodes."""
        return iter(self._shown.values())

    def get(self, name: str) -> NodeRecord | None:
        """Return a node as it is shown, or None."""
        return self._shown.get(name)

    def put(self, name: str, state: NodeRecord | None) -> None:
        """Take the state of a node; None: it is gone. How far it has come is shown at once."""
        now, shown = self._clock(), self._shown.get(name)
        if not is_flap(shown, state):
            self._pending.pop(name, None)
            self._show(name, state)
            return
        pending = self._pending.get(name)
        due = pending.due if pending is not None else now + self._hold_s(name, now, back=not _is_worse(shown, state))
        self._pending[name] = _Pending(state, due)
        if not self._flush(now, [name]) and shown is not None and state is not None:
            self._show(name, _advanced(shown, state))

    def flush(self) -> list[tuple[str, NodeRecord | None]]:
        """Show the states that have lasted. Return these nodes with what was shown of them before."""
        before, now = dict(self._shown), self._clock()
        self._flaps = {
            name: flaps for name, flaps in self._flaps.items() if name in self._shown or now - flaps.at < CALM_S
        }
        return [(name, before.get(name)) for name in self._flush(now, list(self._pending))]

    def _flush(self, now: float, names: list[str]) -> list[str]:
        due = [name for name in names if self._pending[name].due <= now]
        for name in due:
            known = name in self._flaps
            self._flaps[name] = _Flaps(self._recent(name, now) + known, now)
            self._show(name, self._pending.pop(name).state)
        return due

    def _show(self, name: str, state: NodeRecord | None) -> None:
        if state is not None:
            self._shown[name] = state
        else:
            self._shown.pop(name, None)

    def _hold_s(self, name: str, now: float, *, back: bool) -> float:
        recent = self._recent(name, now)
        if name not in self._flaps or (back and recent <= 1):
            return 0
        return float(min(HOLD_S * 2 ** (recent - back), HOLD_MAX_S))

    def _recent(self, name: str, now: float) -> int:
        flaps = self._flaps.get(name)
        return flaps.number if flaps is not None and now - flaps.at < CALM_S else 0


def is_flap(before: NodeRecord | None, after: NodeRecord | None) -> bool:
    """Return True if the statuses of all farms follow from a change of a node's state."""
    if before is None or after is None:
        return before is not after
    return before.ready != after.ready or _is_worse(before, after)


def _advanced(shown: NodeRecord, state: NodeRecord) -> NodeRecord:
    """Return a node as it is shown, with the news of a state that has to last before it counts."""
    return state._replace(
        ready=shown.ready,
        watermark=max(shown.watermark, state.watermark),
        slice_watermark=max(shown.slice_watermark, state.slice_watermark),
        policy_watermark=max(shown.policy_watermark, state.policy_watermark),
    )


def _is_worse(before: NodeRecord | None, after: NodeRecord | None) -> bool:
    if before is None or after is None:
        return after is None
    if before.ready != after.ready:
        return before.ready
    fell_back = after.watermark < before.watermark or after.slice_watermark < before.slice_watermark
    return fell_back or after.policy_watermark < before.policy_watermark
