"""Label selectors mean what they mean to kubectl."""

import pytest

from kube_nftlb import label_selector

LABELS = {"app": "web", "tier": "front", "example.com/empty": ""}


@pytest.mark.parametrize(
    ("text", "selects"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app=web,tier=back", False),
        ("app!=web", False),
        ("missing!=web", True),
        ("app in (api, web)", True),
        ("app in (api),tier", False),
        ("app notin (api,other),tier", True),
        ("missing notin (a)", True),
        ("tier", True),
        ("!tier", False),
        ("!missing", True),
        ("example.com/empty=", True),
        (" app = web , tier in ( front ) ", True),
    ],
)
def test_a_selector_selects_by_all_of_its_requirements(text: str, selects: bool) -> None:
    assert label_selector.parse(text).selects(LABELS) is selects


@pytest.mark.parametrize("text", [",", "app=web,", "app=a b", "=web", "app in web", "app > 3", "app in (a(b)", "-a"])
def test_what_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is none of: a=b"):
        label_selector.parse(text)
