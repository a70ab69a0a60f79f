"""``stream``: one slow download, and if it completed; prints to standard error when it has begun."""

import sys
import threading
from typing import Any

from lab.traffic.ask import Target, connect, kind_of
from lab.traffic.http import Head, parse_head

_LONGEST_S = 600


def stream(target: Target, rate: int, stop: threading.Event) -> dict[str, Any]:
    """Download at ``rate`` bytes per second until ``stop`` is set, and then another second's worth."""
    head: Head | None = None
    data, received, failure = b"", 0, None
    enough = count = rate * _LONGEST_S
    try:
        with connect(target) as connection:
            request = f"GET /bytes?count={count}&rate={rate} HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            while received < enough and (chunk := connection.recv(1 << 16)):
                if head is not None:
                    received += len(chunk)
                    if stop.is_set():
                        enough = min(enough, received + rate)
                    continue
                data += chunk
                if (head := parse_head(data)) is not None:
                    received = len(data) - head.body_start
                    print("begun", file=sys.stderr, flush=True)
    except (OSError, ValueError) as error:
        failure = kind_of(error)
    pod = head.headers.get("x-pod") if head else None
    return {"bytes": received, "complete": received >= enough, "pod": pod, "failure": failure}
