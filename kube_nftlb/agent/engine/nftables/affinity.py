"""The chains by which farms remember clients, shared by all farms of a namespace with the same timeout. No I/O.

A new connection passes three of them, one after the other, each by a map of listeners in the hooked chains: no map of
verdicts is looked up behind a chain that farms share, as the kernel would follow all its elements from each such chain
whenever anybody changes the table.

The priority of the packet, which means nothing yet, is where a rule leaves a number for the next: that of the farm,
and with an endpoint's in its last bits that of an endpoint. So it has both parts of an element of ``affinity``.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from kube_nftlb.agent.engine.nftables import choice as packets
from kube_nftlb.agent.engine.nftables import layout
from kube_nftlb.agent.engine.nftables.choice import CHOICE, PLACE, Choice
from kube_nftlb.agent.engine.nftables.layout import TableFamily
from kube_nftlb.netfilter.nftables import expressions, messages
from kube_nftlb.netfilter.nftables.expressions import Operation
from kube_nftlb.netfilter.nftables.messages import DataType, Message

_OF_NAMESPACE = rf"-(?P<ttl>\d+){PLACE}/(?P<namespace>.+)"
_KNOWN = re.compile(rf"(?P<kind>known|sessions){_OF_NAMESPACE}")
_MEMORY = re.compile(rf"remember{_OF_NAMESPACE}")
_PICK = re.compile(rf"pick-{CHOICE}{PLACE}")


class _Sticky(NamedTuple):
    family: TableFamily
    all_ports: bool
    ttl_s: int
    namespace: str


class Known(NamedTuple):
    """A chain that sends a client that is remembered to its endpoint. For others packets come back from it."""

    family: TableFamily
    all_ports: bool
    ttl_s: int
    namespace: str
    has_sessions: bool = False

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the chain of a name, or None if it is not one of these."""
        found = _KNOWN.fullmatch(name)
        return cls(*_sticky(found), found["kind"] == "sessions") if found else None

    @property
    def name(self) -> str:
        """See ``Rules``."""
        return _name("sessions" if self.has_sessions else "known", _Sticky(*self[:4]))

    def rules(self) -> Iterator[bytes]:
        """See ``Rules``. Where the endpoint is gone, the client is forgotten, as an element is not written over."""
        match, affinity = packets.is_family(self.family), layout.affinity_map(self.family, self.namespace)
        translate = packets.translate(self.family, layout.STICKY_ENDPOINTS, all_ports=self.all_ports)
        if self.has_sessions:
            yield match + self._farm()
            yield match + _remembered(self.family, f"{layout.SESSIONS}-{self.family}", whole=True) + translate
        yield match + self._farm()
        renew = _change(self.family, affinity, Operation.UPDATE, self.ttl_s)
        yield match + _remembered(self.family, affinity, whole=True) + renew + translate
        gone = match + expressions.priority_has(layout.ENDPOINT_MASK)
        yield gone + _change(self.family, affinity, Operation.DELETE) + self._farm()

    def _farm(self) -> bytes:
        name = layout.name(layout.STICKY, self.family, all_ports=self.all_ports)
        load = packets.listener(self.family, all_ports=self.all_ports)
        return load + expressions.found(name, 0, 0) + expressions.set_priority(0)


class Pick(NamedTuple):
    """A chain that chooses an endpoint for a client that is not remembered, and lets the packet come back."""

    family: TableFamily
    all_ports: bool
    choice: Choice

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the chain of a name, or None if it is not one of these."""
        found = _PICK.fullmatch(name)
        return cls(packets.family(found), bool(found["all"]), Choice.of(found)) if found else None

    @property
    def name(self) -> str:
        """See ``Rules``."""
        return layout.name(f"pick-{self.choice.name}", self.family, all_ports=self.all_ports)

    def rules(self) -> Iterator[bytes]:
        """See ``Rules``."""
        to = layout.name(layout.PICKS, self.family, all_ports=self.all_ports)
        return self.choice.rules(self.family, to)


class Memory(NamedTuple):
    """A chain that remembers the endpoint that was chosen for a client, and sends the connection there."""

    family: TableFamily
    all_ports: bool
    ttl_s: int
    namespace: str

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the chain of a name, or None if it is not one of these."""
        found = _MEMORY.fullmatch(name)
        return cls(*_sticky(found)) if found else None

    @property
    def name(self) -> str:
        """See ``Rules``."""
        return _name("remember", _Sticky(*self))

    def rules(self) -> Iterator[bytes]:
        """See ``Rules``. If there is no room, the connection is served all the same."""
        match, affinity = packets.is_family(self.family), layout.affinity_map(self.family, self.namespace)
        yield match + _change(self.family, affinity, Operation.UPDATE, self.ttl_s)
        # Another connection of the client may have been faster.
        yield match + _remembered(self.family, affinity, whole=False)
        yield expressions.go_to(layout.name(layout.STICKY_ENDPOINTS, self.family, all_ports=self.all_ports))


def maps(chains: Iterable[str]) -> set[tuple[TableFamily, str]]:
    """Return the families and namespaces whose maps of clients the chains with these names use."""
    return {found for name in chains if (found := _map(name)) is not None}


@functools.lru_cache(maxsize=65536)
def _map(chain: str) -> tuple[TableFamily, str] | None:
    """Return the family and namespace of the map of clients that a chain uses, or None if it uses none."""
    found = Known.parse(chain) or Memory.parse(chain)
    return (found.family, found.namespace) if found is not None else None


def new_map(family: TableFamily, namespace: str, table: str = layout.TABLE) -> Message:
    """Return what adds the map of the clients of a namespace to a table."""
    length = layout.ADDRESS_BYTES[family]
    number = (DataType.CLASSID, layout.NUMBER.size)
    address = (DataType.IPV4_ADDR if family == "ip" else DataType.IPV6_ADDR, length)
    name = layout.affinity_map(family, namespace)
    return messages.new_dynamic_map(table, name, (number, address), number)


def _sticky(found: re.Match[str]) -> _Sticky:
    return _Sticky(packets.family(found), bool(found["all"]), int(found["ttl"]), found["namespace"])


def _name(kind: str, sticky: _Sticky) -> str:
    name = layout.name(f"{kind}-{sticky.ttl_s}", sticky.family, all_ports=sticky.all_ports)
    return f"{name}/{sticky.namespace}"


def _client(family: TableFamily, *, whole: bool) -> bytes:
    """Return what loads a key of ``affinity``; ``whole`` where the priority is the number of the farm alone."""
    farm = expressions.priority(0) if whole else expressions.masked_priority(0, layout.FARM_MASK)
    return farm + packets.client(family, 1)


def _remembered(family: TableFamily, map_: str, *, whole: bool) -> bytes:
    """Return what makes the number of the client's endpoint the priority; no match if it has none."""
    return _client(family, whole=whole) + expressions.found(map_, 0, 0) + expressions.set_priority(0)


def _change(family: TableFamily, map_: str, operation: Operation, ttl_s: int | None = None) -> bytes:
    """Return what changes the client's element to the endpoint in the priority; no match if there is no room."""
    data = packets.after_client(family, 1)
    load = _client(family, whole=False) + expressions.priority(data)
    return load + expressions.change(map_, operation, 0, data, ttl_s)
