"""Types of fields that are more specific than a number or string."""

import itertools
import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, Field

from kube_nftlb.api import rules

Protocol = Literal["TCP", "UDP", "SCTP", "All"]
Mode = Literal["snat", "dnat", "dsr", "local"]
Scheduler = Literal["rr", "weight", "hash", "symhash"]
Helper = Literal["none", "amanda", "ftp", "h323", "irc", "netbios-ns", "pptp", "sane", "sip", "snmp", "tftp"]
HELPERS: Final = tuple(helper for helper in get_args(Helper) if helper != "none")
Log = Literal[
    "none",
    "input",
    "forward",
    "output",
    "input forward",
    "input output",
    "forward output",
    "input forward output",
]

KERNEL_HELPERS: Final = {
    ("amanda", "UDP"): "amanda",
    ("ftp", "TCP"): "ftp",
    ("h323", "TCP"): "Q.931",
    ("h323", "UDP"): "RAS",
    ("irc", "TCP"): "irc",
    ("netbios-ns", "UDP"): "netbios-ns",
    ("pptp", "TCP"): "pptp",
    ("sane", "TCP"): "sane",
    ("sip", "TCP"): "sip",
    ("sip", "UDP"): "sip",
    ("snmp", "UDP"): "snmp",
    ("tftp", "UDP"): "tftp",
}
"""The kernel's name of a helper, by our name and the protocol (net/netfilter/nf_conntrack_*)."""

IPV4_HELPERS: Final = ("irc", "netbios-ns", "pptp", "snmp")

State = Literal["up", "down", "off", "drain"]
OnGone = Literal["keep", "cut"]
Verdict = Literal["log drop", "log", "drop"]
AddressType = Literal["ClusterIP", "ExternalIP", "LoadBalancer", "NodePort"]
TrafficPolicy = Literal["Cluster", "Local"]
Masquerade = Literal["Never", "AsNeeded"]

PACKET_FIELDS: Final = ("srcip", "dstip", "srcport", "dstport", "srcmac", "dstmac")
"""The packet fields that nftlb can hash (its README, sched-param and persistence), in its order."""

FIELD_SETS: Final = (
    "none",
    *(
        " ".join(chosen)
        for size in range(1, len(PACKET_FIELDS) + 1)
        for chosen in itertools.combinations(PACKET_FIELDS, size)
    ),
)
"""Every combination of them: words in this order, separated by a space, or none."""


def _known_fields(value: str) -> str:
    if value not in FIELD_SETS:
        raise ValueError(
            f"{value!r} must be none, or words from {', '.join(PACKET_FIELDS)}, in this order, separated by spaces"
        )
    return value


FieldSet = Annotated[str, AfterValidator(_known_fields), Field(json_schema_extra={"enum": list(FIELD_SETS)})]
"""One of FIELD_SETS."""

_KEY_BYTES: Final = {"srcip": 4, "dstip": 4, "srcport": 4, "dstport": 4, "srcmac": 8, "dstmac": 8}
_KEY_BYTES_MAX = 20

PERSISTENCE_SETS: Final = tuple(
    fields
    for fields in FIELD_SETS
    if fields == "none" or sum(_KEY_BYTES[field] for field in fields.split()) <= _KEY_BYTES_MAX
)
"""The combinations that persistence can use: with a longer key, nftlb exits (docs/nftlb-defects.md)."""


def _known_persistence(value: str) -> str:
    if _known_fields(value) not in PERSISTENCE_SETS:
        raise ValueError(f"{value!r} makes a key that is too long for nftlb: remove a MAC address, or more")
    return value


Persistence = Annotated[
    str, AfterValidator(_known_persistence), Field(json_schema_extra={"enum": list(PERSISTENCE_SETS)})
]
"""One of PERSISTENCE_SETS."""

LOG_PREFIX_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9 ._:/-]*[A-Za-z0-9._:/-])?$"

LogPrefix = Annotated[str, Field(min_length=1, max_length=40, pattern=LOG_PREFIX_PATTERN)]
"""The prefix of log lines. It is quoted in a command, so it must not contain quotes."""

RATE_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
RATE_PATTERN = rf"^[1-9][0-9]{{0,6}}/({'|'.join(RATE_SECONDS)})$"
Rate = Annotated[str, Field(max_length=16, pattern=RATE_PATTERN)]
"""A number of events per unit of time, such as ``100/second``."""

FarmMark = Annotated[str, Field(max_length=10, pattern=r"^0x[1-9a-f][0-9a-f]{0,3}000$")]
"""Bits of a connection mark, except the lowest 12, which are the backend's, and the highest 4.

The highest bit requests masquerading, and nftlb has no room for the eighth digit (docs/nftlb-defects.md).
"""


SourceRange = Annotated[
    str,
    Field(max_length=49, json_schema_extra=rules.schema(rules.SOURCE_RANGE)),
    AfterValidator(rules.validator(rules.SOURCE_RANGE)),
]
"""A range of addresses, such as ``10.0.0.0/8``."""

PORTS_MAX = 1024
"""The limit of ports per address: nftlb makes four map elements of each."""

_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_PORTS_PATTERN = rf"^{_PORT}(-{_PORT})?(,{_PORT}(-{_PORT})?)*$"


def expand_ports(ports: str) -> list[int]:
    """Return the ports of a list such as ``80,443,8000-8003``, in order; of an empty one, none.

    Raises ValueError for anything else, backward ranges, duplicates and too many ports.
    """
    if not ports:
        return []
    if not re.fullmatch(_PORTS_PATTERN, ports):
        raise ValueError(
            f"{ports!r} must be a list of ports from 1 to 65535 and ranges, such as 80 or 80,443,8000-8003"
        )
    expanded: list[int] = []
    for part in ports.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not rules.PORTS.holds(part):
            raise ValueError(f"{part!r} {rules.PORTS.message}")
        if len(expanded) + high - low + 1 > PORTS_MAX:
            raise ValueError(f"{ports!r} must not have more than {PORTS_MAX} ports")
        expanded.extend(range(low, high + 1))
    if len(set(expanded)) != len(expanded):
        raise ValueError(f"{ports!r} must not have a port twice")
    return expanded


def join_ports(ports: Iterable[int]) -> str:
    """Return ports in ascending order as ``expand_ports`` reads them, with as few ranges as possible."""
    ranges: list[tuple[int, int]] = []
    for port in ports:
        if ranges and ranges[-1][1] == port - 1:
            ranges[-1] = (ranges[-1][0], port)
        else:
            ranges.append((port, port))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _checked_ports(ports: str) -> str:
    expand_ports(ports)
    return ports


Ports = Annotated[
    str,
    Field(
        max_length=100,
        pattern=rf"^$|{_PORTS_PATTERN}",
        json_schema_extra=rules.schema(rules.PORTS),
    ),
    AfterValidator(_checked_ports),
]
"""A port, list or range: ``80``, ``80,443`` or ``8000-8003``; empty: every port."""
