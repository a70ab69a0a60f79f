"""Forwards TCP connections: ``forwarder.py PORT HOST PORT`` listens on 127.0.0.1 until it is killed."""

import asyncio
import sys
from contextlib import suppress

_CHUNK = 1 << 16


async def main(port: str, to_host: str, to_port: str) -> None:
    async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK):
                to.write(chunk)
                await to.drain()
        to.close()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(to_host, int(to_port))
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    server = await asyncio.start_server(join, "127.0.0.1", int(port))
    print("listening", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
