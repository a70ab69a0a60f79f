"""Print: colours and progress only on a terminal, ages as kubectl writes them, JSON for programs."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any, Final

import yaml
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from kube_nftlb.commands.printable import printable

_PROGRESS_AFTER_S = 1.0
_WIDEST: Final = 1 << 16
"""Nothing is as wide: names are neither cut nor folded, as they are searched for and copied."""
_TRAILING: Final = re.compile(r"(?<! ) +((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)
"""Spaces at the end of a line, perhaps within colours; looked for once in each run of spaces."""
_DAY_S, _HOUR_S, _MINUTE_S = 86400, 3600, 60
_GAP = 3
_FIRST_MIN = 16
"""Minimum width of longer names, however many other columns there are."""


def console(width: int | None = None) -> Console:
    """Return where results are printed; ``width`` None is that of the terminal.

    Only a terminal gets colours and bold text, unless NO_COLOR is set.
    """
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    # An address such as 6e:ab:cd:19 has no emoji.
    return Console(width=width, highlight=False, color_system="auto" if colours else None, emoji=False)


def show(*parts: RenderableType) -> None:
    """Print results. Lines are as long as they are: a terminal goes on in the next one by itself, as with kubectl."""
    out = console(_WIDEST)
    with out.capture() as captured:
        out.print(*parts, sep="\n", soft_wrap=True)
    # Those in a table would add lines to a terminal.
    sys.stdout.write(_TRAILING.sub(r"\1", captured.get()))


def show_data(value: Any, output: str) -> None:
    """Print a value for programs, as ``json`` or ``yaml``."""
    as_json = json.dumps(value, indent=2) + "\n"
    # Of the JSON, which has no types of Python.
    sys.stdout.write(as_json if output == "json" else yaml.safe_dump(json.loads(as_json), sort_keys=False, width=120))


def note(message: str) -> None:
    """Print a message beside the result."""
    sys.stderr.write(f"{printable(message)}\n")
    sys.stderr.flush()


def columns(*names: str) -> Table:
    """Return a table like kubectl's."""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for name in names:
        table.add_column(name, no_wrap=True)
    return table


def with_names(table: Table, width: int) -> Table:
    """Return a table so wide of which the first column, if it is cut, keeps a width in which names can be read."""
    first, *others = (max(cell_len(str(cell)) for cell in (each.header, *each.cells)) for each in table.columns)
    remaining = width - sum(each + _GAP for each in others) - _GAP
    # Not a minimum, below which the columns that do not wrap would press it.
    table.columns[0].width = min(first, max(remaining, _FIRST_MIN))
    return table


def plain(text: str) -> str:
    """Return a text of others, such as a message, so that nothing in it is taken for markup or by the terminal."""
    return escape(printable(text))


def good_or_bad(text: str, *, good: bool) -> str:
    """Return a text in the colour for good or bad."""
    return f"[{'green' if good else 'bold red'}]{plain(text)}[/]"


def age(since: datetime | None, now: datetime) -> str:
    """Return how long something lasts, as kubectl writes ages; ``-`` if unknown."""
    if since is None:
        return "-"
    seconds = max(int((now - since).total_seconds()), 0)
    if seconds < 2 * _MINUTE_S:
        return f"{seconds}s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds // _MINUTE_S}m"
    return f"{seconds // _HOUR_S}h" if seconds < 2 * _DAY_S else f"{seconds // _DAY_S}d"


@contextlib.asynccontextmanager
async def progress(what: str) -> AsyncIterator[None]:
    """Show on a terminal what takes longer than a second."""

    async def later() -> None:
        await asyncio.sleep(_PROGRESS_AFTER_S)
        with Console(stderr=True, emoji=False).status(what):
            await asyncio.Event().wait()

    task = asyncio.create_task(later()) if sys.stderr.isatty() else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.asynccontextmanager
async def ticker() -> AsyncIterator[Callable[[str], None]]:
    """Yield what shows a message: in one line that changes on a terminal, else a line for each change."""
    if not sys.stderr.isatty():
        yield note
        return
    with Console(stderr=True, emoji=False).status("") as status:
        yield lambda message: status.update(plain(message))
