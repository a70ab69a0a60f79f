"""Stands between a node's agent and its nftlb, and spoils the answers."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kube_nftlb.settings import NftlbSettings
from tests.functional.cluster import Cluster

PORT = 5556
OWN_IP = "127.0.0.2"
"""From which the proxy connects to nftlb, so that these connections are not led back to it."""
TABLE = "ip faults-nftlb"
_PATIENCE_S = 60.0
_RULES = """
table {table} {{
    chain output {{
        type nat hook output priority -150
        ip saddr != {own} ip daddr 127.0.0.1 tcp dport {nftlb} redirect to :{port}
    }}
}}
"""


def answer(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


Spoil = Callable[[bytes, Callable[[], bytes]], bytes]
"""Gets a request, and what asks nftlb; returns what the agent gets."""


def as_it_is(_: bytes, ask: Callable[[], bytes]) -> bytes:
    return ask()


def garbage(_: bytes, _ask: Callable[[], bytes]) -> bytes:
    return answer("200 OK", bytes(range(256)) * 4)


def no_http(_: bytes, _ask: Callable[[], bytes]) -> bytes:
    return b"\x00\xff\x00garbage\r\n\r\n"


def error_500(_: bytes, _ask: Callable[[], bytes]) -> bytes:
    return answer("500 Internal Server Error", b"")


def half(_: bytes, ask: Callable[[], bytes]) -> bytes:
    whole = ask()
    return whole[: len(whole) // 2]


def half_json(_: bytes, _ask: Callable[[], bytes]) -> bytes:
    """A whole answer as far as HTTP tells."""
    return answer("200 OK", b'{"farms": [{"name": "on')


def nothing(_: bytes, _ask: Callable[[], bytes]) -> bytes:
    return b""


def no_effect(request: bytes, ask: Callable[[], bytes]) -> bytes:
    return ask() if request.startswith(b"GET") else answer("200 OK", b'{"response": "success"}')


@dataclass
class NftlbProxy:
    """Answers in the place of nftlb on one node, while ``between`` lasts."""

    cluster: Cluster
    node: str
    spoil: Spoil = as_it_is
    requests: list[str] = field(default_factory=list)
    """The methods and paths of what was answered."""

    @contextlib.contextmanager
    def between(self) -> Iterator["NftlbProxy"]:
        listener = self.cluster.lab.inside(
            self.node, lambda: socket.create_server(("127.0.0.1", PORT), backlog=64, reuse_port=True)
        )
        nftlb = NftlbSettings.from_environment(self.cluster.lab.environment(self.node)).port
        server = threading.Thread(target=self._serve, args=(listener, nftlb), daemon=True)
        server.start()
        rules = _RULES.format(table=TABLE, own=OWN_IP, nftlb=nftlb, port=PORT)
        done = self.cluster.lab.exec(self.node, "nft", "-f", "-", input=rules)
        assert done.returncode == 0, done.stderr
        try:
            yield self
        finally:
            self.cluster.nft(self.node, f"delete table {TABLE}")
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            server.join()

    def _serve(self, listener: socket.socket, nftlb: int) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                agent, _ = listener.accept()
                threading.Thread(target=self._answer, args=(agent, nftlb), daemon=True).start()

    def _answer(self, agent: socket.socket, nftlb: int) -> None:
        with agent, contextlib.suppress(OSError):
            agent.settimeout(_PATIENCE_S)
            request = _whole(agent)
            self.requests.append(request.partition(b" HTTP")[0].decode(errors="replace"))
            agent.sendall(self.spoil(request, lambda: self._ask(request, nftlb)))

    def _ask(self, request: bytes, nftlb: int) -> bytes:
        def connect() -> socket.socket:
            return socket.create_connection(("127.0.0.1", nftlb), _PATIENCE_S, (OWN_IP, 0))

        with self.cluster.lab.inside(self.node, connect) as daemon:
            daemon.sendall(request)
            return b"".join(iter(lambda: daemon.recv(65536), b""))


def _whole(connection: socket.socket) -> bytes:
    """Read a request to the end of its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        data += (chunk := _some(connection))
        missing -= len(chunk)
    return data


def _some(connection: socket.socket) -> bytes:
    if not (chunk := connection.recv(65536)):
        raise ConnectionResetError("closed within a request")
    return chunk
