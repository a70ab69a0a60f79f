"""Storages that keep kopf from storing state in the objects it watches.

Event handlers need none; kopf's own storages copy each object several times per event, half of its work.
"""

from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """Treats every object as unchanged, which does not matter to event handlers."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return the same for every object."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Return None: nothing is stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class NoProgress(kopf.ProgressStorage):
    """Stores no progress of handlers."""

    def fetch(self, **_: Any) -> Any:
        """Return None: nothing is stored."""
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Do nothing."""

    def touch(self, **_: Any) -> None:
        """Do nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return the essence as it is."""
        return essence
