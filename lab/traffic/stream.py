"""``stream``: one slow download, and if it completed; prints to standard error when it has begun."""

import sys
from typing import Any

from lab.traffic.ask import Target, connect, kind_of
from lab.traffic.http import Head, parse_head


def stream(target: Target, count: int, rate: float) -> dict[str, Any]:
    """Download ``count`` bytes at ``rate`` bytes per second."""
    head: Head | None = None
    data, received, failure = b"", 0, None
    try:
        with connect(target) as connection:
            request = f"GET /bytes?count={count}&rate={rate} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            while chunk := connection.recv(1 << 16):
                if head is not None:
                    received += len(chunk)
                    continue
                data += chunk
                if (head := parse_head(data)) is not None:
                    received = len(data) - head.body_start
                    print("begun", file=sys.stderr, flush=True)
    except (OSError, ValueError) as error:
        failure = kind_of(error)
    pod = head.headers.get("x-pod") if head else None
    return {"bytes": received, "complete": received == count, "pod": pod, "failure": failure}
