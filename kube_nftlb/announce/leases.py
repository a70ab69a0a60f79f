"""The Leases of addresses, in the API server: read, watch, and write them by compare-and-swap."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from kube_nftlb import errors
from kube_nftlb.announce.ownership import records
from kube_nftlb.announce.ownership.address import Write
from kube_nftlb.announce.ownership.node import Writing
from kube_nftlb.announce.ownership.records import NOBODY, Record
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resource_versions import check_listed
from kube_nftlb.kube.resources import LEASES, JsonObject

Seen = Callable[[str, Record], None]
"""Gets an address, and its record."""


class Leases(Protocol):
    """Where it is written who holds which address."""

    async def watch(self, seen: Seen, listed: Callable[[], None]) -> None:
        """Tell each record there is, then ``listed``, then each that changes, until cancelled."""

    async def read(self, ip: str) -> Record:
        """Return the record of an address as it is now. Raises KubeError and KubeUnreachableError."""

    async def write(self, writing: Writing) -> Record:
        """Write a record unless it has changed. Return the new one.

        Raises ConflictError if it has, other KubeErrors, and KubeUnreachableError.
        """


class KubeLeases:
    """``Leases`` in a namespace, for the node ``me``."""

    def __init__(self, kube: Kube, namespace: str, me: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._me = me
        self._known: set[str] = set()
        self._newest: dict[str, int] = {}
        """The highest resourceVersion that was seen of the Lease of each address."""

    async def watch(self, seen: Seen, listed: Callable[[], None]) -> None:
        """As in ``Leases``."""

        def replace(listing: Listing) -> None:
            found = dict(records.parse(item) for item in listing.items)
            found.pop("", None)
            for ip, record in found.items():
                known, listed_at = self._newest.get(ip, 0), int(listing.resource_version)
                check_listed(f"the Lease of the address {ip}", int(record.version), known, listed_at)
                self._note(ip, record)
            for ip in self._known - found.keys():
                seen(ip, NOBODY)
            for ip, record in found.items():
                seen(ip, record)
            self._known = set(found)
            listed()

        def put(raw: JsonObject) -> None:
            ip, record = records.parse(raw)
            if ip:
                self._known.add(ip)
                self._note(ip, record)
                seen(ip, record)

        def remove(raw: JsonObject) -> None:
            ip, gone = records.parse(raw)
            # A watch that lags may tell it of a Lease that has been made anew since.
            if ip in self._known and int(gone.version) >= self._newest.get(ip, 0):
                self._known.remove(ip)
                self._newest.pop(ip, None)
                seen(ip, NOBODY)

        selector = f"{records.LABEL}=true"
        await list_and_watch(
            self._kube, LEASES, Handlers(replace, put, remove), namespace=self._namespace, label_selector=selector
        )

    def _note(self, ip: str, record: Record) -> Record:
        self._newest[ip] = max(int(record.version), self._newest.get(ip, 0))
        return record

    async def read(self, ip: str) -> Record:
        """As in ``Leases``."""
        try:
            return records.parse(await self._kube.get(LEASES, records.name(ip), self._namespace))[1]
        except errors.NotFoundError:
            return NOBODY

    async def write(self, writing: Writing) -> Record:
        """As in ``Leases``."""
        ip, before, name = writing.ip, writing.before, records.name(writing.ip)
        if writing.write is Write.GIVE_UP:
            await self._kube.delete(LEASES, name, self._namespace, version=before.version)
            return NOBODY
        if writing.write is Write.CLAIM:
            body = records.claimed(ip, before, self._me, writing.mac, datetime.now(UTC))
        else:
            body = records.leaving(ip, before)
        if before.version:
            return self._note(ip, records.parse(await self._kube.patch(LEASES, name, body, self._namespace))[1])
        return self._note(ip, records.parse(await self._kube.create(LEASES, body, self._namespace))[1])
