"""Keys in the order of a resourceVersion."""

from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.operator.cache.progress import VersionIndex

KEYS = st.tuples(st.sampled_from("abcde"))


@given(
    st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 9)))),
    st.integers(-1, 10),
    st.integers(-1, 10),
)
def test_those_between_two_versions_are_found_after_any_history(
    history: list[tuple[tuple[str], int | None]], above: int, upto: int
) -> None:
    since = VersionIndex[tuple[str]]()
    known: dict[tuple[str], int] = {}
    for key, version in history:
        if version is None:
            since.discard(key)
            known.pop(key, None)
        else:
            since.add(key, version)
            known[key] = version
    assert len(since) == len(known)
    assert sorted(since.within(above, upto)) == sorted(key for key, at in known.items() if above < at <= upto)
