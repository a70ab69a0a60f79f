"""Texts of others as a terminal may have them: it takes some characters for commands. Pure: no I/O."""

from typing import Final

_WHITESPACE: Final = "\n\t"


def printable(text: str) -> str:
    """Return a text with a question mark for each character that is not printed, but for ends of lines and tabs."""
    return "".join(letter if letter.isprintable() or letter in _WHITESPACE else "?" for letter in text)
