"""List and watch one kind of object for as long as the program runs, as client-go's Reflector does.

Not kubernetes.informer (37.0.2): it needs a thread per kind, keeps every object, and decodes into generated models.
kubernetes.aio has a watch alone, without list or backoff, that decodes likewise.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Self

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.kube.client import Kube, Listing, Transform, WatchEvent
from kube_nftlb.kube.resource_versions import check_list
from kube_nftlb.kube.resources import JsonObject, Resource

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 5.0
_EXPIRED_MAX_S = 1.0
_WATCH_S = 300, 600
"""The shortest and the longest time in seconds of a watch, as client-go's: at random, so that nodes are not in step."""
_WATCH_AFTER_SILENCE_S = 60
"""The time of one after one that brought nothing: a proxy may keep events back until the API server ends the watch."""
_FIRST_WATCHES_S = 10, 10
"""The times in seconds of the first watches at the start and after a failure, if others wait for what is seen."""
_DELIVERED_S = 5.0
"""A watch that has lasted for so long has brought all that the API server knew when it began."""
_SHORTEST_S = 1.0
"""A watch that ends sooner, without an event, has failed: an API server asked to watch for minutes does so."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Handlers:
    """The callbacks of ``list_and_watch``."""

    replace: Callable[[Listing], None]
    """Gets the complete state at the start, and again after each loss of continuity."""
    put: Callable[[JsonObject], None]
    """Gets an object that was created or changed."""
    remove: Callable[[JsonObject], None]
    """Gets the last state of an object that was deleted."""
    seen: Callable[[int], None] = lambda _: None
    """Gets the resourceVersion of each event after it was handled, of bookmarks too, and where silent watches got."""
    caught_up: Callable[[int], None] | None = None
    """Gets the resourceVersion at the ends of the first watches after the start and failures, which are short then."""
    failed: Callable[[errors.KubeNftlbError], None] | None = None
    """Gets each failure; None logs it."""

    @classmethod
    def for_one(cls, update: Callable[[JsonObject | None], None]) -> Self:
        """Return handlers for a selector that matches one object: ``update`` gets it, or None if it does not exist."""
        return cls(
            replace=lambda listing: update(next(iter(listing.items), None)),
            put=update,
            remove=lambda _: update(None),
        )


def name_only(raw: JsonObject) -> JsonObject:
    """Return the name and version of an object, for a ``transform`` that takes it in: a list needs only a page."""
    return {"metadata": {key: raw["metadata"].get(key) for key in ("namespace", "name", "resourceVersion")}}


async def list_and_watch(
    kube: Kube,
    resource: Resource,
    handlers: Handlers,
    *,
    namespace: str | None = None,
    label_selector: str | None = None,
    field_selector: str | None = None,
    metadata_only: bool = False,
    transform: Transform = lambda item: item,
) -> None:
    """List objects, then watch them, until cancelled. Failures are retried, with pauses that double up to about 5 s.

    ``transform`` applies to the objects of lists alone. With ``metadata_only`` objects have only their metadata.

    Custom resources are listed from the API server's memory. That list may be older than etcd, but never older than
    what the handlers have got: events bring the rest. A watch that broke goes on where it was, if etcd has come as far:
    the API server would send nothing until it has again. Raises RestoredError if it has not.
    """
    delay_s = _RETRY_FIRST_S
    resource_version: str | None = None
    not_older_than: str | None = "0"
    newest = 0
    is_silent = False
    failed, first_watches = True, list[int]()
    now = asyncio.get_running_loop().time
    selectors = {"label_selector": label_selector, "field_selector": field_selector}
    while True:
        try:
            if resource_version is None:
                listing = await kube.list(
                    resource,
                    namespace,
                    **selectors,
                    metadata_only=metadata_only,
                    transform=transform,
                    not_older_than=not_older_than if resource.custom else None,
                )
                check_list(resource.plural, int(listing.resource_version), newest)
                resource_version = listing.resource_version
                handlers.replace(listing)
                newest = reached = int(resource_version)
            else:
                reached = await kube.newest(resource, namespace, **selectors)
                check_list(resource.plural, reached, newest)
            if failed and handlers.caught_up is not None:
                first_watches = list(_FIRST_WATCHES_S)
            first_s = first_watches.pop() if first_watches else None
            failed = False
            began = now()
            watching = kube.watch(
                resource,
                resource_version,
                namespace=namespace,
                **selectors,
                metadata_only=metadata_only,
                seconds=first_s or _watch_s(after_silence=is_silent),
            )
            is_silent = True
            async for event in _lasting(watching, resource):
                is_silent = False
                newest = _handle(event, handlers)
                resource_version = str(newest)
                delay_s = _RETRY_FIRST_S
            if reached > newest and now() - began > _DELIVERED_S:
                newest = reached
                handlers.seen(newest)
            if first_s is not None and handlers.caught_up is not None:
                handlers.caught_up(newest)
        except errors.ExpiredError:
            failed = True
            metrics.WATCH_FAILURES.labels(resource.plural, "Expired").inc()
            not_older_than, resource_version = str(newest), None
            # Soon, also if the API server was away for long before.
            delay_s = await pause(min(delay_s, _EXPIRED_MAX_S))
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            failed = True
            metrics.WATCH_FAILURES.labels(resource.plural, "Failed").inc()
            if isinstance(error, errors.KubeError) and error.status == 504 and resource_version is None:
                # No such resourceVersion: etcd was restored from a backup.
                not_older_than = None
            _tell(error, resource, handlers)
            delay_s = await pause(delay_s)


def _handle(event: WatchEvent, handlers: Handlers) -> int:
    """Pass an event on; return its resourceVersion."""
    if event.type == "DELETED":
        handlers.remove(event.object)
    elif event.type != "BOOKMARK":
        handlers.put(event.object)
    version = int(event.object["metadata"]["resourceVersion"])
    handlers.seen(version)
    return version


def _tell(error: errors.KubeNftlbError, resource: Resource, handlers: Handlers) -> None:
    if handlers.failed is not None:
        handlers.failed(error)
    else:
        _log.warning("list or watch failed, retrying", resource=resource.plural, error=str(error))


def _watch_s(*, after_silence: bool) -> int:
    return _WATCH_AFTER_SILENCE_S if after_silence else random.randint(*_WATCH_S)  # noqa: S311 - no secret depends on it


async def _lasting(events: AsyncIterator[WatchEvent], resource: Resource) -> AsyncIterator[WatchEvent]:
    """Yield the events of a watch. Raises KubeUnreachableError if it ends at once without any."""
    now = asyncio.get_running_loop().time
    ends_early_before = now() + _SHORTEST_S
    async for event in events:
        ends_early_before = 0
        yield event
    if now() < ends_early_before:
        raise errors.KubeUnreachableError(f"a watch of {resource.plural} ended as soon as it began")


async def pause(delay_s: float, chance: Callable[[], float] = random.random) -> float:
    """Wait about as long after a failure, so that not all nodes come back at once. Return the next delay in seconds.

    ``chance`` returns numbers from 0 to 1. Delays double up to 5 s.
    """
    await asyncio.sleep(delay_s * (0.5 + chance()))
    return min(delay_s * 2, _RETRY_MAX_S)
