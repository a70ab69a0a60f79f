"""Which runs measured a version that works in another way than today's. Computation only."""

from collections.abc import Iterable

from benchmarks.records import Record

_CHANGED = "2026-11-22T17:05:24Z"
"""Since then farms refer to the endpoints of Services; before, the operator wrote each endpoint into its farm."""
NOTE = "of an older version, in which the operator wrote each endpoint into its farm"


def outdated(began: str) -> bool:
    """Return True for the figures of a run that began before the change, in UTC as in ``machine.json``.

    Those of a run that has not been published, for which it is empty, are new.
    """
    return "" < began < _CHANGED


def current(measured: Iterable[Record]) -> list[Record]:
    """Return the records of a version that works as today's does."""
    return [record for record in measured if not outdated(record.run)]
