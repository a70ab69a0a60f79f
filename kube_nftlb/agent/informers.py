"""List and watch NftlbFarms, EndpointSlices and NftlbPolicies for the inputs."""

from typing import Any

import structlog
from pydantic import ValidationError

from kube_nftlb import __version__, names
from kube_nftlb.agent.health.health_check_ports import HealthCheckPorts
from kube_nftlb.agent.sync.inputs import Inputs
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table.policy_references import raw_references
from kube_nftlb.api.base import first_error
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.unknown import listed, unknown_fields
from kube_nftlb.endpointslices.index import SliceKey
from kube_nftlb.endpointslices.slices import SERVED_SLICES, Slice, parse_slice
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch, name_only
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, POLICIES

Json = dict[str, Any]

_log = structlog.get_logger()


async def watch_farms(kube: Kube, inputs: Inputs, health_checks: HealthCheckPorts) -> None:
    """Pass all farms and each change to the loop and the health checks, until cancelled.

    While the API server is unreachable nothing changes.
    """
    seen: dict[FarmKey, Json] = {}

    def replace(listing: Listing) -> None:
        version = int(listing.resource_version)
        farms = [kept["farm"] for kept in listing.items if isinstance(kept["farm"], Farm)]
        seen.clear()
        seen.update((_key(kept), _essence(kept)) for kept in listing.items)
        inputs.replace_all(farms, version)
        health_checks.replace_all(_checked(farm, inputs) for farm in farms)
        for kept in listing.items:
            if isinstance(problem := kept["farm"], Problem):
                inputs.put_unreadable(_key(kept), problem, version, kept["references"])

    def put(raw: Json) -> None:
        # Half of all events change the status alone, which the agent does not read, and parsing a farm takes time.
        if seen.get(_key(raw)) == (essence := _essence(raw)):
            return
        seen[_key(raw)] = essence
        farm = parse(raw)
        if isinstance(farm, Farm):
            inputs.put(farm)
            health_checks.put(_checked(farm, inputs))
        else:
            inputs.put_unreadable(_key(raw), farm, _version(raw), raw_references(raw))

    def remove(raw: Json) -> None:
        seen.pop(_key(raw), None)
        inputs.remove(_key(raw), _version(raw))
        health_checks.remove(_key(raw))

    await list_and_watch(kube, FARMS, Handlers(replace, put, remove, inputs.seen), transform=_kept)


async def watch_slices(kube: Kube, inputs: Inputs, health_checks: HealthCheckPorts) -> None:
    """Pass the EndpointSlices of all Services and each change to the loop and the health checks, until cancelled."""

    def change(raw: Json, new: Slice | None) -> None:
        made_at = timestamps.parse((raw["metadata"].get("annotations") or {}).get(names.ANNOTATION_TRIGGER_TIME))
        for farm in inputs.put_slice(_slice_key(raw), new, _version(raw), made_at):
            health_checks.put(inputs.resolved(farm))

    def put(raw: Json) -> None:
        kube.servers.learn(raw)
        change(raw, parsed_slice(raw))

    def remove(raw: Json) -> None:
        kube.servers.forget(raw)
        change(raw, None)

    def take(raw: Json) -> Json:
        put(raw)
        return name_only(raw)

    def replace(listing: Listing) -> None:
        present = {_slice_key(raw) for raw in listing.items}
        for farm in inputs.slices_listed(present, int(listing.resource_version)):
            health_checks.put(inputs.resolved(farm))

    handlers = Handlers(replace, put, remove, inputs.slices_seen)
    await list_and_watch(kube, ENDPOINT_SLICES, handlers, label_selector=SERVED_SLICES, transform=take)


def _checked(farm: Farm, inputs: Inputs) -> Farm:
    """Return a farm as health checks need it: with its backends if it has one, which few have."""
    return farm if farm.spec.health_check_node_port is None else inputs.resolved(farm)


def parsed_slice(raw: Json) -> Slice | None:
    """Return an EndpointSlice in its compact form, or None if it is malformed or no farm needs it."""
    try:
        return parse_slice(raw)
    except ValidationError as error:
        # The API server validates slices. One that it should not have admitted must not stop all others.
        _log.warning("cannot parse EndpointSlice, ignored", name=raw["metadata"]["name"], error=first_error(error))
        return None


async def watch_policies(kube: Kube, inputs: Inputs) -> None:
    """Pass all policies and each change to the loop, until cancelled."""

    def replace(listing: Listing) -> None:
        inputs.replace_policies(listing.items, int(listing.resource_version))

    await list_and_watch(kube, POLICIES, Handlers(replace, inputs.put_policy, inputs.remove_policy))


def _kept(raw: Json) -> Json:
    """Parse a farm of a list at once: as JSON, all of them need six times as much memory."""
    farm = parse(raw)
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    return {
        "metadata": metadata,
        "farm": farm,
        "references": raw_references(raw) if isinstance(farm, Problem) else None,
    }


def _essence(raw: Json) -> Json:
    """Return the metadata that changes with what the agent reads: spec has a generation, ownerReferences have none."""
    return {key: raw["metadata"].get(key) for key in ("uid", "generation", "ownerReferences")}


def parse(raw: Json) -> Farm | Problem:
    """Validate a farm object. The API server does too, but perhaps with an older or newer definition.

    A field that is not known has no effect, unless it is one of an address: that may say who connects to what.
    """
    generation = raw["metadata"].get("generation", 0)
    try:
        # Its status is the operator's, perhaps of another version.
        farm = Farm.model_validate({key: raw.get(key) for key in ("metadata", "spec")})
    except ValidationError as error:
        return Problem("Invalid", first_error(error), generation)
    unknown = tuple(unknown_fields(FarmSpec, raw.get("spec"), "spec"))
    if unsafe := tuple(path for path in unknown if path.startswith("spec.addresses")):
        message = f"{listed(unsafe)}: this agent ({__version__}) does not know the field, which may say who connects"
        return Problem("Invalid", f"{message}; upgrade the agents", generation)
    return farm.model_copy(update={"unknown": unknown}) if unknown else farm


def _key(raw: dict[str, Any]) -> FarmKey:
    return FarmKey(raw["metadata"]["namespace"], raw["metadata"]["name"])


def _slice_key(raw: Json) -> SliceKey:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _version(raw: Json) -> int:
    return int(raw["metadata"]["resourceVersion"])
