"""Parts of sentences that several messages have."""

from collections.abc import Sequence
from typing import Final

IF_IT_LASTS: Final = "; if it lasts, "
"""Comes before the advice in a condition's message."""


def some_of(names: Sequence[str], most: int = 3, what: str = "") -> str:
    """Return the first names, and how many more there are: ``a, b, c and 2 more``; ``what`` follows, such as nodes."""
    more = len(names) - most
    kind = f" {what[:-1] if more == 1 else what}" if what else ""
    return ", ".join(names[:most]) + (f" and {more} more{kind}" if more > 0 else "")


def counted(number: int, one: str, several: str = "") -> str:
    """Return how many there are: ``1 farm``, ``2 farms``; ``several`` is a plural with more than an s."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def until_then(ips: Sequence[object]) -> str:
    """Return the end of a sentence about what a Gateway lacks: the addresses that it keeps meanwhile, if any."""
    return f"; until then it keeps {some_of([str(each) for each in ips])}" if ips else ""
