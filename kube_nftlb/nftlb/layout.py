"""The layout of nftlb 1.0.7's rules for a farm, as far as it can be read back. No I/O.

For a farm F of the family ip (ip6 has the same with a 6 behind the maps' names), in the table ``nftlb``:

- elements ``protocol . address . port`` in the maps filter-proto-services and nat-proto-services lead to the chains
  ``filter-F`` and ``nat-F``; with intra-connect also in output-filter-proto-services and output-nat-proto-services;
  with the protocol all they are ``protocol . address``, for each protocol, in maps without the ``proto-``;
- ``filter-F`` gives a new connection the mark of a backend, out of an anonymous map of all that are up;
- ``nat-F`` holds an anonymous map from marks to addresses, of all backends that are up or off;
- with persistence the maps ``static-sessions-F`` and ``persist-F`` lead from a client to a mark.

In the mode local there is only ``filter-F``, without a map. In the mode dsr there is nothing of this: in the table
``netdev nftlb`` the map proto-services-I of each interface I leads to the chain ``F``, which has the MAC addresses of
the backends in an anonymous map.
"""

from dataclasses import dataclass
from typing import NamedTuple

from kube_nftlb.netfilter.table_text import FAMILIES as FAMILIES
from kube_nftlb.netfilter.table_text import TableFamily as TableFamily
from kube_nftlb.nftlb import objects

TABLE = "nftlb"

NAT_MAPS = frozenset(("nat-proto-services", "nat-services"))
"""The maps to a farm's chain ``nat-F``, for connections from outside."""

FILTER_MAPS = frozenset(("filter-proto-services", "filter-services"))
"""The maps to ``filter-F``, for connections from outside."""

_PREROUTING_MAPS = (("filter", "filter"), ("nat", "nat"))
_OUTPUT_MAPS = (("output-filter", "filter"), ("output-nat", "nat"))
BY_PORT, _WHOLE = "-proto-services", "-services"
INGRESS_MAP = "proto-services"

BASE_CHAINS = {
    f"{prefix}{kind}": chain
    for prefix, chain in (
        ("filter", "filter"),
        ("nat", "prerouting"),
        ("output-filter", "output-filter"),
        ("output-nat", "output-nat"),
    )
    for kind in (BY_PORT, _WHOLE)
}
"""The chain that looks each map up, once a farm needs it."""
MAPS = tuple(BASE_CHAINS)
BASE_RULES = {
    "filter": ("meta; cmp; ct; meta",),
    "prerouting": ("ct; bitwise; cmp; meta; cmp; ct; meta",),
    "postrouting": ("ct; cmp; meta; ct", "ct; bitwise; cmp; masq", "ct; lookup; nat"),
    "output-filter": (),
    "output-nat": (),
}
"""The other rules of the chains that farms share, in order: the names of their expressions. nftlb writes them once."""

_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}


class MapEntry(NamedTuple):
    """An element of one of the maps: the map, its key, and the chain that it leads to; the port is 0 for every port."""

    map: str
    protocol: int
    ip: str
    port: int
    chain: str


class Target(NamedTuple):
    """An element of a farm's map of addresses."""

    mark: int
    ip: str
    port: int


class StaticSession(NamedTuple):
    """An element of a farm's map of static sessions."""

    client: str
    mark: int


@dataclass(frozen=True, slots=True)
class FarmRules:
    """The rules of a farm, in the kernel or expected."""

    listeners: frozenset[MapEntry]
    scheduled: frozenset[int]
    targets: frozenset[Target]
    sessions: frozenset[StaticSession] = frozenset()

    def drift(self, kernel: "FarmRules") -> str | None:
        """Return the first deviation of the kernel from this, or None."""
        for what, wanted, found in (
            ("listener", self.listeners, kernel.listeners),
            ("scheduled mark", self.scheduled, kernel.scheduled),
            ("target", self.targets, kernel.targets),
            ("static session", self.sessions, kernel.sessions),
        ):
            if missing := wanted - found:
                return f"{what} {_words(min(missing))} is missing in the kernel"
            if extra := found - wanted:
                return f"{what} {_words(min(extra))} is in the kernel, and should not be"
        return None


