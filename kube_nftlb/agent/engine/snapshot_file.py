"""A file of the farms that an engine serves, from which they are back before the API server answers."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from kube_nftlb import files

SAVE_EVERY_S = 2
"""The minimum interval between writes."""
SAVE_WITHIN_S = 60
"""The interval while changes come without pause."""


class Named(Protocol):
    """A farm in an engine's form."""

    @property
    def name(self) -> str:
        """The farm's name on the node."""


_Farm = TypeVar("_Farm", bound=Named)
_T = TypeVar("_T")


class PerFarmCache(Generic[_Farm, _T]):
    """The results of ``make`` for farms, cached by the identity of the objects."""

    def __init__(self, make: Callable[[_Farm], _T]) -> None:
        self._make = make
        self._results: dict[str, tuple[_Farm, _T]] = {}

    def results(self, farms: Iterable[_Farm]) -> Collection[tuple[_Farm, _T]]:
        """Return each of these farms with its result; the results of others are forgotten."""
        known, self._results = self._results, {}
        for farm in farms:
            entry = known.get(farm.name)
            self._results[farm.name] = entry if entry is not None and entry[0] is farm else (farm, self._make(farm))
        return self._results.values()


class SnapshotFile(Generic[_Farm]):
    """Writes farms when that is due."""

    def __init__(self, path: Path, text: Callable[[_Farm], str], document: Callable[[Iterable[str]], str]) -> None:
        """``document`` makes the contents of the file of the ``text`` of each farm."""
        self.path = path
        self._texts = PerFarmCache(text)
        self._document = document
        self._saved: object = None
        self._saved_at = float("-inf")

    def is_behind(self, revision: object) -> bool:
        """Return True if the file is to be written at any time: ``revision`` differs from the one that was saved."""
        return revision != self._saved

    def due(self, revision: object, now: float, *, busy: bool) -> bool:
        """Return True if the file is to be written at ``now``, in seconds of a monotonic clock."""
        return self.is_behind(revision) and now - self._saved_at >= (SAVE_WITHIN_S if busy else SAVE_EVERY_S)

    def save(self, farms: Iterable[_Farm], revision: object, now: float) -> None:
        """Write the file. Raises OSError."""
        # Also if writing fails, so that it is not tried at every call.
        self._saved_at = now
        self.replace(text for _, text in self._texts.results(farms))
        self._saved = revision

    def replace(self, farms: Iterable[str]) -> None:
        """Write the file with the texts of farms. Raises OSError."""
        files.replace(self.path, self._document(farms), mode=0o600)
