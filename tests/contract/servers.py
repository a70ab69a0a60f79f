"""Servers on the addresses of the loopback device that stand for endpoints; each answers with its address."""

import socket
import subprocess
import threading

ENDPOINTS = [f"10.244.0.{number}" for number in range(1, 6)]
PORT = 8080


def start() -> None:
    """Serve on all endpoints, in this thread's network namespace, until the program ends."""
    for command in (
        *(f"ip addr replace {ip}/32 dev lo" for ip in ENDPOINTS),
        "ip route replace 10.96.0.0/16 dev lo",
        "ip route replace local 10.200.0.0/16 dev lo",
        "sysctl -qw net.ipv4.conf.all.route_localnet=1",
    ):
        subprocess.run(command.split(), check=True)
    server = socket.create_server(("0.0.0.0", PORT), backlog=4096)
    threading.Thread(target=_answer, args=(server,), daemon=True).start()


def _answer(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(connection.getsockname()[0].encode())
