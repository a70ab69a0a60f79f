"""Parts of sentences that several messages have."""

from collections.abc import Sequence


def some_of(names: Sequence[str], most: int = 3, what: str = "") -> str:
    """Return the first names, and how many more there are: ``a, b, c and 2 more``; ``what`` follows, such as nodes."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more{' ' + what if what else ''}" if more > 0 else "")


def until_then(ips: Sequence[object]) -> str:
    """Return the end of a sentence about what a Gateway lacks: the addresses that it keeps meanwhile, if any."""
    return f"; until then it keeps {some_of([str(each) for each in ips])}" if ips else ""
