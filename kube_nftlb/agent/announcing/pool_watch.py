"""Watch the address pools: what they say of announcing, and their addresses, for which the loop waits as it begins."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.agent.announcing.valid import watch_valid
from kube_nftlb.agent.clock import rest_s
from kube_nftlb.agent.sync.loop_state import LoopState
from kube_nftlb.api.address_pool import AddressPool
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ADDRESS_POOLS

_WAIT_S: Final = 10.0
"""So long farms wait for the list of pools, once all else is known."""
_LOOK_S: Final = 0.05
_ABSENT: Final = 404
_NOT_ALLOWED: Final = (403, _ABSENT)
"""The API server's answers if the agent may not list pools, or the cluster has no such resource."""

_log = structlog.get_logger()


class PoolWatch:
    """Tells the loop the addresses of pools. ``on_change`` gets all pools."""

    def __init__(self, kube: Kube, state: LoopState, on_change: Callable[[Pools], None]) -> None:
        self._kube = kube
        self._state = state
        self._on_change = on_change
        self._pools: Pools | None = None
        self._seen: Mapping[str, AddressPool] = {}
        self._changed = asyncio.Event()
        self._absent_since: float | None = None
        """Since when the cluster has had no such resource."""
        state.pools.wait()

    @property
    def knows_pools(self) -> bool:
        """Return whether pools have been listed."""
        return self._pools is not None

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_valid(self._kube, ADDRESS_POOLS, AddressPool, self._take, self._failed))
            tasks.create_task(self._judge_changes())
            tasks.create_task(self._bound_wait())

    def _take(self, pools: Mapping[str, AddressPool]) -> None:
        self._seen = pools
        if self._pools is None:
            # Farms wait for it.
            self._judge()
        else:
            self._changed.set()

    async def _judge_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            began = time.monotonic()
            self._judge()
            # Changes that come meanwhile are judged together: of many pools each takes a while.
            await asyncio.sleep(rest_s(time.monotonic() - began))

    def _judge(self) -> None:
        self._pools = Pools(self._seen.values(), self._pools)
        self._state.set_pools(self._pools.assignable)
        self._on_change(self._pools)

    def _failed(self, error: errors.KubeNftlbError) -> None:
        _log.warning("cannot watch address pools, retrying", error=str(error))
        status = error.status if isinstance(error, errors.KubeError) else None
        if status in _NOT_ALLOWED and not self.knows_pools:
            self._state.set_pools(())
        if status != _ABSENT or self.knows_pools:
            self._absent_since = None
        elif self._absent_since is None:
            self._absent_since = time.monotonic()
        elif time.monotonic() > self._absent_since + _WAIT_S:
            # Services keep the addresses of a pool that is gone.
            self._take({})

    async def _bound_wait(self) -> None:
        """Have farms programmed without the addresses of pools, if these cannot be listed although all else can."""
        until: float | None = None
        while not self._state.pools.known:
            if self._state.complete_but_for_pools:
                until = until or time.monotonic() + _WAIT_S
                if time.monotonic() > until:
                    _log.warning("address pools are not known, programming farms without", waited_s=_WAIT_S)
                    self._state.set_pools(())
            await asyncio.sleep(_LOOK_S)
