"""A small FTP server, which says when it is ready, and a client that tells what it saw, each run in a pod.

Their arguments are ``serve`` and ``fetch HOST PORT MODE``.
"""

import ftplib
import json
import re
import socket
import socketserver
import sys

CONTENT = b"what the file holds\n" * 1000


class Session(socketserver.StreamRequestHandler):
    """A control connection."""

    def handle(self) -> None:
        self._say("220 ready")
        listener: socket.socket | None = None
        target: tuple[str, int] | None = None
        for line in self.rfile:
            command, _, argument = line.decode().strip().partition(" ")
            match command.upper():
                case "USER":
                    self._say("230 welcome")
                case "PASV" | "EPSV":
                    listener, target = self._listener(), None
                    self._say(self._passive(command.upper(), listener))
                case "PORT":
                    numbers = argument.split(",")
                    target = ".".join(numbers[:4]), int(numbers[4]) * 256 + int(numbers[5])
                    self._say(f"200 to {target[0]}")
                case "EPRT":
                    _, _, host, port, _ = argument.split(argument[0])
                    target = host, int(port)
                    self._say(f"200 to {host}")
                case "RETR":
                    self._say("150 here it comes")
                    if target is not None:
                        data = socket.create_connection(target, timeout=5)
                    else:
                        assert listener is not None
                        listener.settimeout(5)
                        data = listener.accept()[0]
                    with data:
                        data.sendall(CONTENT)
                    self._say("226 done")
                case "QUIT":
                    self._say("221 bye")
                    return
                case _:
                    self._say("200 as you like")

    def _listener(self) -> socket.socket:
        ip = self.request.getsockname()[0].removeprefix("::ffff:")
        return socket.create_server((ip, 0), family=socket.AF_INET6 if ":" in ip else socket.AF_INET)

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())

    @staticmethod
    def _passive(command: str, listener: socket.socket) -> str:
        ip, port = listener.getsockname()[:2]
        if command == "EPSV":
            return f"229 Extended Passive Mode (|||{port}|)"
        return f"227 Passive Mode ({ip.replace('.', ',')},{port // 256},{port % 256})"


class Server(socketserver.ThreadingTCPServer):
    """Listens on every address of the pod."""

    address_family = socket.AF_INET6
    allow_reuse_address = True
    daemon_threads = True


class Client(ftplib.FTP):
    """Connects where the server says, and remembers where that was."""

    trust_server_pasv_ipv4_address = True

    def makepasv(self) -> tuple[str, int]:
        self.data_host, port = super().makepasv()
        return self.data_host, port

    def getresp(self) -> str:
        response = super().getresp()
        if found := re.fullmatch("200 to (.*)", response):
            self.data_host = found[1]
        return response


def fetch(host: str, port: int, *, passive: bool) -> dict[str, object]:
    """Fetch a file; whether it came whole, and the address for the data that the other side was told or told us."""
    received = bytearray()
    client = Client(timeout=10)
    client.connect(host, port)
    client.login()
    client.set_pasv(passive)
    client.retrbinary("RETR file", received.extend)
    client.quit()
    return {"complete": bytes(received) == CONTENT, "data": client.data_host}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        with Server(("::", 21), Session) as server:
            print("ready", flush=True)
            server.serve_forever()
    else:
        sys.stdout.write(json.dumps(fetch(sys.argv[2], int(sys.argv[3]), passive=sys.argv[4] == "passive")))
