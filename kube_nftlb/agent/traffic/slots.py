"""Choose which of many keys have series of their own: the busiest, but for a while at least. Pure."""

from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

HELD_S: Final = 300.0
"""Minimum time in seconds that a key has its slot, so that its series can be read."""
_HALF_LIFE_S: Final = 60.0
_MUCH: Final = 2.0
"""Factor by which a key must be busier than the one that it replaces."""
_FORGOTTEN: Final = 1e-4

_K = TypeVar("_K", bound=Hashable)


class SeriesSlots(Generic[_K]):
    """A limited number of slots for keys with series."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._scores: dict[_K, float] = {}
        self._since: dict[_K, float] = {}

    @property
    def keys(self) -> frozenset[_K]:
        """The keys that have a slot."""
        return frozenset(self._since)

    def update(self, shares: Mapping[_K, float], seconds: float, now: float, gone: Callable[[_K], bool]) -> None:
        """Count what was seen in these seconds, and give the slots to the busiest.

        A key that is gone leaves its slot at once. Others keep theirs without any traffic, until another key needs it.
        """
        decay = 0.5 ** (seconds / _HALF_LIFE_S)
        scores = {key: score * decay for key, score in self._scores.items()}
        for key, share in shares.items():
            scores[key] = scores.get(key, 0.0) + share
        self._scores = {key: score for key, score in scores.items() if score > _FORGOTTEN and not gone(key)}
        for key in [key for key in self._since if gone(key)]:
            del self._since[key]
        waiting = sorted((key for key in self._scores if key not in self._since), key=self._score)
        while waiting and len(self._since) < self._most:
            self._since[waiting.pop()] = now
        for quiet in sorted((key for key, since in self._since.items() if now - since >= HELD_S), key=self._score):
            if not waiting or self._score(waiting[-1]) <= _MUCH * self._score(quiet):
                return
            del self._since[quiet]
            self._since[waiting.pop()] = now

    def _score(self, key: _K) -> float:
        return self._scores.get(key, 0.0)
