"""EndpointSlices in a compact form, as a quarter of a million endpoints have to fit into memory. Pure: no I/O."""

import functools
import ipaddress
import socket
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.base import Family
from kube_nftlb.api.kubernetes.endpointslice import Endpoint, EndpointSlice, Hint
from kube_nftlb.api.rules import METADATA_IPS

INVALID_SHOWN_MAX = 5
ENDPOINTS_MAX, PORTS_MAX, HINTS_MAX = 1000, 100, 8
"""Limits of one slice: those of the EndpointSlice API for endpoints and hints, and what a Service can have of ports."""

_NAME_MAX = 253
"""Maximum length of a name of a Pod or Node."""

_IPS_MAX = 1 << 16
"""Maximum number of cached IPv6 addresses: each change of a slice brings all of its addresses again."""

_SHARED_MAX = 1 << 17
"""Maximum number of cached endpoints, since Services often share their pods."""

_ANY, _BROADCAST = bytes(4), b"\xff" * 4
_LOOPBACK_OR_MULTICAST = (127, *range(224, 240))
_LINK_LOCAL = b"\xa9\xfe"

_FAMILIES: dict[str, Family] = {"IPv4": "ipv4", "IPv6": "ipv6"}
_FOREIGN_LABELS = (names.LABEL_PROXY_NAME, names.LABEL_HEADLESS)
SERVED_SLICES = ",".join((names.LABEL_SLICE_SERVICE, *(f"!{label}" for label in _FOREIGN_LABELS)))
"""The label selector of slices that farms may need."""


class ServiceKey(NamedTuple):
    """The identity of a Service."""

    namespace: str
    name: str


class SliceEndpoint(NamedTuple):
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
    endpoints: tuple[SliceEndpoint, ...]
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
    bounded = {"endpoints": (raw.get("endpoints") or ())[:ENDPOINTS_MAX], "ports": (raw.get("ports") or ())[:PORTS_MAX]}
    parsed = EndpointSlice.model_validate({**raw, **bounded})
    endpoints: list[SliceEndpoint] = []
    invalid: list[str] = []
    for endpoint in parsed.endpoints:
        for address in endpoint.addresses[:1]:
            if (ip := canonical_ip(address, family)) is not None:
                endpoints.append(_endpoint(ip, endpoint))
            elif len(invalid) < INVALID_SHOWN_MAX:
                invalid.append(address[:64])
    ports = tuple(SlicePort(port.name or "", port.protocol, port.port) for port in parsed.ports if port.port)
    return Slice(
        parsed.metadata.namespace,
        parsed.metadata.name,
        sys.intern(service),
        family,
        ports,
        tuple(endpoints),
        tuple(invalid),
    )


def canonical_ip(text: str, family: Family) -> str | None:
    """Return an address in the form that the farm's schema needs, or None if it is of no use to other nodes.

    These are the addresses that the API server rejects in EndpointSlices, too: unspecified, loopback, link-local and
    multicast ones. And those of clouds' metadata services, which the node would ask in the name of a client.
    """
    if text in METADATA_IPS:
        return None
    if family == "ipv4":
        try:
            octets = socket.inet_pton(socket.AF_INET, text)
        except (OSError, ValueError):
            return None
        local = octets[0] in _LOOPBACK_OR_MULTICAST or octets[:2] == _LINK_LOCAL
        return None if local or octets in (_ANY, _BROADCAST) else sys.intern(text)
    return _canonical_ipv6(text) if ":" in text else None


@functools.lru_cache(_IPS_MAX)
def _canonical_ipv6(text: str) -> str | None:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    # ipaddress formats IPv4-mapped addresses unlike Kubernetes, and an address with a zone is valid on one host only.
    local = address.is_unspecified or address.is_loopback or address.is_link_local or address.is_multicast
    if local or address.scope_id or address.ipv4_mapped:
        return None
    return str(address) if str(address) not in METADATA_IPS else None


def _endpoint(ip: str, endpoint: Endpoint) -> SliceEndpoint:
    target, hints = endpoint.target_ref, endpoint.hints
    return _shared(
        SliceEndpoint(
            ip,
            _name(target.name) if target is not None and target.kind == "Pod" else "",
            _name(endpoint.node_name or ""),
            endpoint.ready,
            endpoint.serving,
            endpoint.terminating,
            _hinted(hints.for_zones) if hints is not None else (),
            _hinted(hints.for_nodes) if hints is not None else (),
        )
    )


def _hinted(hints: Sequence[Hint]) -> tuple[str, ...]:
    return tuple(name for hint in hints[:HINTS_MAX] if (name := _name(hint.name)))


def _name(text: str) -> str:
    """Return a name that is kept once, or ``""`` for a text of any length, as the API server admits in a targetRef."""
    return sys.intern(text) if len(text) <= _NAME_MAX else ""


@functools.lru_cache(_SHARED_MAX)
def _shared(endpoint: SliceEndpoint) -> SliceEndpoint:
    return endpoint
