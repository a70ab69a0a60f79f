"""Watch all objects of a kind, each as it was when it could last be read."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import structlog
from pydantic import ValidationError

from kube_nftlb.api.address_pool import AddressPool
from kube_nftlb.api.base import first_error
from kube_nftlb.api.bgp_peer import BGPPeer
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import JsonObject, Resource

_Object = TypeVar("_Object", AddressPool, BGPPeer)

_log = structlog.get_logger()


async def watch_valid(
    kube: Kube, resource: Resource, model: type[_Object], on_change: Callable[[Mapping[str, _Object]], None]
) -> None:
    """Call ``on_change`` with all objects by name, at first and whenever one's spec may differ, until cancelled.

    One that cannot be read stays as it was, and is left out if it never could.
    """
    known: dict[str, _Object] = {}

    def take(now: dict[str, _Object]) -> None:
        nonlocal known
        known = now
        on_change(known)

    def replace(listing: Listing) -> None:
        take(dict(entry for raw in listing.items for entry in read(raw)))

    def put(raw: JsonObject) -> None:
        changed = {name: each for name, each in read(raw) if name not in known or not _same(each, known[name])}
        if changed:
            take({**known, **changed})

    def remove(raw: JsonObject) -> None:
        take({name: each for name, each in known.items() if name != raw["metadata"]["name"]})

    def read(raw: JsonObject) -> Iterator[tuple[str, _Object]]:
        name = raw["metadata"]["name"]
        try:
            # A status is another program's, perhaps of another version.
            yield name, model.model_validate({key: raw.get(key) for key in ("metadata", "spec")})
        except ValidationError as error:
            _log.warning(
                "invalid object, keeping the last one", kind=resource.kind, name=name, error=first_error(error)
            )
            if name in known:
                yield name, known[name]

    await list_and_watch(kube, resource, Handlers(replace, put, remove))


def _same(one: AddressPool | BGPPeer, other: AddressPool | BGPPeer) -> bool:
    """Return whether nothing differs that is not the status of an object, or its version."""
    return one.spec == other.spec and one.metadata.created_s == other.metadata.created_s
