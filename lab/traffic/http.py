"""Parse the replies of a lab's pods. Computation only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """The pod that replied, and the client address it saw."""

    pod: str
    peer: str


@dataclass(frozen=True)
class Head:
    """The head of an HTTP response."""

    status: int
    headers: dict[str, str]
    body_start: int


def parse_line(text: bytes) -> Answer:
    """Parse a ``<pod> <peer>`` line. Raises ValueError for anything else."""
    pod, peer = text.decode().split()
    return Answer(pod, peer)


def parse_head(data: bytes) -> Head | None:
    """Parse the head, or return None if it is incomplete. Raises ValueError if it is not HTTP."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    status_line, *lines = data[:end].decode().split("\r\n")
    version, status, *_ = status_line.split()
    if not version.startswith("HTTP/"):
        raise ValueError(f"not an HTTP response: {status_line!r}")
    pairs = (line.partition(":") for line in lines)
    return Head(int(status), {key.strip().lower(): value.strip() for key, _, value in pairs}, end + 4)


def parse_answer(data: bytes) -> Answer:
    """Parse a complete HTTP response with such a line as body. Raises ValueError."""
    head = parse_head(data)
    if head is None or head.status != 200:
        raise ValueError(f"not a pod's reply: {data[:100]!r}")
    return parse_line(data[head.body_start :])
