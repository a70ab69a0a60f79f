"""The API server's answers, and why there are none."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from kube_nftlb.kube import responses


@pytest.mark.parametrize("size", [1, 3, 64, 1_000_000])
async def test_events_are_split_whatever_their_length_and_the_packets(size: int) -> None:
    lines = [b"a", b"b" * 300_000, b"", b"c"]
    stream = b"\n".join(lines)

    async def packets() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), size):
            yield stream[start : start + size]

    assert [line async for line in responses.lines(packets())] == lines


async def test_a_server_that_closes_during_the_tls_handshake_is_told_with_a_reason() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await session.get(f"https://127.0.0.1:{port}")
    assert responses.why_unreachable(caught.value) == f"cannot connect to 127.0.0.1 port {port}: connection reset error"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
        (ValueError("Input data was truncated"), "Input data was truncated"),
        (TimeoutError(), "no answer in time"),
    ],
)
def test_why_there_is_no_answer_has_no_words_of_python(error: Exception, expected: str) -> None:
    assert responses.why_unreachable(error) == expected
