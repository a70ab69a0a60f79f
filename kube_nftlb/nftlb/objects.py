"""nftlb's farms, as they are sent and as ``GET /farms`` returns them. No I/O.

Every value is a string on the wire, ``name`` comes first in each object, and only ``addresses`` has the
listeners: the farm's own virtual-addr, virtual-ports, family and protocol would create an unwanted address.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from kube_nftlb import names

BackendState = Literal["up", "down", "off"]
"""up: gets connections. off: keeps those it has, and can be scheduled by others than nftlb. down: not in the rules."""

MARK_FIRST = 0x2
"""The lowest mark that we allocate; nftlb searches its own marks from 0x1, and stops at once if that is free."""
MARK_LAST = 0xFFF
"""The highest mark that nftlb accepts."""

_NOT_OPTIONS = frozenset(
    ("name", "family", "virtual-addr", "virtual-ports", "protocol", "addresses", "backends", "policies", "sessions")
)

_NOT_SHOWN = {"intra-connect": "off"}
"""Options that ``GET /farms`` omits if they have these values."""

_NEVER_SHOWN = ("oface", "ether-addr")
"""Options that ``GET /farms`` never returns: of a farm in the mode dsr, and of its backends."""


PROTOCOLS = {"tcp": ("tcp",), "udp": ("udp",), "sctp": ("sctp",), "all": ("tcp", "udp", "sctp")}
"""The protocols that nftlb listens on for each protocol of an address."""


class BoundPort(NamedTuple):
    """One port that a farm listens on; nftlb must never have it in two farms.

    With the protocol all it is the whole address, every port of it, and the port is 0.
    """

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True)
class Address:
    """An address that a farm listens on; its name is unique in the daemon.

    ``ports`` is a port, a list or a range, and empty with the protocol all.

    In the mode dsr it has the interface on which packets arrive, and its MAC address; nftlb does not return these, but
    its start-up file has them.
    """

    name: str
    family: str
    ip: str
    ports: str
    protocol: str
    interface: str = ""
    mac: str = ""

    def bound_ports(self) -> Iterator[BoundPort]:
        """Yield each port of the address."""
        if self.protocol == "all":
            yield BoundPort(self.ip, self.protocol, 0)
            return
        for part in self.ports.split(","):
            first, _, last = part.partition("-")
            for port in range(int(first), int(last or first) + 1):
                yield BoundPort(self.ip, self.protocol, port)

    def wire(self) -> dict[str, str]:
        """Return the object in nftlb's API."""
        # nftlb looks up the interface when it reads the address, and keeps the old one if there is none.
        inlet = {"iface": self.interface, "ether-addr": self.mac} if self.interface else {}
        return {
            "name": self.name,
            **inlet,
            "family": self.family,
            "ip-addr": self.ip,
            "ports": self.ports,
            "protocol": self.protocol,
        }


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend; its connection ``mark`` is unique in the farm."""

    name: str
    mark: int
    state: BackendState
    options: Mapping[str, str]

    def wire(self) -> dict[str, str]:
        """Return the object in nftlb's API."""
        return {"name": self.name, **self.options, "mark": hex(self.mark), "state": self.state}


@dataclass(frozen=True, slots=True)
class Farm:
    """A farm: its options by nftlb's names, its addresses and backends by name.

    ``sessions`` are the static ones, a client and the name of its backend. nftlb does not return those made by packets.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, Address] = field(default_factory=dict)
    backends: Mapping[str, Backend] = field(default_factory=dict)
    sessions: Mapping[str, str] = field(default_factory=dict)

    @property
    def ipv6(self) -> bool:
        """True if it listens on IPv6 addresses; a farm has one family."""
        return any(address.family == "ipv6" for address in self.addresses.values())

    @property
    def persistent(self) -> bool:
        """True if it has maps of sessions."""
        return self.options.get("persistence", "none") != "none"

    @property
    def ingress(self) -> bool:
        """True if all its rules are in the table netdev, at the ingress of interfaces."""
        return self.options.get("mode") == "dsr"

    def bound_ports(self) -> Iterator[BoundPort]:
        """Yield each port that the farm listens on."""
        for address in self.addresses.values():
            yield from address.bound_ports()

    def wire(self) -> dict[str, Any]:
        """Return the object in nftlb's API. Without addresses it has no key for them, which would reload the farm."""
        # nftlb sets the outlet from each address and backend it reads, so this key comes after them.
        outlet = {key: value for key, value in self.options.items() if key == "oface"}
        document: dict[str, Any] = {
            "name": self.name,
            **{key: value for key, value in self.options.items() if key not in outlet},
        }
        if self.addresses:
            document["addresses"] = [address.wire() for address in self.addresses.values()]
        if self.backends:
            document["backends"] = [backend.wire() for backend in self.backends.values()]
        if self.sessions:
            # After the backends, which they name.
            document["sessions"] = [{"client": client, "backend": name} for client, name in self.sessions.items()]
        return {**document, **outlet}


