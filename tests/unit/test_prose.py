"""Parts of sentences."""

import pytest

from kube_nftlb.prose import counted, some_of


def test_a_long_list_is_cut() -> None:
    assert some_of(("a", "b")) == "a, b"
    assert some_of(("a", "b", "c", "d", "e")) == "a, b, c and 2 more"
    assert some_of(["a", "b", "c"], 1, "nodes") == "a and 2 more nodes"
    assert some_of(["a", "b"], 1, "nodes") == "a and 1 more node"


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("farm",), "0 farms"),
        (1, ("farm",), "1 farm"),
        (2, ("address", "addresses"), "2 addresses"),
        (1, ("address", "addresses"), "1 address"),
    ],
)
def test_one_is_no_plural(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text
