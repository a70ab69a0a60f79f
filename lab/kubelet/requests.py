"""Parse HTTP/1.1 requests from a stream of bytes. Computation only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REQUEST_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.([01])\r?\n")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True)
class Request:
    """One request, its body discarded, or a plain line, which has no method."""

    method: str = ""
    target: str = ""
    close: bool = False
    body_length: int = 0

    @property
    def is_plain_line(self) -> bool:
        """True if the client does not speak HTTP."""
        return not self.method


class RequestParser:
    """An incremental parser of requests."""

    def __init__(self) -> None:
        self._buffer = b""
        self._body_left = 0
        self._pending: Request | None = None

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._body_left:
            taken = min(self._body_left, len(data))
            self._body_left -= taken
            data = data[taken:]
        self._buffer += data

    def next(self) -> Request | None:
        """Return the next complete request, or None."""
        if self._pending is None:
            self._pending = self._take_head()
        if self._pending is None or self._body_left:
            return None
        request, self._pending = self._pending, None
        return request

    def _take_head(self) -> Request | None:
        line_end = self._buffer.find(b"\n")
        if line_end < 0:
            return None
        if (line := _REQUEST_LINE.match(self._buffer)) is None:
            self._buffer = self._buffer[line_end + 1 :]
            return Request()
        if (end := _END_OF_HEAD.search(self._buffer)) is None:
            return None
        headers = _headers(self._buffer[line.end() : end.start()])
        length_text = headers.get("content-length", "")
        length = int(length_text) if length_text.isdecimal() else 0
        rest = self._buffer[end.end() :]
        self._body_left = max(0, length - len(rest))
        self._buffer = rest[length:]
        # HTTP/1.0 closes by default.
        connection = headers.get("connection", "keep-alive" if line[3] == b"1" else "close").lower()
        return Request(line[1].decode(), line[2].decode(errors="replace"), "close" in connection, length)


def response_head(length: int, close: bool, more: Mapping[str, str] | None = None) -> bytes:
    """Return the head of a 200 response with a body of this length."""
    headers = {
        "Content-Type": "text/plain",
        "Content-Length": str(length),
        "Connection": "close" if close else "keep-alive",
        **(more or {}),
    }
    lines = ["HTTP/1.1 200 OK", *(f"{key}: {value}" for key, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _headers(head: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in head.decode(errors="replace").splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}
