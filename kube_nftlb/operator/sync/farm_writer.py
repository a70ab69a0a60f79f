"""Write farms to the API server, and its answers into the cache."""

from collections.abc import Collection
from enum import Enum

import structlog

from kube_nftlb import errors, metrics, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import FARMS, JsonObject
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.sanitize import sanitized_spec
from kube_nftlb.operator.farms.ports import PortKey
from kube_nftlb.operator.farms.spec import digest, merge_patch
from kube_nftlb.operator.sync.diff import Apply, Delete

_WHY_MAX = 512

_log = structlog.get_logger()


class Outcome(Enum):
    """The outcome of a write."""

    DONE = "done"
    RETRY = "retry"
    """It failed for now: the API server is unreachable, overloaded, or has a newer state."""
    CONFLICT = "conflict"
    """The API server has a newer state, which a watch is about to deliver."""
    OBSOLETE = "obsolete"
    """There is nothing left to write to: the namespace is terminating, or the CustomResourceDefinition is deleted."""


class FarmRefusedError(errors.KubeNftlbError):
    """The API server rejects a farm, and will again; the message is the API server's."""


class FarmWriter:
    """Writes farms to the API server."""

    def __init__(self, kube: Kube, ingest: Ingest) -> None:
        self._kube = kube
        self._ingest = ingest

    async def apply(self, apply: Apply) -> tuple[Outcome, Affected, str]:
        """Create or change a farm. The last is the error, if one ended it. Raises FarmRefusedError."""
        try:
            answer = await self._apply(apply)
            if digest(sanitized_spec(answer.get("spec"))) != apply.digest:
                # Server-side apply keeps what other managers added to a list; this removes it. If it fails, the watch
                # delivers the first answer, and with it all that this makes out of date.
                answer = await self._kube.patch(
                    FARMS, apply.key.name, {"spec": merge_patch(apply.body["spec"])}, apply.key.namespace
                )
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Affected(), str(error)[:_WHY_MAX]
        metrics.FARMS_APPLIED.labels(apply.reason).inc()
        _log.info("farm applied", **_where(apply.key, apply.port), reason=apply.reason)
        return Outcome.DONE, self._ingest.put(FARMS, answer), ""

    async def _apply(self, apply: Apply) -> JsonObject:
        uid = apply.body["metadata"].get("uid")
        try:
            return await self._kube.apply(FARMS, apply.body, field_manager=names.FIELD_MANAGER_FARMS)
        except errors.KubeError as error:
            if error.status != 422 or not uid:
                raise
        if apply.foreign_owner:
            # The API server rejects a second controller, and the first may not be ours.
            await self._take_controller(apply.key)
        # Of an untracked farm, or one that others edited, server-side apply also keeps fields that the new spec lacks,
        # and both together may break a rule. A merge patch removes them.
        await self._kube.patch(
            FARMS,
            apply.key.name,
            {"metadata": {"uid": uid}, "spec": merge_patch(apply.body["spec"])},
            apply.key.namespace,
        )
        return await self._kube.apply(FARMS, apply.body, field_manager=names.FIELD_MANAGER_FARMS)

    async def disown(self, farm: FarmRecord) -> tuple[Outcome, Affected]:
        """Remove the controller of a farm. Raises FarmRefusedError."""
        try:
            answer = await self._take_controller(farm.key)
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Affected()
        return Outcome.DONE, self._ingest.put(FARMS, answer)

    async def _take_controller(self, key: FarmKey) -> JsonObject:
        metadata = (await self._kube.get(FARMS, key.name, key.namespace))["metadata"]
        references = [{**reference, "controller": False} for reference in metadata.get("ownerReferences") or ()]
        changes = {"resourceVersion": metadata["resourceVersion"], "ownerReferences": references}
        return await self._kube.patch(FARMS, key.name, {"metadata": changes}, key.namespace)

    async def release(self, farm: FarmRecord) -> tuple[Outcome, Affected]:
        """Remove the finalizers of others from a farm. Raises FarmRefusedError."""
        metadata = {"uid": farm.uid, "resourceVersion": str(farm.resource_version), "finalizers": None}
        try:
            answer = await self._kube.patch(FARMS, farm.key.name, {"metadata": metadata}, farm.key.namespace)
        except errors.NotFoundError:
            return Outcome.DONE, Affected()
        except errors.ConflictError:
            return Outcome.CONFLICT, Affected()
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Affected()
        _log.info("finalizers removed from farm", **_where(farm.key, farm.port), finalizers=farm.held_by)
        # One that was about to go is gone, which its watch reports.
        return Outcome.DONE, Affected() if farm.terminating else self._ingest.put(FARMS, answer)

    async def untrack(self, farm: FarmRecord) -> tuple[Outcome, Affected]:
        """Have the API server forget who wrote which field of a farm of ours. Raises FarmRefusedError.

        It keeps that beside the farm, as much as all else, until the farm is applied again. Nobody needs it meanwhile:
        what others change is told by the farm's digest, and undone.
        """
        metadata = {"uid": farm.uid, "resourceVersion": str(farm.resource_version), "managedFields": [{}]}
        return await self._patch(farm, {"metadata": metadata})

    async def delete(self, delete: Delete) -> tuple[Outcome, Affected, str]:
        """Delete a farm, if it was not replaced. The last is the error, if one ended it. Raises FarmRefusedError."""
        farm = delete.farm
        try:
            await self._kube.delete(FARMS, farm.key.name, farm.key.namespace, uid=farm.uid)
        except errors.NotFoundError:
            # The garbage collector was faster.
            _log.debug("farm deleted by others", **_where(farm.key, farm.port), reason=delete.reason)
            return Outcome.DONE, self._ingest.forget(FARMS, farm.key, farm.resource_version), ""
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Affected(), str(error)[:_WHY_MAX]
        metrics.FARMS_DELETED.labels(delete.reason).inc()
        _log.info("farm deleted", **_where(farm.key, farm.port), reason=delete.reason)
        return Outcome.DONE, self._ingest.forget(FARMS, farm.key, farm.resource_version), ""

    async def write_status(
        self, farm: FarmRecord, status: FarmStatus, fields: Collection[str]
    ) -> tuple[Outcome, Affected]:
        """Write these fields of a farm's status; the others are as they were written. Raises FarmRefusedError."""
        dumped = status.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(fields))
        # An empty list is not stored.
        changes = {name: value if value != [] else None for name, value in dumped.items()}
        metadata = {"uid": farm.uid, "resourceVersion": str(farm.resource_version)}
        outcome, affected = await self._patch(
            farm,
            {"metadata": metadata, "status": changes},
            subresource="status",
            field_manager=names.FIELD_MANAGER_STATUS,
        )
        if outcome is Outcome.DONE:
            metrics.FARM_STATUSES_WRITTEN.inc()
        return outcome, affected

    async def _patch(self, farm: FarmRecord, body: JsonObject, **how: str) -> tuple[Outcome, Affected]:
        try:
            answer = await self._kube.patch(FARMS, farm.key.name, body, farm.key.namespace, **how)
        except errors.NotFoundError:
            return Outcome.OBSOLETE, Affected()
        except errors.ConflictError:
            return Outcome.CONFLICT, Affected()
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Affected()
        return Outcome.DONE, self._ingest.put(FARMS, answer)


def classify(error: errors.KubeError | errors.KubeUnreachableError) -> Outcome:
    """Return the outcome of a failed write. Raises FarmRefusedError if a retry is useless."""
    if isinstance(error, errors.KubeUnreachableError):
        return Outcome.RETRY
    if error.status >= 500 and not _too_large(error):
        _log.warning("write failed, retrying", error=str(error))
        return Outcome.RETRY
    if error.status in (401, 408, 409, 429):
        return Outcome.RETRY
    # A 403 may have this cause too; only the message says so.
    if isinstance(error, errors.NotFoundError) or (error.status == 403 and "is being terminated" in error.message):
        return Outcome.OBSOLETE
    raise FarmRefusedError(error.message or str(error)) from error


def _too_large(error: errors.KubeError) -> bool:
    """Return True if etcd rejects an object for its size, which the API server reports as an internal error."""
    return "request is too large" in error.message or "message larger than max" in error.message


def _where(key: FarmKey, port: PortKey | None) -> dict[str, str]:
    return {"namespace": key.namespace, "farm": key.name, "service": port.service if port is not None else ""}
