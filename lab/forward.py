"""Forward connections from the host to the API server inside the lab."""

import asyncio
import socket
from contextlib import suppress

from lab import addresses

_CHUNK = 1 << 18


async def serve(listener: socket.socket) -> asyncio.Server:
    """Forward every connection of the listener, which may belong to another network namespace, to the API server."""
    return await asyncio.start_server(_join, sock=listener)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        far_reader, far_writer = await asyncio.open_connection(addresses.API_HOST, addresses.API_PORT)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
    finally:
        writer.close()
        far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        # One side has closed; the other may continue.
        writer.write_eof()
        return
    writer.transport.abort()
