"""The newest state of each object of one kind, in whatever order the states arrive."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView, Iterator, KeysView, ValuesView
from typing import Generic, TypeVar

_GONE_MAX = 10_000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class VersionedMap(Generic[K, V]):
    """Objects by key. States come from watches, lists and answers to writes; an older one never replaces a newer one.

    States are ordered by metadata.resourceVersion as an integer. The last 10,000 deletions are remembered, so that a
    late answer or list does not bring an object back.
    """

    def __init__(self, version: Callable[[V], int]) -> None:
        self._version = version
        self._values: dict[K, V] = {}
        self._gone: OrderedDict[K, int] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the newest state, or None if the object does not exist."""
        return self._values.get(key)

    def items(self) -> ItemsView[K, V]:
        """Return all keys and objects."""
        return self._values.items()

    def keys(self) -> KeysView[K]:
        """Return all keys."""
        return self._values.keys()

    def values(self) -> ValuesView[V]:
        """Return all objects."""
        return self._values.values()

    def versions(self) -> Iterator[tuple[K, int]]:
        """Yield all keys with the resourceVersion of their newest state."""
        return ((key, self._version(value)) for key, value in self._values.items())

    def is_newer(self, key: K, version: int) -> bool:
        """Return True if a state with this resourceVersion is newer than the known one."""
        return version > self.newest(key)

    def newest(self, key: K) -> int:
        """Return the resourceVersion of the newest state, or that of the deletion; -1 if nothing is known."""
        value = self._values.get(key)
        return self._version(value) if value is not None else self._gone.get(key, -1)

    def put(self, key: K, value: V) -> bool:
        """Put in a state; return False if it is not newer than the known one."""
        if not self.is_newer(key, self._version(value)):
            return False
        self._values[key] = value
        self._gone.pop(key, None)
        return True

    def remove(self, key: K, version: int) -> V | None:
        """Remove an object that was deleted at a resourceVersion; return its last state, or None if that is no news."""
        value = self._values.get(key)
        if value is not None and self._version(value) > version:
            return None
        self._gone[key] = max(version, self._gone.pop(key, -1))
        if len(self._gone) > _GONE_MAX:
            self._gone.popitem(last=False)
        return self._values.pop(key, None)
