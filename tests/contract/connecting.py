"""A client that connects all the time, as a program of its own: ``python connecting.py ADDRESS PORT PATIENCE_S``.

Each attempt comes from an address of its own (127.0.0.0/8), so that none is a client which a farm remembers. It lasts
so long at most; less than a second, so that none waits for TCP to repeat a packet. Who is connected waits for the
answer: the server's backlog would overflow, and the kernel drop packets, where the client got more processor time than
it. The program ends with its standard input, and prints what came of all attempts, and the longest time in seconds
without one that was served.
"""

import itertools
import json
import select
import socket
import sys
import time
from collections import Counter
from ipaddress import IPv4Address

_ANSWER_S = 10


def main() -> None:
    """Connect until told to stop."""
    address, port, patience_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    counts: Counter[str] = Counter()
    clients = itertools.cycle(range(0x7F010001, 0x7FFFFFFF))
    longest_s, served_at = 0.0, time.monotonic()
    print("begun", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        with socket.socket() as opened:
            opened.settimeout(patience_s)
            opened.bind((str(IPv4Address(next(clients))), 0))
            try:
                opened.connect((address, port))
            except TimeoutError:
                counts["waited"] += 1
            except OSError as error:
                counts[type(error).__name__] += 1
            else:
                longest_s, served_at = max(longest_s, time.monotonic() - served_at), time.monotonic()
                opened.settimeout(_ANSWER_S)
                counts[_answer(opened)] += 1
    print(json.dumps({"counts": counts, "longest_s": longest_s}))


def _answer(opened: socket.socket) -> str:
    try:
        return "served" if opened.recv(100) else "closed"
    except OSError:
        return "cut"


if __name__ == "__main__":
    main()
