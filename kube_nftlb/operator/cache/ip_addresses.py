"""The IPAddress objects that the operator has made for Gateways. No I/O."""

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.address_ranges import Ip, ip_of
from kube_nftlb.kube.resources import GATEWAYS, JsonObject
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.cache.versioned_map import VersionedMap
from kube_nftlb.operator.gateway.objects import ObjectKey

SELECTOR: Final = f"{names.LABEL_IP_MANAGED_BY}={names.MANAGED_BY_OPERATOR}"
"""Selects them among all IPAddresses."""


class Held(NamedTuple):
    """An IPAddress of a Gateway."""

    ip: Ip
    gateway: ObjectKey
    uid: str
    version: int
    created: str
    """RFC 3339."""


class IPAddresses:
    """All of them, by Gateway."""

    def __init__(self) -> None:
        self._all: VersionedMap[Ip, Held] = VersionedMap(lambda held: held.version)
        self._of: Multimap[ObjectKey, Ip] = Multimap()
        self._of_namespace: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all.keys())

    def get(self, ip: Ip) -> Held | None:
        """Return an IPAddress, None if there is none of ours."""
        return self._all.get(ip)

    def of(self, gateway: ObjectKey) -> list[Held]:
        """Return those of a Gateway, the oldest ones first."""
        found = (self._all.get(ip) for ip in self._of.get(gateway))
        return sorted((held for held in found if held is not None), key=lambda held: (held.created, held.ip))

    def gateways(self) -> Iterable[ObjectKey]:
        """Return the Gateways that have any, whether or not they exist."""
        return list(self._of.keys())

    def of_namespace(self, namespace: str) -> int:
        """Return the number of those of the Gateways of a namespace."""
        return self._of_namespace[namespace]

    def put(self, raw: JsonObject) -> ObjectKey | None:
        """Put in an IPAddress; return the Gateway that has it, None if it is no Gateway's, or no news."""
        if (held := parse(raw)) is None:
            return None
        before = self._all.get(held.ip)
        if not self._all.put(held.ip, held):
            return None
        if before is not None:
            self._forget(before)
        self._of.add(held.gateway, held.ip)
        self._of_namespace[held.gateway.namespace] += 1
        return held.gateway

    def remove(self, ip: Ip, version: int) -> ObjectKey | None:
        """Remove one that was deleted at a resourceVersion; return the Gateway that had it, None if that is no news."""
        if (before := self._all.remove(ip, version)) is None:
            return None
        self._forget(before)
        return before.gateway

    def replace(self, items: Iterable[JsonObject], version: int) -> set[ObjectKey]:
        """Put in all that exist at a resourceVersion; return the Gateways that have others than before."""
        listed = list(items)
        ips = {held.ip for raw in listed if (held := parse(raw)) is not None}
        gone = [ip for ip, known in self._all.versions() if known <= version and ip not in ips]
        changed = {self.remove(ip, version) for ip in gone} | {self.put(raw) for raw in listed}
        return {gateway for gateway in changed if gateway is not None}

    def _forget(self, held: Held) -> None:
        self._of.discard(held.gateway, held.ip)
        self._of_namespace[held.gateway.namespace] -= 1
        if not self._of_namespace[held.gateway.namespace]:
            del self._of_namespace[held.gateway.namespace]


def parse(raw: JsonObject) -> Held | None:
    """Return an IPAddress if the operator has made it for a Gateway."""
    metadata, parent = raw["metadata"], (raw.get("spec") or {}).get("parentRef") or {}
    ours = (metadata.get("labels") or {}).get(names.LABEL_IP_MANAGED_BY) == names.MANAGED_BY_OPERATOR
    if not ours or (parent.get("group"), parent.get("resource")) != (GATEWAYS.group, GATEWAYS.plural):
        return None
    gateway = ObjectKey(parent.get("namespace") or "", parent.get("name") or "")
    created = str(metadata.get("creationTimestamp") or "")
    return Held(ip_of(metadata["name"]), gateway, metadata["uid"], int(metadata["resourceVersion"]), created)


def manifest(ip: Ip, gateway: ObjectKey) -> JsonObject:
    """Return the IPAddress by which a Gateway has an address."""
    labels = {
        names.LABEL_IP_MANAGED_BY: names.MANAGED_BY_OPERATOR,
        names.LABEL_IP_FAMILY: "IPv6" if ip.family == "ipv6" else "IPv4",
    }
    parent = {"group": GATEWAYS.group, "resource": GATEWAYS.plural, **gateway._asdict()}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": str(ip), "labels": labels},
        "spec": {"parentRef": parent},
    }
