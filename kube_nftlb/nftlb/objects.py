"""nftlb's farms, as they are sent and as ``GET /farms`` tells them. No I/O.

Every value is a string on the wire, ``name`` comes first in each object, and only ``addresses`` says what is listened
on: the farm's own virtual-addr, virtual-ports, family and protocol act on an address nobody asked for.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from kube_nftlb import names

BackendState = Literal["up", "down", "off"]
"""up: gets connections. off: keeps those it has, and may be chosen by others than nftlb. down: gone from the rules."""

MARK_FIRST = 0x2
"""The lowest mark that we give; nftlb looks for a free mark of its own from 0x1, and stops at once if that is free."""
MARK_LAST = 0xFFF
"""The highest mark that nftlb takes."""

_NOT_OPTIONS = frozenset(
    ("name", "family", "virtual-addr", "virtual-ports", "protocol", "addresses", "backends", "policies", "sessions")
)

_NOT_SHOWN = {"intra-connect": "off"}
"""Options that ``GET /farms`` leaves out where they have these values."""

_NEVER_SHOWN = ("oface", "ether-addr")
"""Options that ``GET /farms`` never tells: of a farm in the mode dsr, and of its backends."""


PROTOCOLS = {"tcp": ("tcp",), "udp": ("udp",), "sctp": ("sctp",), "all": ("tcp", "udp", "sctp")}
"""What nftlb listens on for each value of an address's protocol."""


class BoundPort(NamedTuple):
    """One port that a farm listens on; nftlb must never have it in two farms.

    With the protocol all it is the whole address, every port of it, and the port is 0.
    """

    ip: str
    protocol: str
    port: int


def clash(some: Collection[BoundPort], others: Collection[BoundPort]) -> bool:
    """Whether two farms cannot have these at one time."""
    if not set(some).isdisjoint(others):
        return True
    whole, whole_others = ({port.ip for port in ports if port.protocol == "all"} for ports in (some, others))
    return any(port.ip in whole for port in others) or any(port.ip in whole_others for port in some)


@dataclass(frozen=True, slots=True)
class Address:
    """What a farm listens on; its name is unique in the daemon.

    ``ports`` is a port, a list or a range, and empty with the protocol all.

    In the mode dsr also the interface that packets come in by, and its MAC address; nftlb does not tell them again.
    """

    name: str
    family: str
    ip: str
    ports: str
    protocol: str
    interface: str = ""
    mac: str = ""

    def bound_ports(self) -> Iterator[BoundPort]:
        """Each port that it names."""
        if self.protocol == "all":
            yield BoundPort(self.ip, self.protocol, 0)
            return
        for part in self.ports.split(","):
            first, _, last = part.partition("-")
            for port in range(int(first), int(last or first) + 1):
                yield BoundPort(self.ip, self.protocol, port)

    def wire(self) -> dict[str, str]:
        """As nftlb takes it."""
        # nftlb looks for the interface when it reads the address, and keeps what it had where it finds none.
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
    """Where connections go; ``mark`` is the connection mark that stands for it, unique in the farm."""

    name: str
    mark: int
    state: BackendState
    options: Mapping[str, str]

    def wire(self) -> dict[str, str]:
        """As nftlb takes it."""
        return {"name": self.name, **self.options, "mark": hex(self.mark), "state": self.state}


@dataclass(frozen=True, slots=True)
class Farm:
    """A farm: its options by nftlb's names, its addresses and backends by name.

    ``sessions`` are the static ones, a client and the name of its backend. Those that packets make are not told of.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, Address] = field(default_factory=dict)
    backends: Mapping[str, Backend] = field(default_factory=dict)
    sessions: Mapping[str, str] = field(default_factory=dict)

    @property
    def ipv6(self) -> bool:
        """Whether it listens on IPv6 addresses; a farm has one family."""
        return any(address.family == "ipv6" for address in self.addresses.values())

    @property
    def persistent(self) -> bool:
        """Whether it has maps of sessions."""
        return self.options.get("persistence", "none") != "none"

    @property
    def ingress(self) -> bool:
        """Whether its rules are in the table netdev, at the ingress of interfaces, and none in the others."""
        return self.options.get("mode") == "dsr"

    def bound_ports(self) -> Iterator[BoundPort]:
        """All that it listens on."""
        for address in self.addresses.values():
            yield from address.bound_ports()

    def wire(self) -> dict[str, Any]:
        """As nftlb takes it. Without addresses the key is left out: naming one makes nftlb reload the farm."""
        # nftlb takes the outlet from each address and backend it reads, so the word comes after them.
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

    The name changes with the address itself, because nftlb cannot change one in place.
    """
    digest = names.digest(ip, protocol, ports)
    return f"{names.shorten(farm, names.NODE_FARM_NAME_MAX - len(digest) - 1)}-{digest}"


def document(farms: Iterable[Farm]) -> dict[str, Any]:
    """The body of POST /farms, and the content of nftlb's start-up file."""
    return {"farms": [farm.wire() for farm in farms]}


def joined(farms: Iterable[str]) -> str:
    """The text of a ``document`` whose farms are texts already."""
    return f'{{"farms": [{", ".join(farms)}]}}'


def parse(body: Mapping[str, Any]) -> dict[str, Farm]:
    """The farms of a ``GET /farms``, by name."""
    return {raw["name"]: _farm(raw) for raw in body.get("farms", ())}


def recalled(read: Mapping[str, Farm], known: Mapping[str, Farm]) -> dict[str, Farm]:
    """Farms as read from nftlb, with what it never tells taken from what is known to have been sent."""
    return {name: _recalled(farm, known[name]) if name in known else farm for name, farm in read.items()}


def _recalled(farm: Farm, known: Farm) -> Farm:
    def told(options: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
        return {**options, **{key: before[key] for key in _NEVER_SHOWN if key in before}}

    return replace(
        farm,
        options=told(farm.options, known.options),
        addresses={name: known.addresses.get(name, address) for name, address in farm.addresses.items()},
        backends={
            name: replace(backend, options=told(backend.options, known.backends[name].options))
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
    return Address(raw["name"], raw["family"], raw["ip-addr"], raw["ports"], raw["protocol"])


def _backend(raw: Mapping[str, str]) -> Backend:
    # config_error, available (which is spare) and the like count as down: whatever nftlb calls it, it is in no rule.
    state = raw["state"]
    return Backend(
        raw["name"],
        int(raw["mark"], 16) & MARK_LAST,
        state if state in ("up", "off") else "down",  # type: ignore[arg-type]  # narrowed by the comparison
        {key: value.strip() for key, value in raw.items() if key not in ("name", "mark", "state")},
    )
