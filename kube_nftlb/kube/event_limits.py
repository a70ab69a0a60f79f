"""Decide which findings become Events: each once for as long as it lasts, and few per object. No I/O."""

import time
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from kube_nftlb.reasons import EventReason

_SWEEP_ABOVE = 4096
"""Up to so many objects are not worth the time to look which are needed."""
_BURST = 25
_REFILL_S = 300.0

K = TypeVar("K", bound=Hashable)


class Finding(Protocol):
    """The content of an Event: a reason in CamelCase, and a message that says what to do. Equal ones count as one."""

    @property
    def reason(self) -> EventReason: ...  # noqa: D102 (the class says it)

    @property
    def message(self) -> str: ...  # noqa: D102 (the class says it)


class Memory(Generic[K]):
    """Remembers the reported findings of all objects with findings, by key.

    Those of objects that do not exist are dropped whenever the memory has doubled, so that it never pushes out what
    lasts, however much that is.
    """

    def __init__(self, exists: Callable[[K], bool] = lambda _: True) -> None:
        self._exists = exists
        self._reported: dict[K, frozenset[Finding]] = {}
        self._sweep_above = _SWEEP_ABOVE

    def __len__(self) -> int:
        return len(self._reported)

    def news(self, key: K, findings: Iterable[Finding]) -> list[Finding]:
        """Return the findings that the object did not have before. One that went and came back is news again."""
        now = tuple(dict.fromkeys(findings))
        before = self._reported.pop(key, frozenset())
        if now:
            self._reported[key] = frozenset(now)
        if len(self._reported) > self._sweep_above:
            self._reported = {each: found for each, found in self._reported.items() if self._exists(each)}
            self._sweep_above = max(_SWEEP_ABOVE, 2 * len(self))
        return [finding for finding in now if finding not in before]

    def forget(self, key: K, finding: Finding) -> None:
        """Have a finding count as news again."""
        if remaining := self._reported.pop(key, frozenset()) - {finding}:
            self._reported[key] = remaining


class Limiter:
    """Limits the Events of each object. ``clock`` returns seconds.

    Objects that have their whole burst again are forgotten whenever the number of objects has doubled.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tokens: dict[str, tuple[float, float]] = {}
        self._sweep_above = _SWEEP_ABOVE

    def __len__(self) -> int:
        return len(self._tokens)

    def allows(self, uid: str) -> bool:
        """Count one more Event; return False if it is over the limit."""
        now = self._clock()
        tokens = self._refilled(uid, now)
        allowed = tokens >= 1
        self._tokens[uid] = (tokens - 1 if allowed else tokens, now)
        if len(self._tokens) > self._sweep_above:
            self._tokens = {each: entry for each, entry in self._tokens.items() if self._refilled(each, now) < _BURST}
            self._sweep_above = max(_SWEEP_ABOVE, 2 * len(self))
        return allowed

    def _refilled(self, uid: str, now: float) -> float:
        tokens, at = self._tokens.get(uid, (float(_BURST), now))
        return min(_BURST, tokens + (now - at) / _REFILL_S)
