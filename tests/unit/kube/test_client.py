"""The API server's lists and watches."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import pytest

from kube_nftlb import errors
from kube_nftlb.kube import client, reflector
from kube_nftlb.kube.client import Kube, Listing, WatchEvent
from kube_nftlb.kube.resources import FARMS, SERVICES, Resource


@pytest.mark.parametrize("size", [1, 3, 64, 1_000_000])
async def test_events_are_told_apart_whatever_their_length_and_that_of_the_packets(size: int) -> None:
    lines = [b"a", b"b" * 300_000, b"", b"c"]
    stream = b"\n".join(lines)

    async def packets() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), size):
            yield stream[start : start + size]

    assert [line async for line in client._lines(packets())] == lines  # noqa: SLF001 - what the watch is made of


class _ApiServer:
    """Refuses or fails as it is told, in turn, and remembers from which version on it was asked for a list."""

    def __init__(self, lists: list[Exception | str], watches: list[Exception]) -> None:
        self.asked: list[str | None] = []
        self._lists = iter(lists)
        self._watches = iter(watches)

    async def list(self, _: Resource, __: str | None, *, not_older_than: str | None, **___: object) -> Listing:
        self.asked.append(not_older_than)
        match next(self._lists):
            case str() as version:
                return Listing([], version)
            case error:
                raise error

    async def watch(self, _: Resource, __: str, **___: object) -> AsyncIterator[WatchEvent]:
        yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "20"}})
        raise next(self._watches)


class _EndError(Exception):
    """Ends what goes on for ever."""


async def _asked(resource: Resource, lists: list[Exception | str], watches: list[Exception]) -> list[str | None]:
    server = _ApiServer([*lists, _EndError()], watches)
    ignore: Any = lambda _: None  # noqa: E731 - three times the same
    with suppress(_EndError):
        await reflector.follow(cast(Kube, server), resource, on_list=ignore, on_event=ignore, on_trouble=ignore)
    return server.asked


_EXPIRED = errors.ExpiredError(410, "Expired", "too old resource version")


async def test_what_the_api_server_would_read_from_etcd_one_by_one_is_listed_from_its_memory() -> None:
    assert await _asked(FARMS, [], []) == ["0"]
    assert await _asked(SERVICES, [], []) == [None]


async def test_a_list_after_an_interruption_is_never_older_than_what_was_told() -> None:
    assert await _asked(FARMS, ["10"], [_EXPIRED]) == ["0", "20"]
    assert await _asked(SERVICES, ["10"], [_EXPIRED]) == [None, None]


async def test_where_the_api_server_was_set_back_the_list_is_what_etcd_has() -> None:
    too_new = errors.KubeError(504, "Timeout", "Too large resource version: 20, current: 5")
    assert await _asked(FARMS, ["10", too_new], [_EXPIRED]) == ["0", "20", None]


async def test_an_api_server_that_is_away_is_asked_for_the_same_again() -> None:
    away = errors.KubeUnreachableError("connection refused")
    assert await _asked(FARMS, ["10", away], [_EXPIRED]) == ["0", "20", "20"]
