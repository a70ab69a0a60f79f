"""The chains that choose an endpoint: one per way to choose and number of endpoints, whatever farms use it. No I/O."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.layout import TableFamily
from kube_nftlb.netfilter.nftables import expressions
from kube_nftlb.netfilter.nftables.expressions import Family, Header, Operation

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


_CHOICE = r"(?P<kind>random|symhash|rr-(?P<counter>\d+)|hash-(?P<fields>[a-z.]+))-(?P<modulus>\d+)(?P<inside>-inside)?"
_PLACE = r"(?P<all>-all)?-(?P<family>ip6?)"
_SCHEDULE = re.compile(rf"{_CHOICE}{_PLACE}")
_AFFINITY = re.compile(rf"(?P<known>sticky|sessions)-(?P<ttl>\d+)-{_CHOICE}{_PLACE}")
_REMEMBER = re.compile(rf"remember-(?P<number>\d+)-(?P<ttl>\d+){_PLACE}")


def parse(name: str) -> Rules:
    """Return the chain of a name. Raises ValueError if there is none."""
    if found := _SCHEDULE.fullmatch(name):
        return Schedule(_family(found), bool(found["all"]), _choice(found))
    if found := _AFFINITY.fullmatch(name):
        has_sessions = found["known"] == "sessions"
        return Affinity(_family(found), bool(found["all"]), _choice(found), int(found["ttl"]), has_sessions)
    if found := _REMEMBER.fullmatch(name):
        return Remember(_family(found), bool(found["all"]), int(found["ttl"]), int(found["number"]))
    raise ValueError(f"{name!r} is not the name of a chain that chooses an endpoint")


def _family(found: re.Match[str]) -> TableFamily:
    return "ip6" if found["family"] == "ip6" else "ip"


def _choice(found: re.Match[str]) -> "Choice":
    kind, _, _ = found["kind"].partition("-")
    fields = (found["fields"] or "").replace(".", " ")
    return Choice(kind, int(found["modulus"]), fields, int(found["counter"] or 0), bool(found["inside"]))


class Choice(NamedTuple):
    """The choice of one of ``modulus`` numbers: rr, random, hash or symhash.

    ``counter`` tells apart the counters of rr. ``inside`` numbers are those for clients of this node.
    """

    kind: str
    modulus: int
    fields: str = ""
    counter: int = 0
    inside: bool = False

    @property
    def name(self) -> str:
        """A part of a chain's name."""
        kind = {"hash": f"hash-{self.fields.replace(' ', '.')}", "rr": f"rr-{self.counter}"}.get(self.kind, self.kind)
        return f"{kind}-{self.modulus}" + ("-inside" if self.inside else "")

    def number(self, family: TableFamily, to: int) -> bytes:
        """Return what loads the number into a register; uses others."""
        first = layout.INSIDE_FIRST if self.inside else 0
        if self.kind == "hash":
            loads, length = _fields(family, self.fields)
            return loads + expressions.hashed(to, 0, length, self.modulus, first)
        if self.kind == "symhash":
            return expressions.symmetrically_hashed(to, self.modulus, first)
        if self.kind == "rr":
            return expressions.counted(to, self.modulus, first)
        return expressions.random(to, self.modulus, first)

    def attempts(self) -> "Iterator[Choice]":
        """Yield this choice, and what chooses the first number, which exists while there is any."""
        yield self
        if self.modulus > 1:
            yield Choice("random", 1, inside=self.inside)


class Schedule(NamedTuple):
    """A chain that sends each new connection to an endpoint that is chosen for it."""

    family: TableFamily
    all_ports: bool
    choice: Choice

    @property
    def name(self) -> str:
        """See ``Rules``."""
        return layout.name(self.choice.name, self.family, all_ports=self.all_ports)

    def rules(self) -> Iterator[bytes]:
        """See ``Rules``. The last endpoint may go between two lookups of a packet: it gets the first then."""
        endpoints = layout.name(layout.ENDPOINTS, self.family, all_ports=self.all_ports)
        for choice in self.choice.attempts():
            yield _translate(self.family, endpoints, choice.number, all_ports=self.all_ports)


class Remember(NamedTuple):
    """A chain that remembers the endpoint with a number for a client, and sends the connection there."""

    family: TableFamily
    all_ports: bool
    ttl_s: int
    number: int

    @property
    def name(self) -> str:
        """See ``Rules``."""
        return layout.name(f"remember-{self.number}-{self.ttl_s}", self.family, all_ports=self.all_ports)

    def rules(self) -> Iterator[bytes]:
        """See ``Rules``. What the client had is not there any more, and would not be written over."""
        affinity = f"{layout.AFFINITY}-{self.family}"
        client = _client(self.family)
        data = 1 + _ADDRESS_REGISTERS[self.family]
        delete = expressions.change(affinity, Operation.DELETE, 0, data)
        yield _match(self.family) + client + expressions.priority(data) + delete
        # If there is no room, the connection is served all the same.
        update = expressions.change(affinity, Operation.UPDATE, 0, data, self.ttl_s)
        yield _match(self.family) + client + expressions.constant(data, self.number) + update
        yield expressions.constant(0, self.number) + expressions.set_priority(0)
        yield _to_sticky_endpoint(self.family, all_ports=self.all_ports)


