"""What the pods of a lab answer. Computation only."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """Who answered, and whom that pod took for the asker."""

    pod: str
    peer: str


@dataclass(frozen=True)
class Head:
    """The head of an HTTP answer."""

    status: int
    headers: dict[str, str]
    body_start: int


def parse_line(text: bytes) -> Answer:
    """A ``<pod> <peer>`` line. Raises ValueError for anything else."""
    pod, peer = text.decode().split()
    return Answer(pod, peer)


def parse_head(data: bytes) -> Head | None:
    """The head, or None while it is not complete. Raises ValueError when this is not HTTP."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    status_line, *lines = data[:end].decode().split("\r\n")
    version, status, *_ = status_line.split()
    if not version.startswith("HTTP/"):
        raise ValueError(f"not an HTTP answer: {status_line!r}")
    pairs = (line.partition(":") for line in lines)
    return Head(int(status), {key.strip().lower(): value.strip() for key, _, value in pairs}, end + 4)


def parse_answer(data: bytes) -> Answer:
    """A complete HTTP answer whose body is such a line. Raises ValueError."""
    head = parse_head(data)
    if head is None or head.status != 200:
        raise ValueError(f"no answer of a pod: {data[:100]!r}")
    return parse_line(data[head.body_start :])
