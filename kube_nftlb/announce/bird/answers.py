"""What BIRD says of its sessions, on its control socket. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_LINE: Final = re.compile(r"(?:(\d{4})[- ]| )(.*)")
_EXPORTED: Final = re.compile(r"(\d+) exported")
_PROTOCOL: Final = "1002"
ERRORS: Final = "8", "9"
"""The first digit of codes with which an answer ends that says what is wrong."""


class Session(NamedTuple):
    """A BGP session."""

    protocol: str
    """BIRD's name for the peer."""
    state: str
    """As BIRD calls it: Established, Connect, Active, Idle and others."""
    prefixes: int
    """Routes that the peer was told of."""
    error: str = ""
    """The last error, or why it is switched off; empty if there is none."""


def is_last(line: str) -> bool:
    """Return whether a line ends an answer: its code is followed by a space, and says how the request went."""
    return re.match(r"(0|8|9)\d{3} ", line) is not None


def error(lines: Iterable[str]) -> str:
    """Return what is wrong with a request, by its answer; empty if nothing is."""
    return next((line[5:].strip() for line in lines if line.startswith(ERRORS)), "")


def sessions(lines: Iterable[str]) -> list[Session]:
    """Return the BGP sessions in the answer to ``show protocols all``."""
    found: list[Session] = []
    for line in _texts(lines):
        if isinstance(line, _Protocol):
            if line.kind == "BGP":
                found.append(Session(line.name, line.info or line.state, 0))
            bgp = line.kind == "BGP"
        elif found and bgp:
            found[-1] = _with(found[-1], line)
    return found


def bfd_intervals_ms(lines: Iterable[str]) -> dict[str, int]:
    """Return the interval of BFD with each router in milliseconds, by its address, from ``show bfd sessions``.

    It is the longer one of what this node wants to send and of what the router wants to receive. Sessions that are not
    up are left out: they are idle.
    """
    words = (line.split() for line in lines)
    # The address, the interface, the state, since when, the interval and the timeout in seconds.
    return {each[0]: round(float(each[4]) * 1000) for each in words if len(each) == 6 and each[2] == "Up"}


class _Protocol(NamedTuple):
    name: str
    kind: str
    state: str
    info: str


def _texts(lines: Iterable[str]) -> Iterator[_Protocol | str]:
    code = ""
    for line in lines:
        if (match := _LINE.match(line)) is None:
            continue
        code = match[1] or code
        words = match[2].split()
        if match[1] == _PROTOCOL and len(words) >= 4:
            # The name, the kind, the table, the state, since when, and what more the protocol says.
            yield _Protocol(words[0], words[1], words[3], words[5] if len(words) > 5 else "")
        else:
            yield match[2].strip()


def _with(session: Session, line: str) -> Session:
    key, _, value = line.partition(":")
    value = value.strip()
    if key == "BGP state":
        return session._replace(state=value)
    if key in ("Last error", "Description"):
        return session._replace(error=session.error or value)
    if key == "Routes" and (number := _EXPORTED.search(value)) is not None:
        return session._replace(prefixes=session.prefixes + int(number[1]))
    return session
