"""Write the farms of a Service, until another Service has its turn."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from kube_nftlb import metrics
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.farms.ports import PortKey
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.operator.sync.diff import Apply, Delete, Writes
from kube_nftlb.operator.sync.farm_events import FarmEvents
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, FarmWriter, Outcome
from kube_nftlb.settings import DefaultEngine

_WRITES_MAX = 128
"""Number of farms that a worker writes, in about a second, before another Service has its turn."""


@dataclass(slots=True)
class BatchResult:
    """The results of the writes of a Service."""

    refused: set[PortKey | None]
    """The ports whose farms the API server refused."""
    awaited: set[PortKey | None] = field(default_factory=set)
    """The ports with a write that has to be repeated."""
    problems: list[Rejection] = field(default_factory=list)
    retry: str | None = None
    """Why a write has to be repeated; None if none has."""
    obsolete: bool = False
    more: bool = False
    """True if there are writes that were not tried."""

    def waits(self, write: Apply | Delete) -> bool:
        """Return True for a write that must wait for others, which failed.

        Addresses of a farm that goes move to one that does not exist yet: if that is rejected, the old farm stays.
        """
        if isinstance(write, Delete):
            return self.retry is not None or _whole(write.farm.port) in self.refused
        return write.reason != "Created" and _whole(write.port) in self.awaited


class BatchWriter:
    """Writes farms; ``on_written`` gets what the answers make out of date."""

    def __init__(
        self,
        farm_writer: FarmWriter,
        farm_events: FarmEvents,
        cache: Cache,
        engine: DefaultEngine,
        on_written: Callable[[Affected], None],
    ) -> None:
        """``engine`` is that of Services that name none."""
        self._farm_writer = farm_writer
        self._farm_events = farm_events
        self._cache = cache
        self._engine = engine
        self._on_written = on_written

    async def write(self, todo: Writes, refused: AbstractSet[PortKey | None]) -> BatchResult:
        """Write until another Service has its turn. Ports that were ``refused`` in earlier turns come last."""
        result = BatchResult(set(refused))
        applies = sorted(todo.applies, key=lambda each: _whole(each.port) in refused)
        writes: list[Apply | Delete] = [*applies, *todo.deletes]
        for attempts, write in enumerate(writes):
            if attempts >= _WRITES_MAX:
                again = isinstance(write, Apply) and _whole(write.port) in refused
                result.more = result.retry is None and not again
                break
            if not result.waits(write):
                await self._try(write, result)
        return result

    async def _try(self, write: Apply | Delete, result: BatchResult) -> None:
        port = _whole(write.port) if isinstance(write, Apply) else None
        try:
            outcome, why = await self._write(write)
        except FarmRefusedError as error:
            result.refused.add(port)
            metrics.FARMS_REFUSED.inc()
            result.problems.append(Rejection("FarmRefused", str(error)))
            return
        if outcome is Outcome.RETRY and result.retry is None:
            name = write.key.name if isinstance(write, Apply) else write.farm.key.name
            result.retry = f"the farm {name} cannot be written, and is tried again: {why}"
        result.obsolete = result.obsolete or outcome is Outcome.OBSOLETE
        if isinstance(write, Apply) and outcome is Outcome.RETRY:
            result.awaited.add(port)

    async def _write(self, write: Apply | Delete) -> tuple[Outcome, str]:
        if isinstance(write, Delete):
            outcome, affected, why = await self._farm_writer.delete(write)
        else:
            before = self._cache.farms.get(write.key)
            outcome, affected, why = await self._farm_writer.apply(write)
            if before is not None and outcome is Outcome.DONE:
                self._farm_events.written(before, write.body["spec"], self._engine)
        self._on_written(affected)
        return outcome, why


def _whole(port: PortKey | None) -> PortKey | None:
    """Return what both farms of a Service port have in common."""
    return port and port._replace(external=False)
