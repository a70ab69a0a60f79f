"""A network namespace of its own for the session, with a real nftlb in it."""

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from lab import build, programs
from tests.contract import servers
from tests.contract.nftables_node import Node

_CLONE_NEWNET = 0x40000000
PORT = 5555


@pytest.fixture(scope="session")
def patched_nftlb() -> Path:
    """The nftlb with our patches, as the lab and the image have it."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a network namespace of its own")
    return build.nftlb(programs.cache_folder(), print)


@pytest.fixture(scope="session")
def debian_nftlb() -> Path:
    """Debian's nftlb, without our patches."""
    return programs.debians("nftlb", print)


@pytest.fixture(scope="session")
def private_network(
    patched_nftlb: Path,  # noqa: ARG001 - both are fetched while there is a network
    debian_nftlb: Path,  # noqa: ARG001
) -> Iterator[None]:
    """This thread, and what it starts, sees a network namespace with nothing but a loopback device."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/proc/self/task/{threading.get_native_id()}/ns/net").open() as before:
        if libc.unshare(_CLONE_NEWNET) != 0:
            pytest.skip(f"needs network namespaces: {os.strerror(ctypes.get_errno())}")
        with IPRoute() as ip:
            ip.link("set", index=1, state="up")
        yield
        libc.setns(before.fileno(), _CLONE_NEWNET)


@pytest.fixture(scope="session")
def endpoint_servers(private_network: None) -> Iterator[None]:  # noqa: ARG001 - by name
    """Servers on the endpoints' addresses."""
    with servers.start() as server:
        yield
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture
def endpoints(endpoint_servers: None) -> Iterator[None]:  # noqa: ARG001 - by name
    """Endpoints that answer, and a kernel without rules."""
    yield
    subprocess.run(["nft", "flush", "ruleset"], check=True)


@pytest.fixture
async def node(endpoints: None, tmp_path: Path) -> AsyncIterator[Node]:  # noqa: ARG001 - by name
    """A node with the engine of nftables maps, and endpoints that answer."""
    node = await Node.open(tmp_path)
    yield node
    node.close()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def real_nftlb(private_network: None, patched_nftlb: Path, run_dir: Path) -> Iterator[Path]:  # noqa: ARG001 - by name
    """A freshly started nftlb; the path of its key."""
    with started(patched_nftlb, run_dir) as key:
        yield key


@contextmanager
def started(nftlb: Path, run_dir: Path) -> Iterator[Path]:
    """Run an nftlb; its key's path. With it goes all that the kernel has."""
    program = [str(nftlb), "-H", "127.0.0.1", "-P", str(PORT), "-l", "5", "-L", "2"]
    key = run_dir / "nftlb.key"
    key.write_text("the-key")
    with (run_dir / "nftlb.log").open("wb") as log:
        process = subprocess.Popen(
            program, stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, "NFTLB_SERVER_KEY": "the-key"}
        )
        try:
            _wait_for_port()
            yield key
        finally:
            process.kill()
            process.wait()
            subprocess.run(["nft", "flush", "ruleset"], check=True)


def _wait_for_port() -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("nftlb does not listen")
