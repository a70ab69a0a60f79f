"""The words of a command line: options before the command, and durations. No I/O."""

import re
from collections.abc import Sequence
from typing import Final

import typer

_WITH_VALUE: Final = ("--context", "--kubeconfig", "--namespace", "-n", "--output", "-o")
_WITHOUT: Final = ("--all-namespaces", "-A")
_SHORT: Final = ("-n", "-o")
BEFORE_COMMANDS: Final = frozenset((*_WITH_VALUE, *_WITHOUT))
"""Options of commands that may also stand before these."""
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def command_first(words: Sequence[str]) -> list[str]:
    """Return a command line with the options that are before the command behind it, as kubectl takes both.

    >>> command_first(["--context", "far", "get", "web"])
    ['get', '--context', 'far', 'web']
    """
    number = 0
    while number < len(words):
        name, equals, _ = words[number].partition("=")
        if name in _WITHOUT or (name.startswith(_SHORT) and len(name) > 2 and not name.startswith("--")):
            number += 1
        elif name in _WITH_VALUE:
            number += 1 if equals else 2
        else:
            break
    return [*words[number : number + 1], *words[:number], *words[number + 1 :]]


def duration(text: str | float) -> float:
    """Return a duration in seconds: ``60s``, ``1m30s``, ``500ms``, ``2h``, or plain seconds, such as ``60``.

    Raises typer.BadParameter for anything else.
    """
    words = str(text)
    if re.fullmatch(r"\d+(\.\d+)?", words):
        return float(words)
    if not re.fullmatch(f"(?:{_PART.pattern})+", words):
        raise typer.BadParameter(f"{words!r} is not a duration, such as 60s, 2m, 1m30s or 60 (seconds)")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(words))
