"""The newest state of each object of one kind, whatever the order in which states are heard of."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView, Iterator, ValuesView
from typing import Generic, TypeVar

_GONE_MAX = 10_000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """Objects by key. States come from watches, lists and answers to writes, and an older one never replaces a newer.

    What is newer is told by metadata.resourceVersion as an integer. Deletions are remembered (the last 10,000), so
    that a late answer or list does not bring an object back.
    """

    def __init__(self, version: Callable[[V], int]) -> None:
        self._version = version
        self._values: dict[K, V] = {}
        self._gone: OrderedDict[K, int] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The newest state, or None for an object that does not exist."""
        return self._values.get(key)

    def items(self) -> ItemsView[K, V]:
        """All objects with their keys."""
        return self._values.items()

    def values(self) -> ValuesView[V]:
        """All objects."""
        return self._values.values()

    def versions(self) -> Iterator[tuple[K, int]]:
        """All keys, each with the resourceVersion of its newest state."""
        return ((key, self._version(value)) for key, value in self._values.items())

    def is_news(self, key: K, version: int) -> bool:
        """Whether a state of that resourceVersion would be taken in."""
        value = self._values.get(key)
        return version > (self._version(value) if value is not None else self._gone.get(key, -1))

    def put(self, key: K, value: V) -> bool:
        """Take a state in; False for one that is not newer than what is known."""
        if not self.is_news(key, self._version(value)):
            return False
        self._values[key] = value
        self._gone.pop(key, None)
        return True

    def remove(self, key: K, version: int) -> V | None:
        """Take in that the object was deleted at a resourceVersion; what it was, or None where that is no news."""
        value = self._values.get(key)
        if value is not None and self._version(value) > version:
            return None
        self._gone[key] = max(version, self._gone.pop(key, -1))
        if len(self._gone) > _GONE_MAX:
            self._gone.popitem(last=False)
        return self._values.pop(key, None)
