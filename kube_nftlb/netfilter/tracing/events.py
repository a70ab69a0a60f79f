"""Parse the kernel's events about traced packets (NFTA_TRACE_* in linux/netfilter/nf_tables.h). No I/O."""

import ipaddress
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from kube_nftlb.netfilter import netlink

NEW_TRACE: Final = 10 << 8 | 17
"""NFNL_SUBSYS_NFTABLES, NFT_MSG_TRACE."""

_TABLE, _CHAIN, _RULE, _TYPE, _VERDICT, _ID, _NETWORK, _TRANSPORT, _POLICY = 1, 2, 3, 4, 5, 6, 8, 9, 16
_VERDICT_CODE, _VERDICT_CHAIN = 1, 2

Kind = Literal["policy", "return", "rule"]
_KINDS: Final[dict[int, Kind]] = {1: "policy", 2: "return", 3: "rule"}
_VERDICTS: Final = {
    0: "drop",
    1: "accept",
    2: "stolen",
    3: "queue",
    4: "repeat",
    -1: "continue",
    -2: "break",
    -3: "jump",
    -4: "goto",
    -5: "return",
}
_VERDICT_MASK: Final = 0xFF
"""Of what is not negative: the rest is the number of a queue."""

_IPV4, _IPV6 = 4, 6


class Addresses(NamedTuple):
    """The source and destination of a packet; ports are 0 if it has none."""

    source: str
    source_port: int
    destination: str
    destination_port: int


class Event(NamedTuple):
    """A rule that a packet matched, a chain that it returned from, or the policy of a base chain.

    ``verdict`` is that of nft(8): accept, drop, queue, jump, goto, return, continue. ``to`` is the chain of a jump or
    goto, ``rule`` is the handle. Only the first event of each base chain has addresses.
    """

    id: int
    family: str
    table: str
    chain: str
    kind: Kind
    verdict: str
    to: str = ""
    rule: int = 0
    addresses: Addresses | None = None


def parse(data: bytes) -> Iterator[Event]:
    """Yield the events in a datagram; messages of other types are skipped."""
    for family, attributes in netlink.messages(data, NEW_TRACE):
        yield _event(family, attributes)


def _event(family: int, attributes: bytes) -> Event:
    fields = dict(netlink.attributes(attributes))
    kind = _KINDS.get(_number(fields.get(_TYPE)), "rule")
    verdict, to = _verdict(fields, kind)
    return Event(
        _number(fields.get(_ID)),
        netlink.FAMILY_NAMES.get(family, str(family)),
        netlink.name(fields.get(_TABLE)),
        netlink.name(fields.get(_CHAIN)),
        kind,
        verdict,
        to,
        _number(fields.get(_RULE)),
        _addresses(fields.get(_NETWORK, b""), fields.get(_TRANSPORT, b"")),
    )


def _verdict(fields: dict[int, bytes], kind: Kind) -> tuple[str, str]:
    data = fields.get(_VERDICT, b"")
    code = fields.get(_POLICY) if kind == "policy" else netlink.find(data, _VERDICT_CODE)
    number = int.from_bytes(code or b"", "big", signed=True)
    name = _VERDICTS.get(number if number < 0 else number & _VERDICT_MASK, str(number))
    return name, netlink.name(netlink.find(data, _VERDICT_CHAIN))


def _number(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "big")


def _addresses(network: bytes, transport: bytes) -> Addresses | None:
    if not network:
        return None
    source, destination = (
        (network[12:16], network[16:20]) if network[0] >> 4 == _IPV4 else (network[8:24], network[24:40])
    )
    ports = (int.from_bytes(transport[:2], "big"), int.from_bytes(transport[2:4], "big"))
    return Addresses(str(ipaddress.ip_address(source)), ports[0], str(ipaddress.ip_address(destination)), ports[1])
