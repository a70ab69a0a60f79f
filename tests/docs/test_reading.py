"""The test of the pages finds what it should, and notices mistakes."""

import pytest

from lab import build, programs
from tests.docs import pages
from tests.docs.pages import Block, Step
from tests.docs.reader import Reader

PAGE = """\
# A page: of `two` words

See [it](#a-page-of-two-words).

```sh
true
```

<!-- not run: needs a thing -->
```sh
false
```

```yaml
# kept.yaml
key: value
```
"""


def test_blocks_have_their_lines_and_marks() -> None:
    assert pages.blocks(PAGE) == [
        Block(6, "sh", "true\n", ""),
        Block(11, "sh", "false\n", "needs a thing"),
        Block(15, "yaml", "# kept.yaml\nkey: value\n", ""),
    ]
    assert [block.file_name for block in pages.blocks(PAGE)] == ["", "", "kept.yaml"]


def test_anchors_and_links() -> None:
    assert pages.anchors(PAGE) == {"a-page-of-two-words"}
    assert pages.links(PAGE) == ["#a-page-of-two-words"]


def test_console_is_read_and_written() -> None:
    text = "$ one\nits output\n$ two \\\n>   more\n$ three\n"
    found = [Step("one\n", "its output\n"), Step("two \\\n  more\n", ""), Step("three\n", "")]
    assert pages.steps(text) == found
    assert pages.console(found) == text


def test_a_block_is_replaced() -> None:
    block = pages.blocks(PAGE)[1]
    assert pages.with_block(PAGE, block, "one\ntwo\n") == PAGE.replace("false\n", "one\ntwo\n")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("my-service   10.96.1.2   3s\n", "my-service  10.96.77.88  14s\n"),
        ("pod/web-c564f8455-k86nq", "pod/web-7d9f4b6c5d-x2x8z"),
        ("since 2026-01-02T03:04:05Z", "since 2025-11-12T13:14:15Z"),
    ],
)
def test_what_varies_does_not_count(one: str, other: str) -> None:
    assert pages.constant(one) == pages.constant(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("2/2", "1/2"), ("10.96.0.1", "10.96.0.2"), ("172.31.0.11", "172.31.0.12"), ("up", "down"), ("a\nb", "a b")],
)
def test_what_does_not_vary_counts(one: str, other: str) -> None:
    assert pages.constant(one) != pages.constant(other)


def test_a_reader_goes_on_in_one_shell_and_stops_at_the_first_failure() -> None:
    reader = Reader(build.nftlb(programs.cache_folder(), print))
    try:
        reader.follow(Block(1, "sh", "greet() { echo hello; }\nNAME=you\n", ""))
        assert reader.run("greet $NAME") == "hello\n"
        came_out = reader.follow(Block(1, "console", "$ echo $NAME\nme\n", ""))
        assert came_out == "$ echo $NAME\nyou\n"
        with pytest.raises(AssertionError, match="before"):
            reader.run("echo before\nfalse\necho after")
    finally:
        reader.close()
