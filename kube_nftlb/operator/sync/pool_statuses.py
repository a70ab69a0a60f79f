"""Write the status of NftlbAddressPools."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from kube_nftlb import errors, names
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ADDRESS_POOLS
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.pool_status import status
from kube_nftlb.operator.addresses.pools import Pool

_INTERVAL_S = 1.0
"""The shortest interval between two writes to a pool: people read it, and agents only whether the pool is accepted."""
_RETRY_S = 5.0

_log = structlog.get_logger()


class PoolStatuses:
    """Keeps the statuses up to date. ``now`` returns the date."""

    def __init__(self, kube: Kube, book: Book, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._kube = kube
        self._book = book
        self._now = now

    async def write(self) -> None:
        """Write statuses that changed, until cancelled."""
        written = -1
        while True:
            changes, fine = self._book.changes, True
            if changes != written and (fine := await self._write_all()):
                written = changes
            await asyncio.sleep(_INTERVAL_S if fine else _RETRY_S)

    async def _write_all(self) -> bool:
        """Write all statuses that changed. Return false if a write failed."""
        services, fine = self._book.services_of_pools(), True
        now = timestamps.seconds(self._now())
        for pool in list(self._book.pools.values()):
            new = status(pool, self._book, services[pool.name], now)
            if new != pool.status:
                fine = await self._write(pool, new.model_dump(mode="json", by_alias=True)) and fine
        return fine

    async def _write(self, pool: Pool, new: dict[str, object]) -> bool:
        body = {"metadata": {"name": pool.name, "uid": pool.metadata.uid}, "status": new}
        manager = names.FIELD_MANAGER_STATUS
        try:
            await self._kube.apply(ADDRESS_POOLS, body, field_manager=manager, subresource="status")
        except (errors.NotFoundError, errors.ConflictError):
            # It is gone, or another one has its name.
            return True
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            _log.warning("cannot write status of address pool, retrying", pool=pool.name, error=str(error))
            return False
        return True
