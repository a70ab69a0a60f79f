"""The API server's answers."""

from collections.abc import AsyncIterator

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