class Affinity(NamedTuple):
    """A chain that sends a client to the endpoint that it had, or lets one be chosen and remembered.

    The priority of the packet, which means nothing yet, is where a rule leaves a number for the next.
    """

    family: TableFamily
    all_ports: bool
    choice: Choice
    ttl_s: int
    has_sessions: bool

    @property
    def name(self) -> str:
        """See ``Rules``."""
        kind = "sessions" if self.has_sessions else "sticky"
        return layout.name(f"{kind}-{self.ttl_s}-{self.choice.name}", self.family, all_ports=self.all_ports)

    def rules(self) -> Iterator[bytes]:
        """See ``Rules``."""
        for known in (*((layout.SESSIONS,) if self.has_sessions else ()), layout.AFFINITY):
            yield self._farm()
            if known == layout.AFFINITY:
                yield self._renew()
            yield self._known(known)
            yield _to_sticky_endpoint(self.family, all_ports=self.all_ports)
        yield self._farm()
        picks = layout.name(layout.PICKS, self.family, all_ports=self.all_ports)
        for choice in self.choice.attempts():
            to = _key_registers(self.family, all_ports=self.all_ports)
            number = choice.number(self.family, to)
            key = _listener(self.family, all_ports=self.all_ports)
            yield _match(self.family) + number + key + expressions.verdict_of(picks, 0)

    def _farm(self) -> bytes:
        name = layout.name(layout.STICKY, self.family, all_ports=self.all_ports)
        load = _match(self.family) + _listener(self.family, all_ports=self.all_ports)
        return load + expressions.found(name, 0, 0) + expressions.set_priority(0)

    def _renew(self) -> bytes:
        """Return what renews the time of a client, with each new connection.

        For one that is not known it adds an element that leads nowhere, until an endpoint is chosen.
        """
        data = 1 + _ADDRESS_REGISTERS[self.family]
        load = _match(self.family) + _client(self.family) + expressions.priority(data)
        return load + expressions.change(f"{layout.AFFINITY}-{self.family}", Operation.UPDATE, 0, data, self.ttl_s)

    def _known(self, map_: str) -> bytes:
        load = _match(self.family) + _client(self.family)
        return load + expressions.found(f"{map_}-{self.family}", 0, 0) + expressions.set_priority(0)


def _match(family: TableFamily) -> bytes:
    return expressions.is_family(_FAMILIES[family])


def _key_registers(family: TableFamily, *, all_ports: bool) -> int:
    return _ADDRESS_REGISTERS[family] + (0 if all_ports else 2)


def _listener(family: TableFamily, *, all_ports: bool) -> bytes:
    """Return what loads the key of a packet's listener into the first registers."""
    length = layout.ADDRESS_BYTES[family]
    if all_ports:
        return expressions.payload(0, Header.NETWORK, _DESTINATION_OFFSET[family], length)
    return (
        expressions.protocol(0)
        + expressions.payload(1, Header.NETWORK, _DESTINATION_OFFSET[family], length)
        + expressions.payload(1 + _ADDRESS_REGISTERS[family], Header.TRANSPORT, 2, 2)
    )


def _client(family: TableFamily) -> bytes:
    """Return what loads the number of the farm and the client into the first registers."""
    length = layout.ADDRESS_BYTES[family]
    return expressions.priority(0) + expressions.payload(1, Header.NETWORK, _SOURCE_OFFSET[family], length)


def _translate(
    family: TableFamily, endpoints: str, number: Callable[[TableFamily, int], bytes], *, all_ports: bool
) -> bytes:
    """Return a rule that sends a packet to the endpoint of its listener with a number."""
    load = number(family, _key_registers(family, all_ports=all_ports)) + _listener(family, all_ports=all_ports)
    port = None if all_ports else _ADDRESS_REGISTERS[family]
    translate = expressions.translate_destination(_FAMILIES[family], 0, port)
    return _match(family) + load + expressions.found(endpoints, 0, 0) + translate


def _to_sticky_endpoint(family: TableFamily, *, all_ports: bool) -> bytes:
    """Return a rule that sends a packet to the endpoint with the number that an earlier rule has left."""
    endpoints = layout.name(layout.STICKY_ENDPOINTS, family, all_ports=all_ports)
    return _translate(family, endpoints, lambda _, to: expressions.priority(to), all_ports=all_ports)


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
