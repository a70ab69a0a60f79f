"""Which connection mark stands for which backend. No I/O."""

from collections.abc import Iterable, Mapping

from kube_nftlb.nftlb.objects import MARK_FIRST, MARK_LAST


def allocate(wanted: Iterable[str], taken: Mapping[str, int], asked: Mapping[str, int] | None = None) -> dict[str, int]:
    """A mark for each wanted backend of one farm.

    ``asked`` are the marks that backends ask for; they get them. Any other backend keeps the mark that nftlb has for
    it; a new one gets the lowest that is free. The marks of backends that are going are not free before they are gone:
    where there are not enough until then, some of the new ones get none yet.
    Marks that are no good (out of range, asked for by another, or two backends with one) are given anew. Raises
    ValueError where more are wanted than there are marks.
    """
    given: dict[str, int] = dict(asked or {})
    used = {*taken.values(), *given.values()}
    kept: set[int] = set(given.values())
    names = list(wanted)
    if len(names) > (most := MARK_LAST - MARK_FIRST + 1):
        raise ValueError(f"a farm has at most {most} backends, not {len(names)}")
    for name in names:
        mark = taken.get(name)
        if name not in given and mark is not None and MARK_FIRST <= mark <= MARK_LAST and mark not in kept:
            given[name] = mark
            kept.add(mark)
    free = (mark for mark in range(MARK_FIRST, MARK_LAST + 1) if mark not in used)
    given.update(zip((name for name in names if name not in given), free, strict=False))
    return given
