"""Validate farms as an agent reads them. Pure: no I/O."""

from typing import Any

from pydantic import ValidationError

from kube_nftlb import __version__
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.api.base import first_error
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.unknown import unknown_fields
from kube_nftlb.prose import some_of

_SAY_WHO_CONNECTS = ("spec.addresses", "spec.backendsFrom")


def parse(raw: dict[str, Any]) -> Farm | Problem:
    """Validate a farm object. The API server does too, but perhaps with an older or newer definition.

    A field that is not known has no effect, unless it is one of an address or of a reference to backends: that may say
    who connects to what.
    """
    generation = raw["metadata"].get("generation", 0)
    try:
        # Its status is the operator's, perhaps of another version.
        farm = Farm.model_validate({key: raw.get(key) for key in ("metadata", "spec")})
    except ValidationError as error:
        return Problem("Invalid", first_error(error), generation)
    unknown = tuple(unknown_fields(FarmSpec, raw.get("spec"), "spec"))
    if unsafe := tuple(path for path in unknown if path.startswith(_SAY_WHO_CONNECTS)):
        message = f"{some_of(unsafe)}: this agent ({__version__}) does not know the field, which may say who connects"
        return Problem("Invalid", f"{message} to what; upgrade the agents", generation)
    # One that was served before its route was gone must not stay as it was, so it is no problem, but served otherwise.
    farm = farm.without_trespass()
    return farm.model_copy(update={"unknown": unknown}) if unknown else farm
