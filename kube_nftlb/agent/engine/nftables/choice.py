"""The choice of one of several numbers for a packet, and the keys of maps that are loaded from it. No I/O."""

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.layout import TableFamily
from kube_nftlb.netfilter.nftables import expressions
from kube_nftlb.netfilter.nftables.expressions import Family, Header

CHOICE = (
    r"(?P<kind>random|symhash|rr-(?P<counter>\d+)|hash-(?P<fields>[a-z.]+))-(?P<modulus>\d+)"
    r"(?:-group-(?P<group>\d+))?(?P<inside>-inside)?"
)
"""The part of a chain's name that tells the choice."""
PLACE = r"(?P<all>-all)?-(?P<family>ip6?)"
"""The part that tells which listeners the chain is for."""

_DRAW_SEED = 1
_ALL_HASHES = (1 << 32) - 1
_FAMILIES = {"ip": Family.IP, "ip6": Family.IP6}
_REGISTER_BYTES = 4
_ADDRESS_REGISTERS = {"ip": 1, "ip6": 4}
_SOURCE_OFFSET = {"ip": 12, "ip6": 8}
_DESTINATION_OFFSET = {"ip": 16, "ip6": 24}


class Rules(Protocol):
    """A chain of the table."""

    @property
    def name(self) -> str:
        """The name of the chain, which tells all that its rules depend on."""

    def rules(self) -> Iterator[bytes]:
        """Yield the expressions of each rule."""


class Choice(NamedTuple):
    """The choice of one of ``modulus`` numbers: rr, random, hash or symhash.

    ``counter`` tells apart the counters of rr. ``inside`` numbers are those for clients of this node. ``group`` is the
    group of the numbers, None for a farm without.
    """

    kind: str
    modulus: int
    fields: str = ""
    counter: int = 0
    inside: bool = False
    group: int | None = None

    @classmethod
    def of(cls, found: re.Match[str]) -> "Choice":
        """Return the choice that a chain's name tells, which ``CHOICE`` has matched."""
        kind, _, _ = found["kind"].partition("-")
        fields = (found["fields"] or "").replace(".", " ")
        group = int(found["group"]) if found["group"] is not None else None
        return cls(kind, int(found["modulus"]), fields, int(found["counter"] or 0), bool(found["inside"]), group)

    @property
    def name(self) -> str:
        """A part of a chain's name."""
        kind = f"rr-{self.counter}" if self.kind == "rr" else self.way
        group = f"-group-{self.group}" if self.group is not None else ""
        return f"{kind}-{self.modulus}{group}" + ("-inside" if self.inside else "")

    @property
    def way(self) -> str:
        """The kind, and the fields of a hash: a part of a chain's name."""
        return f"hash-{self.fields.replace(' ', '.')}" if self.kind == "hash" else self.kind

    @property
    def _first(self) -> int:
        return layout.first_number(self.group or 0, inside=self.inside)

    def rules(self, family: TableFamily, to: str) -> Iterator[bytes]:
        """Yield the rules that make the number the priority of a packet, and have it go on in another chain."""
        choices = [self]
        if self.kind == "hash":
            # A packet may lack a field: those of the node itself have no MAC address yet.
            choices.append(self._replace(kind="random", modulus=1))
        for each in choices:
            yield is_family(family) + each.number(family) + expressions.set_priority(0) + expressions.go_to(to)

    def number(self, family: TableFamily) -> bytes:
        """Return what loads the number into the first register; uses the first ones."""
        if self.kind == "hash":
            loads, length = _fields(family, self.fields)
            return loads + expressions.hashed(0, 0, length, self.modulus, self._first)
        if self.kind == "symhash":
            return expressions.symmetrically_hashed(0, self.modulus, self._first)
        if self.kind == "rr":
            return expressions.counted(0, self.modulus, self._first)
        return expressions.random(0, self.modulus, self._first)

    def drawn(self, family: TableFamily, to: int) -> bytes:
        """Return what loads the number of a group into a register, by a hash on which choices within it do not depend.

        Uses others.
        """
        if self.kind == "hash":
            loads, length = _fields(family, self.fields)
            return loads + expressions.hashed(to, 0, length, self.modulus, 0, _DRAW_SEED)
        if self.kind == "symhash":
            # This hash has no seed.
            hashed = expressions.symmetrically_hashed(to, _ALL_HASHES, 0)
            return hashed + expressions.hashed(to, to, _REGISTER_BYTES, self.modulus, 0, _DRAW_SEED)
        return expressions.random(to, self.modulus, 0)


def family(found: re.Match[str]) -> TableFamily:
    """Return the family that a chain's name tells, which ``PLACE`` has matched."""
    return "ip6" if found["family"] == "ip6" else "ip"


def is_family(family: TableFamily) -> bytes:
    """Return what matches packets of a family; uses register 0."""
    return expressions.is_family(_FAMILIES[family])


def listener(family: TableFamily, *, all_ports: bool) -> bytes:
    """Return what loads the key of a packet's listener into the first registers."""
    length = layout.ADDRESS_BYTES[family]
    if all_ports:
        return expressions.payload(0, Header.NETWORK, _DESTINATION_OFFSET[family], length)
    return (
        expressions.protocol(0)
        + expressions.payload(1, Header.NETWORK, _DESTINATION_OFFSET[family], length)
        + expressions.payload(1 + _ADDRESS_REGISTERS[family], Header.TRANSPORT, 2, 2)
    )


def after_listener(family: TableFamily, *, all_ports: bool) -> int:
    """Return the register after those of a listener's key."""
    return _ADDRESS_REGISTERS[family] + (0 if all_ports else 2)


def client(family: TableFamily, to: int) -> bytes:
    """Return what loads the client's address into a register and those that follow."""
    return expressions.payload(to, Header.NETWORK, _SOURCE_OFFSET[family], layout.ADDRESS_BYTES[family])


def after_client(family: TableFamily, to: int) -> int:
    """Return the register after those of a client that was loaded there."""
    return to + _ADDRESS_REGISTERS[family]


def translate(family: TableFamily, endpoints: str, *, all_ports: bool) -> bytes:
    """Return what sends a packet to the endpoint of its listener with the number in its priority."""
    name = layout.name(endpoints, family, all_ports=all_ports)
    port = None if all_ports else _ADDRESS_REGISTERS[family]
    number = expressions.priority(after_listener(family, all_ports=all_ports))
    load = listener(family, all_ports=all_ports) + number + expressions.found(name, 0, 0)
    return load + expressions.translate_destination(_FAMILIES[family], 0, port)


def _fields(family: TableFamily, names: str) -> tuple[bytes, int]:
    """Return what loads fields of a packet into the first registers, and their length in bytes."""
    length = layout.ADDRESS_BYTES[family]
    offsets = {
        "srcip": (Header.NETWORK, _SOURCE_OFFSET[family], length),
        "dstip": (Header.NETWORK, _DESTINATION_OFFSET[family], length),
        "srcport": (Header.TRANSPORT, 0, 2),
        "dstport": (Header.TRANSPORT, 2, 2),
        "srcmac": (Header.LINK, 6, 6),
        "dstmac": (Header.LINK, 0, 6),
    }
    fields = [offsets[name] for name in names.split()]
    loads, register = b"", 0
    for header, offset, size in fields:
        loads += expressions.payload(register, header, offset, size)
        register += -(-size // _REGISTER_BYTES)
    # A single field is hashed as it is, and each of several is padded.
    return loads, fields[0][2] if len(fields) == 1 else register * _REGISTER_BYTES
