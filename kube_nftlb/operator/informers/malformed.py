"""Skip objects that cannot be parsed."""

from collections.abc import Callable

import structlog

from kube_nftlb.kube.resources import JsonObject, Resource
from kube_nftlb.operator.cache.affected import NOTHING, Affected

_log = structlog.get_logger()


def skip_malformed(change: Callable[[Resource, JsonObject], Affected], resource: Resource, raw: JsonObject) -> Affected:
    """Return what a change of the cache makes out of date: nothing if the object cannot be parsed, which is logged.

    One such object must not stop all others. What was known of it before stays.
    """
    try:
        return change(resource, raw)
    except Exception:
        metadata = raw["metadata"]
        _log.exception(
            "cannot parse object, ignored",
            resource=resource.plural,
            namespace=metadata.get("namespace"),
            name=metadata["name"],
        )
        return NOTHING
