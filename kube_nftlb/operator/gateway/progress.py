"""How far nodes have come with the farms of a Gateway or listener."""

from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.operator.gateway.objects import FarmState, ObjectKey


class Progress(NamedTuple):
    """Whether all nodes have some farms, with a sentence that counts them."""

    done: bool
    message: str


def progress(farms: Iterable[tuple[ObjectKey, FarmState | None]]) -> Progress:
    """Return the progress of farms; None stands for one that does not exist yet."""
    states = list(farms)
    for key, state in states:
        if state is not None and state.problem:
            return Progress(False, f"farm {key.name}: {state.problem}")
    if not states:
        return Progress(True, "no route is served here")
    programmed, total, key = min(_counts(key, state) for key, state in states)
    if not total:
        return Progress(False, f"no node runs an agent, or farm {key.name} does not exist yet")
    if programmed < total:
        return Progress(False, f"{programmed} of {total} nodes have farm {key.name}")
    return Progress(True, f"{programmed} of {total} nodes have its farms ({len(states)})")


def _counts(key: ObjectKey, state: FarmState | None) -> tuple[int, int, ObjectKey]:
    return (state.programmed, state.total, key) if state is not None else (0, 0, key)
