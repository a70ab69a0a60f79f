"""Storages that keep kopf from remembering anything in the objects it watches.

Low-level handlers need neither; kopf's own copy each object several times per event, which is half of its work.
"""

from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """Takes every object for one that never changes, which matters to no event handler."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """The same for every object."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Nothing is ever stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class NoProgress(kopf.ProgressStorage):
    """Knows of no handler's progress."""

    def fetch(self, **_: Any) -> Any:
        """Nothing is ever stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """There is nothing to purge."""

    def touch(self, **_: Any) -> None:
        """There is nothing to touch."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """There is nothing to take out."""
        return essence
