"""What commands print."""

import asyncio
import io

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
    return made


def test_a_pipe_has_whole_names(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(terminal.plain(NAME * 3), table())
    assert NAME * 3 in capsys.readouterr().out.splitlines()
    terminal.show(table())
    assert capsys.readouterr().out.splitlines()[1].split() == [NAME, *("number",) * 9]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_names_stay_and_numbers_are_not_cut_without_a_sign(width: int) -> None:
    made = table()
    made.add_row("n", *("4000",) * 9)
    narrow = Console(width=width, file=io.StringIO())
    with narrow.capture() as captured:
        narrow.print(terminal.with_names(made, width))
    lines = [line.split() for line in captured.get().splitlines()]
    assert "".join(line[0] for line in lines[1:-1]) == NAME
    assert lines[-1][0] == "n"
    assert all(word == "4000" or word.endswith("…") for word in lines[-1][1:])


def test_only_names_wrap_on_a_narrow_terminal() -> None:
    narrow = Console(width=140, file=io.StringIO())
    with narrow.capture() as captured:
        narrow.print(table())
    lines = captured.get().splitlines()
    assert lines[0].split() == ["NODE", *(word for number in range(9) for word in ("COLUMN", str(number)))]
    second = lines[0].index("COLUMN 0")
    assert "".join(line[:second].strip() for line in lines[1:]) == NAME
