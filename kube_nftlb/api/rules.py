"""Rules that the API server checks in CEL and the models check in Python, each with one message for both.

The models check them again because an older CRD may be installed. Rules about several fields stand beside their model
(``farm.rules``, ``limits``); here are those about single values.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

M = TypeVar("M", contravariant=True)


class Rule(NamedTuple, Generic[M]):
    """An invariant of a value or model."""

    name: str
    cel: str
    holds: Callable[[M], bool]
    """The same as ``cel``, for a value that satisfies its schema."""
    message: str
    """States what is allowed. For a single value it begins with "must", to follow the value."""


def violations(rules: Iterable[Rule[M]], value: M) -> list[str]:
    """Return the messages of the rules that a value violates."""
    return [rule.message for rule in rules if not rule.holds(value)]


def check(rules: Iterable[Rule[M]], value: M) -> None:
    """Raise ValueError with the message of the first rule that a value violates."""
    for message in violations(rules, value):
        raise ValueError(message)


def validator(rule: Rule[str]) -> Callable[[str], str]:
    """Return a pydantic validator of a single value."""

    def validate(value: str) -> str:
        if not rule.holds(value):
            raise ValueError(f"{value!r} {rule.message}")
        return value

    return validate


def schema(*rules: Rule[Any]) -> dict[str, Any]:
    """Return the rules as the API server takes them, for ``json_schema_extra``."""
    return {"x-kubernetes-validations": [{"rule": rule.cel, "message": rule.message} for rule in rules]}


METADATA_IPS = frozenset[str]().union(
    ("100.100.100.200", "fd00:100::100:200"),  # Alibaba
    ("fd00:ec2::254", "fd00:ec2::23"),  # AWS, and EKS for the identities of pods
    ("192.0.0.192", "fd00:c1::a9fe:a9fe"),  # Oracle
    ("168.63.129.16", "fd00:42::42", "fd00:a9fe:a9fe::1", "fd20:ce::254"),  # Azure, Scaleway, Akamai, Google
)
"""Where clouds tell a node its secrets, beside link-local addresses."""
_NOT_METADATA = f"!(self in {sorted(METADATA_IPS)})"


def _is_unicast(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped):
        return False
    # On a loopback address, a farm would come between the agent and nftlb.
    local = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return str(address) == text and not local and text != "255.255.255.255" and text not in METADATA_IPS


_ADDRESS = (
    "an IPv4 or IPv6 address in canonical form, such as 10.96.0.10 or fd00::1, and not a loopback, link-local or "
    "multicast address, or that of a cloud's metadata service"
)

IP = Rule[str](
    "ip",
    f"isIP(self) && ip.isCanonical(self) && ip(self).isGlobalUnicast() && {_NOT_METADATA}",
    _is_unicast,
    f"must be {_ADDRESS}",
)

IP_OR_EMPTY = Rule[str](
    "ip-or-empty",
    f"self == '' || isIP(self) && ip.isCanonical(self) && ip(self).isGlobalUnicast() && {_NOT_METADATA}",
    lambda text: not text or _is_unicast(text),
    f"must be empty, or {_ADDRESS}",
)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Parse a CIDR as the API server does, but allow bits behind the prefix; None if it is not valid."""
    address, slash, prefix = text.partition("/")
    if not slash or not (prefix.isascii() and prefix.isdecimal()) or str(int(prefix)) != prefix or "%" in address:
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
        mapped = isinstance(network, ipaddress.IPv6Network) and ipaddress.IPv6Address(address).ipv4_mapped
    except ValueError:
        return None
    return None if mapped else network


CIDR = Rule[str](
    "cidr",
    "isCIDR(self)",
    lambda text: _network(text) is not None,
    "must be an address range such as 10.0.0.0/8 or fd00::/64",
)

SOURCE_RANGE = Rule[str](
    "source-range",
    "isCIDR(self) && string(cidr(self).masked()) == self",
    lambda text: (network := _network(text)) is not None and str(network) == text,
    "must be an address range in canonical form, with zeros behind its prefix, such as 10.0.0.0/8 or fd00::/64",
)


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped)
    return not mapped and str(address) == text


def _is_address_range(text: str) -> bool:
    first, dash, last = text.partition("-")
    if not dash:
        return SOURCE_RANGE.holds(text)
    return _is_address(first) and _is_address(last) and (":" in first) == (":" in last)


ADDRESS_RANGE = Rule[str](
    "address-range",
    "self.contains('-') ? size(self.split('-')) == 2 && self.split('-').all(a, isIP(a) && ip.isCanonical(a)) && "
    "ip(self.split('-')[0]).family() == ip(self.split('-')[1]).family() : "
    "isCIDR(self) && string(cidr(self).masked()) == self",
    _is_address_range,
    "must be an address range in canonical form, with zeros behind its prefix, such as 192.0.2.16/28 or "
    "2001:db8::/120, or the first and the last address of one family, such as 192.0.2.10-192.0.2.20",
)


def _ascend(ports: str) -> bool:
    ranges = (part.split("-") for part in ports.split(",") if "-" in part)
    return all(int(low) <= int(high) for low, high in ranges)


PORTS = Rule[str](
    "ports",
    "self.split(',').all(p, !p.contains('-') || int(p.split('-')[0]) <= int(p.split('-')[1]))",
    _ascend,
    "must start a range with its lower port, such as 8000-8003",
)


def _is_community(text: str) -> bool:
    parts = text.split(":")
    return all(int(part) <= (65535 if len(parts) == 2 else 2**32 - 1) for part in parts)


COMMUNITY = Rule[str](
    "community",
    "self.split(':').all(p, int(p) <= (size(self.split(':')) == 2 ? 65535 : 4294967295))",
    _is_community,
    "must be a community of two numbers up to 65535, such as 65000:100, or a large one of three up to 4294967295, such "
    "as 65000:1:2",
)

PORT_REFERENCE = Rule[int | str](
    "port-reference",
    "type(self) != int || (self >= 1 && self <= 65535)",
    lambda port: not isinstance(port, int) or 1 <= port <= 65535,
    "must be the name of a port, or a number from 1 to 65535",
)

GROUP = Rule[tuple[str, bool]](
    "group",
    "(self.service != '') != self.refuse",
    lambda group: (group[0] != "") != group[1],
    "a group needs either a service, or refuse: true, which refuses its share of new connections",
)

FARM_NAME = Rule[str](
    "farm-name",
    "!self.metadata.name.contains('.')",
    lambda name: "." not in name,
    "the name of a farm must not contain a dot, which separates namespace and name in nftlb",
)

POLICY_NAME = Rule[str](
    "policy-name",
    "size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')",
    lambda name: len(name) <= 63 and "." not in name,
    "the name of a policy must not contain a dot nor be longer than 63 characters, or no farm could refer to it",
)

VALUE_RULES = (IP, IP_OR_EMPTY, CIDR, SOURCE_RANGE, ADDRESS_RANGE, PORTS, COMMUNITY)
