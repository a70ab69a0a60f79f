"""List and watch the IPAddresses of Gateways."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from kube_nftlb import errors
from kube_nftlb.api.address_ranges import ip_of
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import IP_ADDRESSES, JsonObject
from kube_nftlb.operator.cache.ip_addresses import SELECTOR, IPAddresses
from kube_nftlb.operator.gateway.objects import ObjectKey

_RETRY_S = 2.0

_log = structlog.get_logger()


class IPAddressInformer:
    """Keeps a cache up to date. ``on_change`` gets the Gateways whose IPAddresses are others."""

    def __init__(self, kube: Kube, addresses: IPAddresses, on_change: Callable[[Iterable[ObjectKey]], None]) -> None:
        self._kube = kube
        self._addresses = addresses
        self._on_change = on_change
        self.listed = asyncio.Event()
        """Set once all are listed, or it is known that none can be."""
        self.problem: str | None = None
        """Why there are none, as a sentence; None if there may be some."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        handlers = Handlers(self._replace, self._put, self._remove, self._seen, failed=self._failed)
        await list_and_watch(self._kube, IP_ADDRESSES, handlers, label_selector=SELECTOR)

    async def catch_up(self, are_used: Callable[[], bool]) -> None:
        """List them once more, with retries: a new leader may not know yet what the last one created.

        If none can be read, that counts only if no farm has a cluster IP, as ``are_used`` tells: what is served must
        not go for a missing permission.
        """
        while self.problem is None or are_used():
            try:
                listing = await self._kube.list(IP_ADDRESSES, label_selector=SELECTOR)
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                _log.warning("cannot list IPAddresses, retrying", error=str(error))
                await asyncio.sleep(_RETRY_S)
            else:
                self.problem = None
                self._on_change(self._addresses.replace(listing.items, int(listing.resource_version)))
                return

    def _replace(self, listing: Listing) -> None:
        self.problem = None
        self._on_change(self._addresses.replace(listing.items, int(listing.resource_version)))
        self.listed.set()

    def _put(self, raw: JsonObject) -> None:
        self._tell(self._addresses.put(raw))

    def _remove(self, raw: JsonObject) -> None:
        metadata = raw["metadata"]
        self._tell(self._addresses.remove(ip_of(metadata["name"]), int(metadata["resourceVersion"])))

    def _seen(self, _version: int) -> None:
        # A watch that failed goes on where it was, without another list.
        self.problem = None

    def _tell(self, gateway: ObjectKey | None) -> None:
        if gateway is not None:
            self._on_change([gateway])

    def _failed(self, error: errors.KubeNftlbError) -> None:
        if isinstance(error, errors.NotFoundError):
            self.problem = "the cluster has no IPAddresses: they are there from Kubernetes 1.33 on"
        elif isinstance(error, errors.KubeError) and error.status == 403:
            self.problem = "the operator may not read IPAddresses: install the chart with gateway.enabled"
        else:
            _log.warning("watch failed, retrying", resource=IP_ADDRESSES.plural, error=str(error))
            return
        self.listed.set()
