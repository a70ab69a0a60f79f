"""``echo``: send back what comes, over TCP and UDP, until SIGTERM. For ``steady``."""

import contextlib
import selectors
import socket
import sys
import threading

_BACKLOG = 4096
_BUFFER_BYTES = 4 << 20
_AT_ONCE = 64
_LOOK_S = 0.2


def echo(port: int, stop: threading.Event) -> dict[str, int]:
    """Serve a port of all addresses until ``stop`` is set. Return how many connections and datagrams there were."""
    counts = {"connections": 0, "datagrams": 0}
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        listener = stack.enter_context(
            socket.create_server(("::", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        )
        datagrams = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
        datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        datagrams.bind(("::", port))
        for each in (listener, datagrams):
            each.setblocking(False)
            selector.register(each, selectors.EVENT_READ)
        print("begun", file=sys.stderr, flush=True)
        while not stop.is_set():
            for key, _ in selector.select(_LOOK_S):
                if key.fileobj is listener:
                    counts["connections"] += _accept(listener, selector)
                elif key.fileobj is datagrams:
                    counts["datagrams"] += _send_back(datagrams)
                elif isinstance(key.fileobj, socket.socket) and not _answer(key.fileobj):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
        for key in selector.get_map().values():
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
    return counts


def _accept(listener: socket.socket, selector: selectors.BaseSelector) -> int:
    number = 0
    with contextlib.suppress(OSError):  # nobody waits any more
        for _ in range(_AT_ONCE):
            connection, _peer = listener.accept()
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ)
            number += 1
    return number


def _send_back(datagrams: socket.socket) -> int:
    number = 0
    with contextlib.suppress(OSError):  # nothing left, or the client is gone
        for _ in range(_AT_ONCE):
            datagrams.sendto(*datagrams.recvfrom(65536))
            number += 1
    return number


def _answer(connection: socket.socket) -> bool:
    """Send back what a client sent; return False if it is gone."""
    try:
        data = connection.recv(65536)
        return bool(data) and connection.send(data) == len(data)
    except OSError:
        return False
