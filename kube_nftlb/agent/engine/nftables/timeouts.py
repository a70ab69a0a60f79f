"""The times for which chains remember clients: there is a chain for each, so they are few. Pure: no I/O."""

import bisect

_SIXTIETHS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
_HOURS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21, 24)

STEPS_S: tuple[int, ...] = (
    *(int(each) for each in _SIXTIETHS if each == int(each)),
    *(int(60 * each) for each in _SIXTIETHS),
    *(int(3600 * each) for each in _HOURS),
)
"""The times in seconds. From 3 s on each is at most a third longer than the one before."""


def rounded(seconds: int) -> int:
    """Return the time for which a client is remembered: what is asked for, or the next longer step.

    ``seconds`` is at least 1 and at most 86,400, as the API allows.
    """
    return STEPS_S[min(bisect.bisect_left(STEPS_S, seconds), len(STEPS_S) - 1)]
