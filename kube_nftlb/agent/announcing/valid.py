"""Watch all objects of a kind, each as it was when it could last be read."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar

import structlog
from pydantic import ValidationError

from kube_nftlb import errors
from kube_nftlb.api.address_pool import AddressPool
from kube_nftlb.api.base import first_error
from kube_nftlb.api.bgp_peer import BGPPeer
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import JsonObject, Resource

_Object = TypeVar("_Object", AddressPool, BGPPeer)

_log = structlog.get_logger()


async def watch_valid(
    kube: Kube,
    resource: Resource,
    model: type[_Object],
    on_change: Callable[[Mapping[str, _Object]], None],
    on_failure: Callable[[errors.KubeNftlbError], None] | None = None,
) -> None:
    """Call ``on_change`` with all objects by name, at first and whenever one may say something new, until cancelled.

    One that cannot be read stays as it was, and is left out if it never could. ``on_failure`` gets each failure of a
    list or watch; None logs it.
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
            yield name, _read(model, raw)
        except ValidationError as error:
            _log.warning(
                "invalid object, keeping the last one", kind=resource.kind, name=name, error=first_error(error)
            )
            if name in known:
                yield name, known[name]

    await list_and_watch(kube, resource, Handlers(replace, put, remove, failed=on_failure))


def _read(model: type[_Object], raw: JsonObject) -> _Object:
    """Return an object, without its status if that cannot be read: it is another program's, perhaps of another version.

    Raises ValidationError.
    """
    parts = {key: raw.get(key) for key in ("metadata", "spec")}
    with suppress(ValidationError):
        conditions = (raw.get("status") or {}).get("conditions", ())
        return model.model_validate({**parts, "status": {"conditions": conditions}})
    return model.model_validate(parts)


def _same(one: AddressPool | BGPPeer, other: AddressPool | BGPPeer) -> bool:
    """Return whether two states of an object say the same: the numbers in its status say nothing to nodes."""
    return _relevant(one) == _relevant(other)


def _relevant(each: AddressPool | BGPPeer) -> tuple[object, ...]:
    judged = (each.was_accepted, each.is_accepted) if isinstance(each, AddressPool) else None
    return each.spec, each.metadata.created_s, judged
