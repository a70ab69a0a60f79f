"""How far nodes have come with the farms of a Gateway or listener."""

from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.operator.gateway.objects import FarmState, ObjectKey


class Progress(NamedTuple):
    """Whether all nodes have some farms, with a sentence that counts them."""

    done: bool
    message: str


def progress(farms: Iterable[tuple[ObjectKey, bytes, FarmState | None]]) -> Progress:
    """Return the progress of farms with these digests; None stands for one that does not exist yet.

    Of an earlier spec it does not count who has it.
    """
    states = list(farms)
    for key, _, state in states:
        if state is not None and state.problem:
            return Progress(False, f"farm {'/'.join(key)}: {state.problem}")
    if not states:
        return Progress(True, "no route is served here")
    programmed, total, key = min((_counts(*each) for each in states), key=_rank)
    if not total:
        return Progress(False, f"no node runs an agent, or farm {'/'.join(key)} does not exist yet")
    if programmed < total:
        return Progress(False, f"{programmed} of {total} nodes have farm {'/'.join(key)}")
    return Progress(True, f"{programmed} of {total} nodes have its farms ({len(states)})")


def _rank(counts: tuple[int, int, ObjectKey]) -> tuple[bool, int, ObjectKey]:
    """Return what puts first the farms that do not exist, and then those that most nodes lack.

    After a node has come, the farms are counted again one after the other.
    """
    programmed, total, key = counts
    return bool(total), programmed - total, key


def _counts(key: ObjectKey, digest: bytes, state: FarmState | None) -> tuple[int, int, ObjectKey]:
    if state is None:
        return 0, 0, key
    return state.programmed if state.digest == digest else 0, state.total, key
