"""Requests to a running process of the lab: one line of JSON each way over a Unix socket."""

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kube_nftlb import errors

Reply = dict[str, Any]
Handler = Callable[[Reply], Awaitable[Reply]]


def bind(path: Path) -> socket.socket:
    """Return a socket bound to a path, replacing an earlier one."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _Folder(path) as folder:
        listener.bind(f"{folder}/{path.name}")
    return listener


async def serve(path: Path, handler: Handler) -> asyncio.Server:
    """Answer requests. A LabError of the handler is raised as LabError in the caller."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                try:
                    reply = await handler(json.loads(line))
                except errors.KubeNftlbError as error:
                    reply = {"error": str(error)}
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    return await asyncio.start_unix_server(answer, sock=bind(path))


def call(path: Path, request: Reply, timeout_s: float = 30) -> Reply:
    """Send a request and return the reply. Raises LabError if it is refused or not answered."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            with _Folder(path) as folder:
                connection.connect(f"{folder}/{path.name}")
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        raise errors.LabError(f"the lab does not answer on {path}: {error}") from error
    if not line:
        raise errors.LabError(f"the lab closed the connection during {request.get('do')!r}")
    reply: Reply = json.loads(line)
    if "error" in reply:
        raise errors.LabError(reply["error"])
    return reply


class _Folder:
    """A short path to a socket's folder: the kernel limits socket paths to 107 bytes; home folders may be longer."""

    def __init__(self, path: Path) -> None:
        self._path = path.parent

    def __enter__(self) -> str:
        self._descriptor = os.open(self._path, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
