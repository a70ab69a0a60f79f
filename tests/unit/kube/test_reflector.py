"""One list-and-watch loop for all: what handlers get, and from which version on it lists again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.kube.client import Listing, WatchEvent
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import FARMS, SERVICES, JsonObject, Resource
from tests.fakes.kube import FakeKube

pytestmark = pytest.mark.usefixtures("virtual_time")

EXPIRED = errors.ExpiredError(410, "Expired", "too old resource version")
AWAY = errors.KubeUnreachableError("connection refused")


def raw(name: str, version: int) -> JsonObject:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}}


class Seen:
    """Everything that handlers got, in its order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.caught_up: list[int] = []
        """How far the first watches had come at their ends."""
        self.handlers = Handlers(
            replace=self._replace,
            put=lambda found: self.calls.append(("put", found["metadata"]["name"])),
            remove=lambda found: self.calls.append(("remove", found["metadata"]["name"])),
            seen=lambda version: self.calls.append(("seen", version)),
            caught_up=self.caught_up.append,
            failed=lambda error: self.calls.append(("failed", error)),
        )

    def _replace(self, listing: Listing) -> None:
        self.calls.append(("replace", [item["metadata"]["name"] for item in listing.items]))


@contextlib.asynccontextmanager
async def following(kube: FakeKube, handlers: Handlers, **options: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(list_and_watch(kube, SERVICES, handlers, **options))
    try:
        await kube.delivered()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_handlers_get_the_list_and_then_each_event_with_its_version() -> None:
    kube, seen = FakeKube(), Seen()
    kube.put(SERVICES, raw("a", 10))
    async with following(kube, seen.handlers):
        kube.put(SERVICES, raw("b", 11))
        kube.put(SERVICES, raw("a", 12))
        kube.bookmark(15)
        kube.remove(SERVICES, "a", "default", 16)
        await kube.delivered()
    assert seen.calls == [
        ("replace", ["a"]),
        *(("put", "b"), ("seen", 11)),
        *(("put", "a"), ("seen", 12)),
        ("seen", 15),
        *(("remove", "a"), ("seen", 16)),
    ]


async def test_a_broken_watch_goes_on_where_it_was() -> None:
    kube, seen = FakeKube(), Seen()
    kube.watch_errors.append(AWAY)
    async with following(kube, seen.handlers):
        kube.put(SERVICES, raw("a", 11))
        await kube.delivered()
    assert seen.calls == [("replace", []), ("failed", AWAY), ("put", "a"), ("seen", 11)]


async def test_an_expired_watch_lists_again() -> None:
    kube, seen = FakeKube(), Seen()
    kube.put(SERVICES, raw("a", 10))
    kube.watch_errors.append(EXPIRED)
    async with following(kube, seen.handlers):
        pass
    assert seen.calls == [("replace", ["a"]), ("replace", ["a"])]


async def test_transform_applies_to_lists() -> None:
    kube, seen = FakeKube(), Seen()
    kube.put(SERVICES, raw("a", 10))
    kube.put(SERVICES, raw("b", 11))

    def without_a(found: JsonObject) -> JsonObject | None:
        return found if found["metadata"]["name"] != "a" else None

    async with following(kube, seen.handlers, transform=without_a):
        pass
    assert seen.calls == [("replace", ["b"])]


async def test_handlers_for_one_object_get_it_or_none() -> None:
    kube = FakeKube()
    seen: list[JsonObject | None] = []
    handlers = Handlers.for_one(seen.append)
    async with following(kube, handlers, field_selector="metadata.name=a"):
        kube.put(SERVICES, raw("b", 10))
        kube.put(SERVICES, raw("a", 11))
        kube.bookmark(12)
        kube.remove(SERVICES, "a", "default", 13)
        await kube.delivered()
    assert [found and found["metadata"]["resourceVersion"] for found in seen] == [None, "11", None]


class _EndError(errors.KubeNftlbError):
    """Ends the loop."""


async def lists(
    resource: Resource, answers: list[errors.KubeNftlbError | None], watches: list[Exception]
) -> list[str | None]:
    """The versions from which on it lists, until an error that ends it, from an API server at version 10, then 20."""
    kube, ignore = FakeKube(10), lambda _: None
    kube.list_errors.extend([*answers, _EndError()])
    kube.watch_errors.extend(watches)
    handlers = Handlers(replace=lambda _: kube.bookmark(20), put=ignore, remove=ignore, failed=ignore)
    with contextlib.suppress(_EndError):
        await list_and_watch(kube, resource, handlers)
    return [not_older_than for not_older_than, _ in kube.lists]


async def test_custom_resources_are_listed_from_memory() -> None:
    assert await lists(FARMS, [], []) == ["0"]
    assert await lists(SERVICES, [], []) == [None]


async def test_a_later_list_is_never_older_than_what_handlers_got() -> None:
    assert await lists(FARMS, [None], [EXPIRED]) == ["0", "20"]
    assert await lists(SERVICES, [None], [EXPIRED]) == [None, None]


async def test_after_a_restore_of_etcd_the_list_is_what_etcd_has() -> None:
    too_new = errors.KubeError(504, "Timeout", "Too large resource version: 20, current: 5")
    assert await lists(FARMS, [None, too_new], [EXPIRED]) == ["0", "20", None]


@pytest.mark.parametrize("resource", [FARMS, SERVICES])
@pytest.mark.parametrize(
    "error", [AWAY, errors.KubeError(504, "Timeout", "Too large resource version: 20, current: 5")]
)
async def test_an_older_state_than_was_seen_ends_the_program(resource: Resource, error: errors.KubeNftlbError) -> None:
    """A watch from a version that is to come is taken, and silent."""
    kube, ignore = FakeKube(20), lambda _: None
    kube.watch_errors.append(error)

    def restore(_: Listing) -> None:
        kube.version = 5

    with pytest.raises(errors.RestoredError, match=f"{resource.plural} are of resourceVersion 5, after 20"):
        await list_and_watch(kube, resource, Handlers(replace=restore, put=ignore, remove=ignore, failed=ignore))


async def test_an_unreachable_api_server_gets_the_same_list_again() -> None:
    assert await lists(FARMS, [None, AWAY], [EXPIRED]) == ["0", "20", "20"]


class Ending(FakeKube):
    """Ends each watch after so many seconds; the first ones bring something, or nothing, as listed."""

    def __init__(self, after_s: float, *brings: bool) -> None:
        super().__init__()
        self._after_s = after_s
        self._brings = list(brings)
        self.asked_s: list[int] = []

    @property
    def watches(self) -> int:
        return len(self.asked_s)

    async def watch(self, *_: Any, seconds: int = 60, **__: Any) -> AsyncIterator[WatchEvent]:
        self.asked_s.append(seconds)
        await asyncio.sleep(self._after_s)
        if self._brings and self._brings.pop(0):
            yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "0"}})


