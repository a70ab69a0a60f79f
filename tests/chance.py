"""What chance allows: a test of a random choice fails by chance once in a million runs."""

import math

SIGMAS = 5


def is_likely(found: int, total: int, share: float) -> bool:
    """Return True if of ``total`` independent choices so many may be of something with this share."""
    return abs(found - share * total) <= SIGMAS * math.sqrt(total * share * (1 - share))
