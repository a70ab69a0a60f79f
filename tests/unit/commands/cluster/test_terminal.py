"""What commands print."""

import asyncio
import io
import sys

import pytest
from rich.console import Console
from rich.table import Table

from kube_nftlb import errors
from kube_nftlb.commands import exits
from kube_nftlb.commands.cluster import terminal, trace


@pytest.mark.parametrize("address", ["6e:23:b2:cd:73:19", "fd00::ab:cd:1", "2001:db8:100::1", "fd00:a:ab:b:cd:o:m:x"])
def test_an_address_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], address: str) -> None:
    terminal.show(terminal.plain(f"another host has the address, at {address} (AddressInUse)"))
    table = terminal.columns("ADDRESS")
    table.add_row(terminal.plain(address))
    terminal.show(table)
    assert capsys.readouterr().out.count(address) == 2


CLEARS_THE_SCREEN = "\x1b[2J\x1b]0;title\x07\u202e"


def test_nothing_of_others_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(terminal.plain(CLEARS_THE_SCREEN), terminal.good_or_bad(CLEARS_THE_SCREEN, good=False))
    terminal.note(f"{CLEARS_THE_SCREEN} stays")
    said = capsys.readouterr()
    assert said.out == 2 * "?[2J?]0;title??\n"
    assert said.err == "?[2J?]0;title?? stays\n"


def test_an_error_of_others_commands_no_terminal() -> None:
    error = errors.KubeError(422, "Invalid", CLEARS_THE_SCREEN)
    assert exits.message_of(error) == "422 Invalid: ?[2J?]0;title??"


async def test_what_a_node_says_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(f"{CLEARS_THE_SCREEN}\ncommand terminated with exit code 1\n".encode())
    stream.feed_eof()
    await trace._show_errors(stream)  # noqa: SLF001 - what relays it
    assert capsys.readouterr().err == "?[2J?]0;title??\n"


NAME = "worker-with-a-name-as-cloud-providers-give-them.eu-central-1.compute.internal"


def table() -> Table:
    made = terminal.columns("NODE", *(f"COLUMN {number}" for number in range(9)))
    made.add_row(NAME, *("number",) * 9)
    made.add_row("n", *("4000",) * 9)
    return made


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have results printed on a narrow terminal with colours."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Print names and numbers, and return the lines."""
    terminal.show(terminal.plain(NAME * 3), table(), terminal.good_or_bad("yes", good=True))
    return capsys.readouterr().out.splitlines()


def are_whole(lines: list[str]) -> bool:
    return (lines[0], lines[2].split(), lines[3].split()) == (
        NAME * 3,
        [NAME, *("number",) * 9],
        ["n", *("4000",) * 9],
    )


def test_a_pipe_has_whole_names_and_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys)
    assert are_whole(lines)
    assert lines[4] == "yes"


def test_a_terminal_has_whole_names_too_in_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    lines = shown(capsys)
    assert are_whole(lines)
    assert lines[4] == "\x1b[32myes\x1b[0m"


def test_no_line_has_more_of_the_terminal_than_its_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    made = terminal.columns("NODE", "VERSION")
    made.add_row("n", "0.1.0.dev12+g0123456789ab")
    terminal.show(made)
    assert capsys.readouterr().out.splitlines()[0] == "\x1b[1mNODE\x1b[0m\x1b[1m   \x1b[0m\x1b[1mVERSION\x1b[0m"


def test_no_color_leaves_neither_colours_nor_bold_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.show("[bold]farm[/]", terminal.good_or_bad("Failed", good=False), table())
    said = capsys.readouterr().out
    assert said.startswith("farm\nFailed\n")
    assert "\x1b" not in said


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_page_of_a_height_cuts_with_a_sign_and_leaves_names_a_width(width: int) -> None:
    narrow = Console(width=width, file=io.StringIO())
    with narrow.capture() as captured:
        narrow.print(terminal.with_names(table(), width))
    lines = [line.split() for line in captured.get().splitlines()]
    assert lines[1][0].startswith(NAME[:11])
    assert lines[1][0].endswith("…")
    assert lines[2][0] == "n"
    assert all(word == "4000" or word.endswith("…") for word in lines[2][1:])
