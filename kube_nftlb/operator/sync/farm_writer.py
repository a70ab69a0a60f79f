"""Writing farms: one write each, its outcome told by a value, its answer put into the cache at once."""

from enum import Enum

import structlog

from kube_nftlb import errors, metrics, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import FARMS, JsonObject
from kube_nftlb.operator.cache.cache import Dirty
from kube_nftlb.operator.cache.ingest import CacheWriter
from kube_nftlb.operator.cache.records import FarmRecord
from kube_nftlb.operator.farms.builder import PortKey
from kube_nftlb.operator.farms.spec import blanks
from kube_nftlb.operator.sync.diff import Apply, Delete

_log = structlog.get_logger()


class Outcome(Enum):
    """What became of a write."""

    DONE = "done"
    RETRY = "retry"
    """It failed in a way that passes: the API server is away, overloaded, or has another state than we know."""
    OBSOLETE = "obsolete"
    """There is nothing to write to any more: the namespace is going, or the CustomResourceDefinition has gone."""


class FarmRefusedError(errors.KubeNftlbError):
    """The API server refused a farm, and will again; the message is its own."""


class FarmWriter:
    """Writes farms to the API server."""

    def __init__(self, kube: Kube, writer: CacheWriter) -> None:
        self._kube = kube
        self._writer = writer

    async def apply(self, apply: Apply) -> tuple[Outcome, Dirty]:
        """Create or change a farm. Raises FarmRefusedError."""
        try:
            dirty = self._writer.put(FARMS, await self._apply(apply))
            record = self._writer.cache.farms.get(apply.key)
            if record is not None and record.uid and record.digest != apply.wanted.digest:
                # Server-side apply leaves what other managers added to a list; this takes it out.
                answer = await self._kube.patch(
                    FARMS, apply.key.name, {"spec": blanks(apply.wanted.spec)}, apply.key.namespace
                )
                dirty = _join(dirty, self._writer.put(FARMS, answer))
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Dirty()
        metrics.FARMS_APPLIED.labels(apply.reason).inc()
        _log.info("farm applied", **_where(apply.key, apply.wanted.port), reason=apply.reason)
        return Outcome.DONE, dirty

    async def _apply(self, apply: Apply) -> JsonObject:
        try:
            return await self._kube.apply(FARMS, apply.body, field_manager=names.FIELD_MANAGER_FARMS)
        except errors.KubeError as error:
            # The API server takes no second controller, and the first may be one that we did not put there.
            if error.status != 422 or not apply.foreign_owner:
                raise
        await self._take_controller(apply.key)
        return await self._kube.apply(FARMS, apply.body, field_manager=names.FIELD_MANAGER_FARMS)

    async def disown(self, farm: FarmRecord) -> tuple[Outcome, Dirty]:
        """Leave a farm no controller. Raises FarmRefusedError."""
        try:
            answer = await self._take_controller(farm.key)
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Dirty()
        return Outcome.DONE, self._writer.put(FARMS, answer)

    async def _take_controller(self, key: FarmKey) -> JsonObject:
        metadata = (await self._kube.get(FARMS, key.name, key.namespace))["metadata"]
        references = [{**reference, "controller": False} for reference in metadata.get("ownerReferences") or ()]
        changes = {"resourceVersion": metadata["resourceVersion"], "ownerReferences": references}
        return await self._kube.patch(FARMS, key.name, {"metadata": changes}, key.namespace)

    async def delete(self, delete: Delete) -> tuple[Outcome, Dirty]:
        """Delete a farm, if it is still the one that was meant. Raises FarmRefusedError."""
        farm = delete.farm
        try:
            await self._kube.delete(FARMS, farm.key.name, farm.key.namespace, uid=farm.uid)
        except errors.NotFoundError:
            # The garbage collector was faster.
            _log.debug("farm deleted by others", **_where(farm.key, farm.port), reason=delete.reason)
            return Outcome.DONE, self._writer.forget(FARMS, farm.key, farm.resource_version)
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Dirty()
        metrics.FARMS_DELETED.labels(delete.reason).inc()
        _log.info("farm deleted", **_where(farm.key, farm.port), reason=delete.reason)
        return Outcome.DONE, self._writer.forget(FARMS, farm.key, farm.resource_version)

    async def write_status(self, farm: FarmRecord, status: JsonObject) -> tuple[Outcome, Dirty]:
        """Write a farm's status. Raises FarmRefusedError."""
        metadata = {"namespace": farm.key.namespace, "name": farm.key.name, "uid": farm.uid}
        try:
            answer = await self._kube.apply(
                FARMS,
                {"metadata": metadata, "status": status},
                field_manager=names.FIELD_MANAGER_STATUS,
                subresource="status",
            )
        except errors.NotFoundError:
            return Outcome.OBSOLETE, Dirty()
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            return classify(error), Dirty()
        metrics.FARM_STATUSES_WRITTEN.inc()
        return Outcome.DONE, self._writer.put(FARMS, answer)


def classify(error: errors.KubeError | errors.KubeUnreachableError) -> Outcome:
    """What a failed write means. Raises FarmRefusedError for one that is useless to repeat as it is."""
    if isinstance(error, errors.KubeUnreachableError):
        return Outcome.RETRY
    if error.status >= 500 and not _too_large(error):
        _log.warning("write failed", error=str(error))
        return Outcome.RETRY
    if error.status in (409, 429):
        return Outcome.RETRY
    # 403 also has this cause; the message is all that Kube keeps of it.
    if isinstance(error, errors.NotFoundError) or (error.status == 403 and "is being terminated" in error.message):
        return Outcome.OBSOLETE
    raise FarmRefusedError(error.message or str(error)) from error


def _too_large(error: errors.KubeError) -> bool:
    """Whether etcd refuses an object for its size, which the API server tells as an error of its own."""
    return "request is too large" in error.message or "message larger than max" in error.message


def _join(one: Dirty, other: Dirty) -> Dirty:
    return Dirty(one.services | other.services, one.farms | other.farms)


def _where(key: FarmKey, port: PortKey | None) -> dict[str, str]:
    return {"namespace": key.namespace, "farm": key.name, "service": port.service if port is not None else ""}
