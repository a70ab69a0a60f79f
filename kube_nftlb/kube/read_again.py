"""Read objects again of which a cache had room for a part alone, once it has room for more."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from kube_nftlb import errors
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import JsonObject, Resource

_EVERY_S = 20.0, 40.0
"""The shortest and the longest pause: at random, so that nodes are not in step."""
_AT_ONCE = 20
"""Number of objects that are read between two pauses: room that comes and goes must not load the API server."""

Key = tuple[str, str]
"""The namespace and name of an object."""

_log = structlog.get_logger()


class Cut(Protocol):
    """A cache that has only a part of some objects."""

    def cut_with_room(self) -> Sequence[Key]:
        """Return the objects of which it would take more."""

    def get(self, key: Key) -> object:
        """Return what it has of an object, which is another one after each change."""


async def read_again(kube: Kube, resource: Resource, cut: Cut, put: Callable[[JsonObject], None]) -> None:
    """Pass objects that were cut, and for which there is room, to ``put``, until cancelled."""
    while True:
        await asyncio.sleep(random.uniform(*_EVERY_S))  # noqa: S311 - no secret depends on it
        try:
            for key in cut.cut_with_room()[:_AT_ONCE]:
                await _read(kube, resource, cut, key, put)
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            _log.warning("cannot read objects, retrying", resource=resource.plural, error=str(error))


async def _read(kube: Kube, resource: Resource, cut: Cut, key: Key, put: Callable[[JsonObject], None]) -> None:
    if key not in cut.cut_with_room():
        # Another one has taken the room.
        return
    known = cut.get(key)
    namespace, name = key
    # A list, since the right to watch comes with that.
    listing = await kube.list(resource, namespace, field_selector=f"metadata.name={name}")
    # What the watch has reported meanwhile may be newer.
    if cut.get(key) is known:
        for raw in listing.items:
            put(raw)
