"""Servers on the addresses of the loopback device that stand for endpoints; each answers with its address.

They are a program of their own, ``python servers.py``: a thread of pytest would accept too slowly while tests compute,
and connections beyond its backlog would seem to wait for rules.
"""

import contextlib
import select
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
    """Serve until the standard input ends."""
    with socket.create_server(("0.0.0.0", PORT), backlog=4096) as server:
        print("serving", flush=True)
        while server in select.select([server, sys.stdin], [], [])[0]:
            connection, _ = server.accept()
            # Clients may have gone.
            with connection, contextlib.suppress(OSError):
                connection.sendall(connection.getsockname()[0].encode())


if __name__ == "__main__":
    main()
