"""EndpointSlices in a compact form: a quarter of a million endpoints have to fit into memory."""

import functools
import ipaddress
import socket
import sys
from typing import Any, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.base import Family
from kube_nftlb.api.kubernetes.endpointslice import Endpoint, EndpointSlice, Hints

INVALID_SHOWN_MAX = 5

_IPS_MAX = 1 << 16
"""How many parsed IPv6 addresses are cached: each change of a slice brings all of its addresses again."""

_ANY, _BROADCAST = bytes(4), b"\xff" * 4
_MULTICAST = range(224, 240)

_FAMILIES: dict[str, Family] = {"IPv4": "ipv4", "IPv6": "ipv6"}
_NO_HINTS = Hints()
_FOREIGN_LABELS = (names.LABEL_PROXY_NAME, names.LABEL_HEADLESS)


class ServiceKey(NamedTuple):
    """The identity of a Service."""

    namespace: str
    name: str


class Peer(NamedTuple):
    """An endpoint: its canonical IP, and the names of its pod and node, ``""`` if unknown."""

    ip: str
    pod: str
    node: str
    ready: bool
    serving: bool
    terminating: bool
    zones: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class SlicePort(NamedTuple):
    """A port of all endpoints of a slice; ``name`` is ``""`` if it has none."""

    name: str
    protocol: str
    port: int


class Slice(NamedTuple):
    """An EndpointSlice of a Service; ``invalid`` are the first of its addresses that are invalid."""

    namespace: str
    name: str
    service: str
    family: Family
    ports: tuple[SlicePort, ...]
    peers: tuple[Peer, ...]
    invalid: tuple[str, ...]


def parse_slice(raw: dict[str, Any]) -> Slice | None:
    """Return the compact form of an EndpointSlice object, or None if no farm needs it.

    No farm needs slices without a Service, of headless Services, for another proxy, or of the address type FQDN. Ports
    without a number, and all but the first address of an endpoint, are ignored, as by kube-proxy.
    """
    labels = raw["metadata"].get("labels") or {}
    service = labels.get(names.LABEL_SLICE_SERVICE)
    family = _FAMILIES.get(raw.get("addressType", ""))
    if not service or family is None or any(label in labels for label in _FOREIGN_LABELS):
        return None
    parsed = EndpointSlice.model_validate(raw)
    peers: list[Peer] = []
    invalid: list[str] = []
    for endpoint in parsed.endpoints:
        for address in endpoint.addresses[:1]:
            if (ip := canonical_ip(address, family)) is not None:
                peers.append(_peer(ip, endpoint))
            elif len(invalid) < INVALID_SHOWN_MAX:
                invalid.append(address[:64])
    ports = tuple(SlicePort(port.name or "", port.protocol, port.port) for port in parsed.ports if port.port)
    return Slice(
        parsed.metadata.namespace,
        parsed.metadata.name,
        sys.intern(service),
        family,
        ports,
        tuple(peers),
        tuple(invalid),
    )


def canonical_ip(text: str, family: Family) -> str | None:
    """Return an address in the form that the farm's schema needs, or None if nothing can connect to it."""
    if family == "ipv4":
        try:
            octets = socket.inet_pton(socket.AF_INET, text)
        except (OSError, ValueError):
            return None
        return None if octets in (_ANY, _BROADCAST) or octets[0] in _MULTICAST else sys.intern(text)
    return _canonical_ipv6(text) if ":" in text else None


@functools.lru_cache(_IPS_MAX)
def _canonical_ipv6(text: str) -> str | None:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    # ipaddress formats IPv4-mapped addresses unlike Kubernetes, and an address with a zone is valid on one host only.
    if address.is_unspecified or address.is_multicast or address.scope_id or address.ipv4_mapped:
        return None
    return str(address)


def _peer(ip: str, endpoint: Endpoint) -> Peer:
    target, hints = endpoint.target_ref, endpoint.hints or _NO_HINTS
    return Peer(
        ip,
        sys.intern(target.name) if target is not None and target.kind == "Pod" else "",
        sys.intern(endpoint.node_name or ""),
        endpoint.ready,
        endpoint.serving,
        endpoint.terminating,
        tuple(sys.intern(hint.name) for hint in hints.for_zones),
        tuple(sys.intern(hint.name) for hint in hints.for_nodes),
    )
