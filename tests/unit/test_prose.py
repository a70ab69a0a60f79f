"""Parts of sentences."""

from kube_nftlb.prose import some_of


def test_a_long_list_is_cut() -> None:
    assert some_of(("a", "b")) == "a, b"
    assert some_of(("a", "b", "c", "d", "e")) == "a, b, c and 2 more"
    assert some_of(["a", "b"], 1, "nodes") == "a and 1 more nodes"
