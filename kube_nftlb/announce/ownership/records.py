"""The Lease of an address: who holds it. Pure.

It is written when an address gets a new holder, or a holder wants to leave or has another link-layer address, and
never to renew it. Each write carries the resourceVersion of what the writer saw, so of two that want an address one
gets it.
"""

import re
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from kube_nftlb.kube import timestamps

IP: Final = "kube-nftlb.io/ip"
MAC: Final = "kube-nftlb.io/link-address"
LEAVING: Final = "kube-nftlb.io/leaving"
LABEL: Final = "kube-nftlb.io/announced-address"
"""Selects the Leases of addresses."""

_TRANSITIONS: Final = 1 << 31
"""Where their number begins anew: the API server refuses a Lease with more, so that nobody could take its address."""
_MAC: Final = re.compile(r"(?!00(:00){5})[0-9a-f][02468ace](:[0-9a-f]{2}){5}")

Json = dict[str, Any]


class Record(NamedTuple):
    """What a Lease says. Nobody holds the address if ``holder`` is empty; there is no Lease if ``version`` is."""

    version: str = ""
    holder: str = ""
    mac: str = ""
    """Of the holder, on the segment of the address."""
    leaving: bool = False
    """The holder asks others to take the address, and answers until one does."""
    transitions: int = 0
    unwatched: bool = False
    """Somebody has removed the label, so that nodes do not see it."""


NOBODY: Final = Record()


def name(ip: str) -> str:
    """Return the name of the Lease of an address: ``address-192-0-2-1``, or with all digits of an IPv6 address."""
    return "address-" + ip_address(ip).exploded.replace(".", "-").replace(":", "-")


def is_host(mac: str) -> bool:
    """Return whether a text is the link-layer address of one host: no group's, and not zero."""
    return _MAC.fullmatch(mac) is not None


def parse(lease: Json) -> tuple[str, Record]:
    """Return the address of a Lease, and its record. The address is empty if it is not one of ours."""
    metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    record = Record(
        metadata.get("resourceVersion") or "",
        spec.get("holderIdentity") or "",
        mac if is_host(mac := annotations.get(MAC) or "") else "",
        annotations.get(LEAVING) == "true",
        spec.get("leaseTransitions") or 0,
        unwatched=labels.get(LABEL) != "true",
    )
    return _ip_of(metadata.get("name") or ""), record


def claimed(ip: str, before: Record, me: str, mac: str, now: datetime) -> Json:
    """Return the Lease with which ``me`` takes an address from who had it before."""
    transitions = (before.transitions + 1) % _TRANSITIONS if before.version else 0
    spec = {"holderIdentity": me, "acquireTime": timestamps.micros(now), "leaseTransitions": transitions}
    return _lease(ip, before, {MAC: mac, LEAVING: None}, spec)


def leaving(ip: str, before: Record) -> Json:
    """Return the change with which a holder asks others to take its address."""
    return _lease(ip, before, {LEAVING: "true"}, {})


def _lease(ip: str, before: Record, annotations: dict[str, str | None], spec: Json) -> Json:
    metadata: Json = {"name": name(ip), "labels": {LABEL: "true"}, "annotations": {IP: ip, **annotations}}
    if before.version:
        # A patch with an outdated resourceVersion is rejected; None removes an annotation.
        metadata["resourceVersion"] = before.version
    else:
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if value is not None}
    return {"metadata": metadata, "spec": spec}


def _ip_of(text: str) -> str:
    parts = text.split("-")[1:]
    try:
        ip = str(ip_address((":" if len(parts) == 8 else ".").join(parts)))
    except ValueError:
        return ""
    return ip if name(ip) == text else ""
