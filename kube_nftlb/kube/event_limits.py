"""Decide which findings become Events: each once for as long as it lasts, and few per object. No I/O."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from kube_nftlb.reasons import EventReason

_REMEMBERED_MAX = 4096
_BURST = 25
_REFILL_S = 300.0


class Finding(Protocol):
    """The content of an Event: a reason in CamelCase, and a message that says what to do. Equal ones count as one."""

    @property
    def reason(self) -> EventReason: ...  # noqa: D102 (the class says it)

    @property
    def message(self) -> str: ...  # noqa: D102 (the class says it)


class Memory:
    """Remembers the reported findings of the last 4,096 objects with findings, by uid."""

    def __init__(self) -> None:
        self._reported: OrderedDict[str, frozenset[Finding]] = OrderedDict()

    def news(self, uid: str, findings: Iterable[Finding]) -> list[Finding]:
        """Return the findings that the object did not have before. One that went and came back is news again."""
        now = tuple(dict.fromkeys(findings))
        before = self._reported.pop(uid, frozenset())
        if now:
            self._reported[uid] = frozenset(now)
        if len(self._reported) > _REMEMBERED_MAX:
            self._reported.popitem(last=False)
        return [finding for finding in now if finding not in before]


class Limiter:
    """Limits the Events of each of the last 4,096 objects. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, uid: str) -> bool:
        """Count one more Event; return False if it is over the limit."""
        now = self._clock()
        left, at = self._left.pop(uid, (float(_BURST), now))
        left = min(_BURST, left + (now - at) / _REFILL_S)
        allowed = left >= 1
        self._left[uid] = (left - 1 if allowed else left, now)
        if len(self._left) > _REMEMBERED_MAX:
            self._left.popitem(last=False)
        return allowed