def address_name(farm: str, ip: str, protocol: str, ports: str) -> str:
    """Return the name of an address of a farm in nftlb, which has all addresses in one flat space.

    The name changes with the address itself, because nftlb cannot change one in place. In the mode dsr ``ports`` has
    the interface, too.
    """
    digest = names.digest(ip, protocol, ports)
    return f"{names.shorten(farm, names.NODE_FARM_NAME_MAX - len(digest) - 1)}-{digest}"


def document(farms: Iterable[Farm]) -> dict[str, Any]:
    """Return the body of POST /farms, which is also the content of nftlb's start-up file."""
    return {"farms": [farm.wire() for farm in farms]}


def joined(farms: Iterable[str]) -> str:
    """Return a ``document`` as text, from farms as JSON."""
    return f'{{"farms": [{", ".join(farms)}]}}'


def parse(body: Mapping[str, Any]) -> dict[str, Farm]:
    """Parse the body of GET /farms, or a start-up file. Return the farms by name."""
    return {raw["name"]: _farm(raw) for raw in body.get("farms", ())}


def recalled(read: Mapping[str, Farm], known: Mapping[str, Farm]) -> dict[str, Farm]:
    """Return farms as read from nftlb; what it never returns is taken from the known farms."""
    return {name: _recalled(farm, known[name]) if name in known else farm for name, farm in read.items()}


def located(farm: Farm, known: Farm) -> Farm:
    """Return a farm as read from nftlb with the interfaces of its addresses: each is the known one of the same name."""
    addresses = {
        name: known.addresses.get(name, address) if not address.interface else address
        for name, address in farm.addresses.items()
    }
    return replace(farm, addresses=addresses) if addresses != farm.addresses else farm


def _recalled(farm: Farm, known: Farm) -> Farm:
    def recalled_options(options: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
        return {**options, **{key: before[key] for key in _NEVER_SHOWN if key in before}}

    return replace(
        farm,
        options=recalled_options(farm.options, known.options),
        addresses={name: known.addresses.get(name, address) for name, address in farm.addresses.items()},
        backends={
            name: replace(backend, options=recalled_options(backend.options, known.backends[name].options))
            if name in known.backends
            else backend
            for name, backend in farm.backends.items()
        },
    )


def _farm(raw: Mapping[str, Any]) -> Farm:
    # nftlb leaves a blank at the end of a list of words.
    return Farm(
        raw["name"],
        {**_NOT_SHOWN, **{key: value.strip() for key, value in raw.items() if key not in _NOT_OPTIONS}},
        {entry["name"]: _address(entry) for entry in raw.get("addresses", ())},
        {entry["name"]: _backend(entry) for entry in raw.get("backends", ())},
        {entry["client"]: entry["backend"] for entry in raw.get("sessions", ())},
    )


def _address(raw: Mapping[str, str]) -> Address:
    inlet = raw.get("iface", ""), raw.get("ether-addr", "")
    return Address(raw["name"], raw["family"], raw["ip-addr"], raw["ports"], raw["protocol"], *inlet)


def _backend(raw: Mapping[str, str]) -> Backend:
    # config_error, available (which is spare) and the like count as down: whatever nftlb calls it, it is in no rule.
    state = raw["state"]
    return Backend(
        raw["name"],
        int(raw["mark"], 16) & MARK_LAST,
        state if state in ("up", "off") else "down",  # type: ignore[arg-type]  # narrowed by the comparison
        {key: value.strip() for key, value in raw.items() if key not in ("name", "mark", "state")},
    )
