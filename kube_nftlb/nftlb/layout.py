"""How nftlb 1.0.7 lays a farm out in nftables, as far as it can be read back. No I/O.

For a farm F of the family ip (ip6 has the same with a 6 behind the maps' names), in the table ``nftlb``:

- elements ``protocol . address . port`` in the maps filter-proto-services and nat-proto-services lead to the chains
  ``filter-F`` and ``nat-F``; with intra-connect also in output-filter-proto-services and output-nat-proto-services;
- ``filter-F`` gives a new connection the mark of a backend, out of an anonymous map of all that are up;
- ``nat-F`` holds an anonymous map from marks to addresses, of all backends that are up or off.
"""

import ipaddress
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kube_nftlb.nftlb import objects

TABLE = "nftlb"

Family = Literal["ip", "ip6"]
FAMILIES: tuple[Family, ...] = ("ip", "ip6")

NAT_MAP = "nat-proto-services"
_PREROUTING_MAPS = (("filter-proto-services", "filter"), (NAT_MAP, "nat"))
_OUTPUT_MAPS = (("output-filter-proto-services", "filter"), ("output-nat-proto-services", "nat"))
MAPS = tuple(name for name, _ in _PREROUTING_MAPS + _OUTPUT_MAPS)

BASE_CHAINS = {
    "filter": "filter-proto-services",
    "prerouting": NAT_MAP,
    "output-filter": "output-filter-proto-services",
    "output-nat": "output-nat-proto-services",
}
"""The chains that hold the look-up in a map, once a farm needs it."""

_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}


class Listener(NamedTuple):
    """An element of one of the four maps: the map, its key, and the chain that it leads to."""

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


@dataclass(frozen=True, slots=True)
class FarmRules:
    """What the kernel has of a farm, or should have."""

    listeners: frozenset[Listener]
    scheduled: frozenset[int]
    targets: frozenset[Target]

    def difference(self, kernel: "FarmRules") -> str:
        """In words, the first way in which the kernel differs from this; empty where it does not."""
        for what, wanted, found in (
            ("listener", self.listeners, kernel.listeners),
            ("scheduled mark", self.scheduled, kernel.scheduled),
            ("target", self.targets, kernel.targets),
        ):
            if missing := wanted - found:
                return f"{what} {_words(min(missing))} is missing in the kernel"
            if extra := found - wanted:
                return f"{what} {_words(min(extra))} is in the kernel, and should not be"
        return ""


def family(farm: objects.Farm) -> Family:
    """The nftables family of a farm, which is the one of its addresses."""
    return "ip6" if farm.ipv6 else "ip"


def map_name(name: str, table: Family) -> str:
    """A map's name in a family's table."""
    return f"{name}6" if table == "ip6" else name


def filter_chain(farm: str) -> str:
    """The chain that picks a farm's backend."""
    return f"filter-{farm}"


def nat_chain(farm: str) -> str:
    """The chain that sends a farm's connections to the backend picked."""
    return f"nat-{farm}"


def sessions_map(farm: str) -> str:
    """The map of a farm with persistence: client to mark."""
    return f"persist-{farm}"


def expected(farm: objects.Farm) -> FarmRules:
    """What the kernel has of a farm when nftlb has done as it was told."""
    maps = _PREROUTING_MAPS + (_OUTPUT_MAPS if farm.options.get("intra-connect") == "on" else ())
    listeners = frozenset(
        Listener(map_, _PROTOCOLS[claim.protocol], claim.ip, claim.port, f"{kind}-{farm.name}")
        for claim in farm.claims()
        for map_, kind in maps
    )
    if farm.options.get("state", "up") != "up":
        return FarmRules(frozenset(), frozenset(), frozenset())
    backends = farm.backends.values()
    scheduled = frozenset(backend.mark for backend in backends if backend.state == "up")
    # With nobody to schedule nftlb leaves the whole map out, and backends that are off with it.
    targets = frozenset(
        Target(backend.mark, backend.options["ip-addr"], int(backend.options["port"]))
        for backend in backends
        if backend.state == "up" or (backend.state == "off" and scheduled)
    )
    return FarmRules(listeners, scheduled, targets)


def listener_key(listener: Listener) -> bytes:
    """A map's key as the kernel has it: each part padded to 4 bytes."""
    ip = ipaddress.ip_address(listener.ip).packed
    return bytes([listener.protocol, 0, 0, 0]) + ip + listener.port.to_bytes(2, "big") + b"\0\0"


def parse_listener(map_: str, key: bytes, chain: str) -> Listener:
    """The element that a key and a chain make."""
    return Listener(map_, key[0], str(ipaddress.ip_address(key[4:-4])), int.from_bytes(key[-4:-2], "big"), chain)


def session_text(persistence: str, key: bytes) -> str:
    """A key of a farm's persistence map, as nft(8) spells it; every part of it is padded to 4 bytes."""
    parts = []
    for word in persistence.split():
        if word.endswith("ip"):
            # What is not the address is one port of 4 bytes.
            size = len(key) - 4 * (len(persistence.split()) - 1)
            parts.append(str(ipaddress.ip_address(key[:size])))
            key = key[size:]
        elif word.endswith("port"):
            parts.append(str(int.from_bytes(key[:2], "big")))
            key = key[4:]
        else:
            parts.append(key[:6].hex(":"))
            key = key[8:]
    return " . ".join(parts)


def parse_target(mark: bytes, data: bytes) -> Target:
    """An element of a farm's map of addresses: ct mark to address and port."""
    ip = data[:-4] if len(data) in (8, 20) else data
    port = int.from_bytes(data[-4:-2], "big") if len(data) in (8, 20) else 0
    return Target(parse_mark(mark), str(ipaddress.ip_address(ip)), port)


def parse_mark(mark: bytes) -> int:
    """The backend's part of a connection mark; the bit that asks for masquerading is left out."""
    return int.from_bytes(mark, "little") & objects.MARK_LAST


def _words(element: object) -> str:
    return " ".join(str(part) for part in element) if isinstance(element, tuple) else str(element)
