"""Which farms are next, and how many at once. No I/O."""

import itertools
from collections.abc import Callable, Iterable

from kube_nftlb.api.conflicts import FarmKey

CHUNK_MAX = 32
CHUNK_MIN = 2
"""Farms per pass: what comes in meanwhile waits for no more than these."""
_PASS_S = 0.25
"""How long a pass should take; nftlb takes longer for a farm the more farms it has."""
_NEWEST = 4
"""How many of a pass are those that came last: a single change does not wait until thousands before it are done."""


def next_farms(dirty: Iterable[FarmKey], chunk: int, urgent: Callable[[FarmKey], bool]) -> list[FarmKey]:
    """What is taken of all that is dirty, which is in the order in which it came: up to half of it what is urgent.

    Namespaces take turns: the thousands of one do not keep a farm of another waiting.
    """
    keys = list(dirty)
    if len(keys) <= chunk:
        return keys
    turns = _in_turns(keys)
    taken = dict.fromkeys(itertools.islice(filter(urgent, turns), chunk // 2))
    room = chunk - len(taken)
    newest = list(itertools.islice((key for key in reversed(keys) if key not in taken), min(_NEWEST, room // 2)))
    rest = (key for key in turns if key not in taken and key not in newest)
    return [*taken, *itertools.islice(rest, room - len(newest)), *reversed(newest)]


def _in_turns(keys: Iterable[FarmKey]) -> list[FarmKey]:
    """One farm of each namespace, of the one with the fewest first, then the second of each, and so on."""
    groups: dict[str, list[FarmKey]] = {}
    for key in keys:
        groups.setdefault(key.namespace, []).append(key)
    rounds = itertools.zip_longest(*sorted(groups.values(), key=len))
    return [key for each in rounds for key in each if key is not None]


def fitting_chunk(done: int, seconds: float, before: int) -> int:
    """How many farms a pass shall have, after one of ``done`` farms that took so long."""
    if done < CHUNK_MIN:
        return before
    return max(CHUNK_MIN, min(CHUNK_MAX, round(done * _PASS_S / seconds)))
