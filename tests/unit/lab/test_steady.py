import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from lab.traffic.echo import echo
from lab.traffic.steady import Steady, Stream

MS = 1_000_000


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine on which ``echo`` serves."""
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::", 0))
        number: int = probe.getsockname()[1]
    stop = threading.Event()
    server = threading.Thread(target=echo, args=(number, stop))
    server.start()
    while True:
        try:
            socket.create_connection(("127.0.0.1", number), 1).close()
            break
        except ConnectionRefusedError:
            continue
    yield number
    stop.set()
    server.join()


def test_all_kinds_of_attempts_succeed_in_both_families(port: int) -> None:
    streams = [
        Stream(f"{kind} {host}", kind, host, port, 5 * MS)
        for kind in ("tcp", "tcp-fixed", "udp", "udp-fixed")
        for host in ("127.0.0.1", "::1")
    ]
    result = Steady(streams).run(threading.Event(), 0.5)
    assert set(result["streams"]) == {stream.name for stream in streams}
    for record in result["streams"].values():
        assert record["attempts"] > 5
        assert record["failed"] == []


def test_refused_attempts_are_failures(port: int) -> None:
    with socket.socket(socket.AF_INET6) as unused, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as silent:
        unused.bind(("::", 0))
        silent.bind(("::", 0))
        closed = unused.getsockname()[1]
        streams = [
            Stream("tcp", "tcp", "127.0.0.1", closed, 50 * MS),
            Stream("open", "tcp-fixed", "127.0.0.1", closed, 50 * MS),
            Stream("udp", "udp", "127.0.0.1", closed, 50 * MS),
            Stream("silent", "udp-fixed", "127.0.0.1", silent.getsockname()[1], 50 * MS),
            Stream("good", "tcp", "127.0.0.1", port, 50 * MS),
        ]
        result = Steady(streams).run(threading.Event(), 0.3)["streams"]
    kinds = {name: {how for _, _, how in record["failed"]} for name, record in result.items()}
    assert kinds == {
        "tcp": {"refused"},
        "open": {"refused"},
        "udp": {"refused"},
        "silent": {"no answer"},
        "good": set(),
    }
    for record in result.values():
        assert len(record["failed"]) in (0, record["attempts"])


def test_an_open_connection_that_is_reset_is_a_failure_and_opened_anew() -> None:
    reset = struct.pack("ii", 1, 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            for _ in range(2):
                connection, _peer = server.accept()
                connection.recv(8)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                connection.close()
            done.set()

        thread = threading.Thread(target=serve)
        thread.start()
        stream = Stream("open", "tcp-fixed", "127.0.0.1", server.getsockname()[1], 20 * MS)
        record = Steady([stream]).run(done, 10)["streams"]["open"]
        thread.join()
    assert {how for _, _, how in record["failed"]} == {"ECONNRESET"}
