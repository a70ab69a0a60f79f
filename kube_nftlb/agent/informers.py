"""NftlbFarms and NftlbPolicies from the API server to the inputs."""

from collections.abc import Callable
from typing import Any

import structlog
from pydantic import ValidationError

from kube_nftlb import errors
from kube_nftlb.agent.health.probes import HealthCheckPorts
from kube_nftlb.agent.sync.inputs import Inputs
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table.policies import raw_references
from kube_nftlb.api.base import first_error
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.kube.client import Kube, Listing, WatchEvent
from kube_nftlb.kube.reflector import follow
from kube_nftlb.kube.resources import FARMS, POLICIES

_log = structlog.get_logger()

Json = dict[str, Any]


async def watch_farms(kube: Kube, inputs: Inputs, health_checks: HealthCheckPorts) -> None:
    """Tell the reconciler and the health checks of all farms, and of each change, for ever.

    While the API server is away nothing is told, and so nothing is changed.
    """
    seen: dict[FarmKey, Json] = {}

    def on_list(listing: Listing) -> None:
        version = int(listing.resource_version)
        farms = [kept["farm"] for kept in listing.items if isinstance(kept["farm"], Farm)]
        seen.clear()
        seen.update((_key(kept), _essence(kept)) for kept in listing.items)
        inputs.replace_all(farms, version)
        health_checks.replace_all(farms)
        for kept in listing.items:
            if isinstance(problem := kept["farm"], Problem):
                inputs.put_unreadable(_key(kept), problem, version, kept["references"])

    def on_event(event: WatchEvent) -> None:
        version = int(event.object["metadata"]["resourceVersion"])
        if event.type == "DELETED":
            seen.pop(_key(event.object), None)
            inputs.remove(_key(event.object), version)
            health_checks.remove(_key(event.object))
        # Half of all events tell of a status alone, which is nothing to us, and reading a farm is work.
        elif event.type != "BOOKMARK" and seen.get(_key(event.object)) != (essence := _essence(event.object)):
            seen[_key(event.object)] = essence
            farm = parse(event.object)
            if isinstance(farm, Farm):
                inputs.put(farm)
                health_checks.put(farm)
            else:
                inputs.put_unreadable(_key(event.object), farm, version, raw_references(event.object))
        inputs.seen(version)

    await follow(kube, FARMS, on_list=on_list, on_event=on_event, on_trouble=_trouble("farms"), transform=_kept)


async def watch_policies(kube: Kube, inputs: Inputs) -> None:
    """Tell the reconciler of all policies, and of each change, for ever."""

    def on_list(listing: Listing) -> None:
        inputs.replace_policies(listing.items, int(listing.resource_version))

    def on_event(event: WatchEvent) -> None:
        if event.type == "DELETED":
            inputs.remove_policy(event.object)
        elif event.type != "BOOKMARK":
            inputs.put_policy(event.object)

    await follow(kube, POLICIES, on_list=on_list, on_event=on_event, on_trouble=_trouble("policies"))


def _kept(raw: Json) -> Json:
    """What is kept of a farm in a list: parsed at once, for all as JSON objects are six times as much memory."""
    farm = parse(raw)
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return {
        "metadata": metadata,
        "farm": farm,
        "references": raw_references(raw) if isinstance(farm, Problem) else None,
    }


def _essence(raw: Json) -> Json:
    """What of a farm's metadata says whether it is to be read anew: its spec has a generation, its owners have none."""
    return {key: raw["metadata"].get(key) for key in ("uid", "generation", "ownerReferences")}


def _trouble(what: str) -> Callable[[errors.KubeNftlbError], None]:
    return lambda error: _log.warning("cannot watch", what=what, error=str(error))


def parse(raw: Json) -> Farm | Problem:
    """A farm object, or why it is none: the API server checks much the same, but perhaps with an older definition."""
    try:
        return Farm.model_validate(raw)
    except ValidationError as error:
        return Problem("Invalid", first_error(error), raw["metadata"].get("generation", 0))


def _key(raw: dict[str, Any]) -> FarmKey:
    return FarmKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
