"""Parsing of the documents: fenced blocks, links, headings. No I/O."""

import functools
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

LANGUAGES = {"sh", "console", "yaml", ""}
"""``sh`` is run, ``console`` is run and its output compared, ``yaml`` is applied; the rest is to look at."""

_NOT_RUN = re.compile(r"<!-- not run: (.+) -->\s*")
_NAMED = re.compile(r"# ([\w.-]+\.yaml)\n")


class Block(NamedTuple):
    """A fenced block."""

    line: int
    """Of its first line within the fence, from 1."""
    language: str
    text: str
    not_run: str
    """The requirement that is missing here to run it, from the comment before it; empty if none is."""

    @property
    def file_name(self) -> str:
        """A yaml block that begins with ``# NAME.yaml`` is kept under that name, for the blocks after it."""
        found = _NAMED.match(self.text)
        return found[1] if found and self.language == "yaml" else ""


class Step(NamedTuple):
    """A command of a ``console`` block, and what it prints."""

    command: str
    output: str


@functools.cache
def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    found, comment = [], ""
    for token in MarkdownIt().parse(text):
        if token.type == "fence":
            assert token.map is not None
            found.append(Block(token.map[0] + 2, token.info.strip(), token.content, comment))
        mark = _NOT_RUN.fullmatch(token.content) if token.type == "html_block" else None
        comment = mark[1] if mark else ""
    return found


def steps(text: str) -> list[Step]:
    """The commands of a ``console`` block: a line that begins with ``$``, and those that begin with ``>``."""
    found: list[Step] = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append(Step(line[2:], ""))
        elif line.startswith("> ") and not found[-1].output:
            found[-1] = Step(found[-1].command + line[2:], "")
        else:
            found[-1] = Step(found[-1].command, found[-1].output + line)
    return found


def console(steps: list[Step]) -> str:
    """The opposite of ``steps``."""
    written = []
    for step in steps:
        first, *more = step.command.splitlines(keepends=True)
        output = step.output if step.output.endswith("\n") or not step.output else f"{step.output}\n"
        written += [f"$ {first}", *(f"> {line}" for line in more), output]
    return "".join(written)


def with_block(text: str, block: Block, content: str) -> str:
    """A page with another text in one of its blocks."""
    lines = text.splitlines(keepends=True)
    begin = block.line - 1
    lines[begin : begin + len(block.text.splitlines())] = [content]
    return "".join(lines)


_VARYING = (
    (re.compile(r" +\d+\.\d +\d+(?: +(?:-|[\d.]+ (?:bytes?|[kMG]B))){2}(?= )"), " TRAFFIC"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\b(\d+m)?\d+(\.\d+)?(ms|s)\b"), "AGE"),
    (re.compile(r"\b10\.(96|244)\.(?!0\.1\b)\d+\.\d+\b"), "IP"),
    (re.compile(r"\bfd00:(96|244)[0-9a-f:]+\b"), "IP"),
    (re.compile(r"-[0-9a-f]{8,10}-[0-9a-z]{5}\b"), "-POD"),
    (re.compile(r"-[0-9a-f]{10}\b"), "-HASH"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UID"),
    (re.compile(r":\d{5} →"), ":PORT →"),
    (re.compile(r":3[0-2]\d{3}\b"), ":NODEPORT"),
    (re.compile(r"\bv1\.\d\d\.\d+\b"), "VERSION"),
    (re.compile(r"\S+ leads\b"), "OPERATOR leads"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" ?\n"), "\n"),
)


def constant(output: str) -> str:
    """An output without what differs from one run to the next: times, addresses, the ends of pods' names, widths."""
    for pattern, instead in _VARYING:
        output = pattern.sub(instead, output)
    return output.strip()


def links(text: str) -> list[str]:
    """The targets of a page's links."""
    return [str(token.attrs["href"]) for token in _inside(text) if token.type == "link_open"]


@functools.cache  # many links lead to one page
def anchors(text: str) -> set[str]:
    """The anchors of a page: its headings, as GitHub writes them."""
    tokens = MarkdownIt().parse(text)
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _inside(text: str) -> Iterator[Token]:
    for token in MarkdownIt().enable("table").parse(text):
        yield from token.children or ()
