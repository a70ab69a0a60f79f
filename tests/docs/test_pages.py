"""The commands in the documents work, with the output shown. ``make docs`` renews the outputs."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from lab import build, programs
from tests.docs import pages
from tests.docs.pages import Block
from tests.docs.reader import ROOT, Reader

PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "charts/kube-nftlb/README.md")
    for path in ROOT.glob(pattern)
)
RENEW = os.environ.get("KUBE_NFTLB_RENEW_DOCS") == "1"

NOT_RUN_AT_MOST = {
    "README.md": 2,
    "CONTRIBUTING.md": 1,
    "charts/kube-nftlb/README.md": 1,
    "docs/conformance.md": 1,
    "docs/conformance-upstream.md": 1,
    "docs/conformance-gateway.md": 1,
    "docs/install.md": 13,
    "docs/recipes.md": 3,
    "docs/releases.md": 1,
    "docs/operations.md": 2,
    "docs/troubleshooting.md": 1,
}
"""The most blocks of a page that are not run because this machine lacks something; of other pages all are."""

FIRST = "README.md"
"""The page that everybody reads first; the others are followed where there is more time."""
DEFECTS = "docs/nftlb-defects.md"
"""The page that shows Debian's nftlb, without our patches, in a network namespace of its own."""


class Unrun(NamedTuple):
    page: str
    block: Block

    def __str__(self) -> str:
        return f"{self.page}:{self.block.line}"


def text(page: str) -> str:
    return (ROOT / page).read_text()


NOT_RUN = [Unrun(page, block) for page in PAGES for block in pages.blocks(text(page)) if block.not_run]


def to_do(content: str) -> list[Block]:
    return [block for block in pages.blocks(content) if block.language and not block.not_run]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page == FIRST else pytest.mark.long) for page in PAGES if to_do(text(page))],
)
def test_what_a_page_says_works_and_comes_out_so(page: str) -> None:
    content = text(page)
    if any("helm " in block.text for block in to_do(content)):
        programs.helm(print)
    if page == DEFECTS:
        reader = Reader(programs.debians("nftlb", print), "unshare", "--net")
    else:
        reader = Reader(build.nftlb(programs.cache_folder(), print))
    differing = []
    try:
        for block in to_do(content):
            try:
                came_out = reader.follow(block)
            except AssertionError as error:
                raise AssertionError(f"{page}:{block.line}: {error}") from None
            if pages.constant(came_out) != pages.constant(block.text):
                differing.append((block, came_out))
    finally:
        reader.close()
    if RENEW:
        for block, came_out in reversed(differing):
            content = pages.with_block(content, block, came_out)
        Path(ROOT / page).write_text(content)
        return
    shown = [f"{page}:{block.line} says\n{block.text}\nbut it is\n{came_out}" for block, came_out in differing]
    assert not shown, "\n".join([*shown, "`make docs` writes down what it is"])


@pytest.mark.parametrize("unrun", NOT_RUN, ids=str)
def test_a_block_that_cannot_be_run_here_says_what_is_missing(unrun: Unrun) -> None:
    pytest.skip(unrun.block.not_run)


def test_few_blocks_are_not_run() -> None:
    numbers = {page: sum(unrun.page == page for unrun in NOT_RUN) for page in PAGES}
    assert {page: n for page, n in numbers.items() if n > NOT_RUN_AT_MOST.get(page, 0)} == {}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_is_checked(page: str) -> None:
    found = pages.blocks(text(page))
    assert {block.language for block in found} <= pages.LANGUAGES
    unchecked = [block.line for block in found if not block.language and "$ " in block.text]
    assert unchecked == [], "commands stand in sh and console blocks"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    dead = []
    for link in pages.links(text(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in pages.anchors(target.read_text())):
            dead.append(link)
    assert dead == []
