"""Sets of values by key, without empty ones. No I/O."""

from collections.abc import Hashable, KeysView, Set
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class Multimap(Generic[K, V]):
    """An index from keys to sets of values."""

    def __init__(self) -> None:
        self._values: dict[K, set[V]] = {}

    def get(self, key: K) -> Set[V]:
        """Return the values of a key."""
        return self._values.get(key, frozenset())

    def keys(self) -> KeysView[K]:
        """Return the keys that have values."""
        return self._values.keys()

    def add(self, key: K, value: V) -> None:
        """Add a value to a key."""
        self._values.setdefault(key, set()).add(value)

    def discard(self, key: K, value: V) -> None:
        """Remove a value from a key, if it is there."""
        if values := self._values.get(key):
            values.discard(value)
            if not values:
                del self._values[key]

    def set(self, key: K, value: V, *, present: bool) -> None:
        """Add a value to a key, or remove it."""
        (self.add if present else self.discard)(key, value)