def family(farm: objects.Farm) -> TableFamily:
    """Return the nftables family of a farm, which is that of its addresses."""
    return "ip6" if farm.ipv6 else "ip"


def map_name(name: str, table: TableFamily) -> str:
    """Return a map's name in a family's table."""
    return f"{name}6" if table == "ip6" else name


def filter_chain(farm: str) -> str:
    """Return the chain that schedules a farm's backends."""
    return f"filter-{farm}"


def nat_chain(farm: str) -> str:
    """Return the chain that translates a farm's connections to their backends."""
    return f"nat-{farm}"


def sessions_map(farm: str) -> str:
    """Return the map from clients to marks of a farm with persistence."""
    return f"persist-{farm}"


def static_sessions_map(farm: str) -> str:
    """Return the map from clients to marks of a farm's static sessions."""
    return f"static-sessions-{farm}"


def expected(farm: objects.Farm) -> FarmRules:
    """Return the rules that the kernel should have for a farm."""
    maps = _PREROUTING_MAPS + (_OUTPUT_MAPS if farm.options.get("intra-connect") == "on" else ())
    listeners = frozenset(
        MapEntry(
            f"{prefix}{_WHOLE if port.protocol == 'all' else BY_PORT}",
            _PROTOCOLS[protocol],
            port.ip,
            port.port,
            f"{kind}-{farm.name}",
        )
        for port in farm.bound_ports()
        for protocol in objects.PROTOCOLS[port.protocol]
        for prefix, kind in maps
    )
    # nftlb writes a farm's rules for each of its addresses; one with node ports alone may have none on a node.
    if farm.options.get("state", "up") != "up" or farm.ingress or not farm.addresses:
        return FarmRules(frozenset(), frozenset(), frozenset())
    if farm.options.get("mode") == "local":
        return FarmRules(frozenset(entry for entry in listeners if entry.map in FILTER_MAPS), frozenset(), frozenset())
    backends = farm.backends.values()
    scheduled = frozenset(backend.mark for backend in backends if backend.state == "up")
    # One backend without a port is enough for nftlb to keep the port of all, and so is the protocol all.
    ported = all(backend.options.get("port") for backend in backends) and not any(
        address.protocol == "all" for address in farm.addresses.values()
    )
    led_to = {backend.name: backend for backend in backends if backend.state != "down"}
    targets = frozenset(
        Target(backend.mark, backend.options["ip-addr"], int(backend.options["port"]) if ported else 0)
        for backend in led_to.values()
    )
    sessions = frozenset(
        StaticSession(client, led_to[name].mark) for client, name in farm.sessions.items() if name in led_to
    )
    return FarmRules(listeners, scheduled, targets, sessions)


@dataclass(frozen=True, slots=True)
class IngressRules:
    """The rules of a farm in the mode dsr, in the kernel or expected."""

    listeners: frozenset[MapEntry]
    macs: frozenset[str]

    def drift(self, kernel: "IngressRules") -> str | None:
        """Return the first deviation of the kernel from this, or None."""
        if missing := self.listeners - kernel.listeners:
            return f"listener {_words(min(missing))} is missing in the kernel"
        if self.macs != kernel.macs:
            return f"packets go to {_words(tuple(sorted(kernel.macs)))}, not to {_words(tuple(sorted(self.macs)))}"
        return None


def expected_ingress(farm: objects.Farm) -> IngressRules:
    """Return the rules that the kernel should have for a farm in the mode dsr."""
    return IngressRules(
        frozenset(
            MapEntry(
                f"{map_name(INGRESS_MAP, family(farm))}-{address.interface}",
                _PROTOCOLS[port.protocol],
                port.ip,
                port.port,
                farm.name,
            )
            for address in farm.addresses.values()
            if address.interface
            for port in address.bound_ports()
        ),
        frozenset(
            mac
            for backend in farm.backends.values()
            if backend.state == "up" and (mac := backend.options.get("ether-addr"))
        ),
    )


def _words(element: object) -> str:
    return " ".join(str(part) for part in element) if isinstance(element, tuple) else str(element)
