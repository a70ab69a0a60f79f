import pytest

from kube_nftlb import errors
from kube_nftlb.commands.chart_page import BEGIN, END, Value, page, read

VALUES = """
# -- The first, which
# goes on in a second line.
one: "a"
two:
  # -- Inside.
  inner: [1]
  # Not for the table.
  # -- A whole map.
  whole:
    x: {}
"""


def test_each_value_is_found_with_its_comment() -> None:
    assert read(VALUES) == [
        Value("one", '"a"', "The first, which goes on in a second line."),
        Value("two.inner", "[1]", "Inside."),
        Value("two.whole", '{"x": {}}', "A whole map."),
    ]


@pytest.mark.parametrize("text", ["one: 1\n", "# Said otherwise.\none: 1\n", "# -- Far.\n\none: 1\n", "one: {}\n"])
def test_a_value_without_a_comment_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match=r"values\.yaml: one has no comment"):
        read(text)


def test_what_stands_around_the_table_stays() -> None:
    before, after = "# Chart\n\nText.\n\n", "\nThe end.\n"
    made = page(f"{before}{BEGIN}\nold\n{END}{after}", VALUES)
    assert made.startswith(before)
    assert made.endswith(after)
    assert "old" not in made
    assert "| `two.inner` | Inside. | `[1]` |" in made
    assert page(made, VALUES) == made


def test_a_readme_without_the_marks_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="has no lines"):
        page("# Chart\n", VALUES)