async def test_watches_last_minutes_but_after_a_list_and_if_the_last_one_brought_nothing() -> None:
    kube, seen = Ending(5, True, True, False, False, True, True), Seen()
    with suppress(TimeoutError):
        await asyncio.wait_for(list_and_watch(kube, SERVICES, seen.handlers), 33)
    assert [seconds if seconds <= 60 else "minutes" for seconds in kube.asked_s] == [
        *[10] * 2,
        "minutes",
        *[60] * 2,
        *["minutes"] * 2,
    ]
    assert len(seen.caught_up) == 2, "at the ends of the first"
    long = [seconds for seconds in kube.asked_s if seconds > 60]
    assert all(300 <= seconds <= 600 for seconds in long)
    assert len(set(long)) > 1, "not in step with other nodes"


@pytest.mark.parametrize(("lasted_s", "told"), [(10, [("seen", 50)]), (3, [])])
async def test_a_silent_watch_tells_how_far_it_has_come_once_it_ends(
    lasted_s: float, told: list[tuple[str, int]]
) -> None:
    """Others may wait for that: what was deleted before a list of theirs has no version of its own."""
    kube, seen = Ending(lasted_s), Seen()

    async def newest(*_: Any, **__: Any) -> int:
        return 50

    kube.newest = newest  # type: ignore[method-assign]  # a later state of etcd, of other kinds
    with suppress(TimeoutError):
        await asyncio.wait_for(list_and_watch(kube, SERVICES, seen.handlers), 2.5 * lasted_s)
    assert [call for call in seen.calls if call[0] == "seen"] == told
    assert seen.caught_up == ([0, 50] if told else [0, 0])


async def test_the_first_watches_after_a_failure_are_short_again_and_tell_how_far_they_have_come() -> None:
    kube, seen = Ending(10), Seen()
    newest = kube.newest

    async def broken_once(*args: Any, **options: Any) -> int:
        if kube.watches != 3:
            return await newest(*args, **options)
        kube.asked_s.append(0)
        raise AWAY

    kube.newest = broken_once  # type: ignore[method-assign]  # away once, after the first watches
    with suppress(TimeoutError):
        await asyncio.wait_for(list_and_watch(kube, SERVICES, seen.handlers), 55)
    assert kube.asked_s == [10, 10, 60, 0, 10, 10, 60]
    assert len(seen.caught_up) == 4


async def test_watches_that_end_at_once_are_failures_with_pauses() -> None:
    kube, seen = Ending(0), Seen()
    with suppress(TimeoutError):
        await asyncio.wait_for(list_and_watch(kube, SERVICES, seen.handlers), 60)
    assert 5 < kube.watches < 30
    failures = [str(error) for what, error in seen.calls if what == "failed"]
    assert failures == ["a watch of services ended as soon as it began"] * kube.watches


async def test_watches_that_end_after_a_while_are_none() -> None:
    kube, seen = Ending(5), Seen()
    with suppress(TimeoutError):
        await asyncio.wait_for(list_and_watch(kube, SERVICES, seen.handlers), 60)
    assert kube.watches > 10
    assert seen.calls == [("replace", [])]
