import pytest

from tools.chart import BEGIN, END, Value, ValuesError, commented, page, read

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
    with pytest.raises(ValuesError, match=r"values\.yaml: one has no comment"):
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
    with pytest.raises(ValuesError, match="has no lines"):
        page("# Chart\n", VALUES)


def test_a_value_that_is_a_setting_gets_its_comment_from_the_code() -> None:
    text = commented(VALUES, {"two.inner": "A long-winded one, " + "again " * 20 + "and again."})
    assert text.splitlines()[4:8] == [
        "two:",
        "  # -- A long-winded one, " + ("again " * 15).strip(),
        "  # " + "again " * 5 + "and again.",
        "  inner: [1]",
    ]
    assert commented(text, {"one": "The first, which goes on in a second line."}).count("# --") == 3
    with pytest.raises(ValuesError, match=r"values\.yaml has no three"):
        commented(VALUES, {"three": "Nowhere."})
