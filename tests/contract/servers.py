"""Servers on the addresses of the loopback device that stand for endpoints; each answers with its address.

They are a program of their own, ``python servers.py``: a thread of pytest would accept too slowly while tests compute,
and connections beyond its backlog would seem to wait for rules.
"""

import contextlib
import selectors
import socket
import subprocess
import sys

ENDPOINTS = [f"10.244.0.{number}" for number in range(1, 6)]
PORT = 8080


def start() -> subprocess.Popen[str]:
    """Serve on all endpoints, in this thread's network namespace, until the standard input of what is returned ends."""
    for command in (
        *(f"ip addr replace {ip}/32 dev lo" for ip in ENDPOINTS),
        "ip route replace 10.96.0.0/16 dev lo",
        "ip route replace local 10.200.0.0/16 dev lo",
        "sysctl -qw net.ipv4.conf.all.route_localnet=1",
    ):
        subprocess.run(command.split(), check=True)
    server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    server.stdout.readline()
    return server


def main() -> None:
    """Serve until the standard input ends.

    The client closes first: a server that does remembers the connection (TIME_WAIT), and drops the first packet of the
    next one from the same address and port, for example by way of another Service.
    """
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        listener = stack.enter_context(socket.create_server(("0.0.0.0", PORT), backlog=4096))
        for each in (listener, sys.stdin):
            selector.register(each, selectors.EVENT_READ)
        print("serving", flush=True)
        while ready := [key.fileobj for key, _ in selector.select()]:
            if sys.stdin in ready:
                return
            for each in ready:
                if each is listener:
                    connection, _ = listener.accept()
                    # Clients may have gone.
                    with contextlib.suppress(OSError):
                        connection.sendall(connection.getsockname()[0].encode())
                    selector.register(stack.enter_context(connection), selectors.EVENT_READ)
                elif isinstance(each, socket.socket):
                    selector.unregister(each)
                    each.close()


if __name__ == "__main__":
    main()
