"""The connection marks by which nftlb tells the backends of a farm apart. Pure: no I/O."""

from collections.abc import Iterable, Mapping

from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.objects import MARK_FIRST, MARK_LAST
from kube_nftlb.nftlb.requests import RemoveBackends, Step


def allocate(
    wanted: Iterable[str], current: Mapping[str, int], requested: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return a mark for each wanted backend of one farm.

    The marks ``requested`` by specs are always granted. Any other backend keeps the one that it has in ``current``, as
    nftlb shows it; a new one gets the lowest free mark. Marks of backends being removed are not free until they are
    gone: if there are too few until then, some new backends get none yet.
    Unusable marks (out of range, requested by another backend, or used twice) are replaced. Raises ValueError if more
    are wanted than there are marks.
    """
    marks: dict[str, int] = dict(requested or {})
    used = {*current.values(), *marks.values()}
    assigned: set[int] = set(marks.values())
    names = list(wanted)
    if len(names) > (most := MARK_LAST - MARK_FIRST + 1):
        raise ValueError(f"a farm has at most {most} backends, not {len(names)}")
    for name in names:
        mark = current.get(name)
        if name not in marks and mark is not None and MARK_FIRST <= mark <= MARK_LAST and mark not in assigned:
            marks[name] = mark
            assigned.add(mark)
    free = (mark for mark in range(MARK_FIRST, MARK_LAST + 1) if mark not in used)
    marks.update(zip((name for name in names if name not in marks), free, strict=False))
    return marks


def gone(
    steps: Iterable[Step], wanted: Mapping[str, objects.Farm | None], present: Mapping[str, objects.Farm]
) -> dict[str, set[int]]:
    """Return the marks that no backend has after these steps, by the names of persistent farms that stay."""
    gone: dict[str, set[int]] = {}
    for step in steps:
        if isinstance(step, RemoveBackends) and (after := wanted.get(step.name)) and present[step.name].persistent:
            marks = {present[step.name].backends[backend].mark for backend in step.backends}
            if marks := marks - {other.mark for other in after.backends.values()}:
                gone.setdefault(step.name, set()).update(marks)
    return gone
