"""Evaluate CEL like the API server, with the functions of Kubernetes' CEL libraries that our rules use."""

import ipaddress
from collections.abc import Callable
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELFunction

Json = str | int | list[Any] | dict[str, Any]

_ENVIRONMENT = celpy.Environment()


def value(json: Json) -> celtypes.Value:
    """Return the value for ``self``."""
    return json_to_cel(json)


def program(rule: str) -> Callable[[celtypes.Value], bool]:
    """Return a function that evaluates a rule for ``self``. It raises RuntimeError if the result is not a bool."""
    compiled = _ENVIRONMENT.program(_ENVIRONMENT.compile(rule), functions=_FUNCTIONS)

    def evaluate(value: celtypes.Value) -> bool:
        # In ip.isCanonical(self), celpy passes the name of the library as an argument.
        result = compiled.evaluate({"self": value, "ip": celtypes.StringType("ip")})
        if not isinstance(result, celtypes.BoolType):
            raise RuntimeError(f"{rule} is {result!r}")  # noqa: TRY004  # the rule is wrong, not an argument
        return bool(result)

    return evaluate


def _parsed(text: str, parse: Callable[[str], Any]) -> Any:
    """Parse an address or network; None if Go's netip or Kubernetes' libraries do not accept it."""
    address, _, prefix = text.partition("/")
    try:
        parsed, plain = parse(text), ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(plain, ipaddress.IPv6Address) and (plain.scope_id or plain.ipv4_mapped):
        return None
    return parsed if not prefix or (prefix.isdecimal() and str(int(prefix)) == prefix) else None


def _is_ip(text: celtypes.StringType) -> celtypes.BoolType:
    return celtypes.BoolType(_parsed(text, ipaddress.ip_address) is not None)


def _is_canonical(_library: celtypes.StringType, text: celtypes.StringType) -> celtypes.BoolType:
    return celtypes.BoolType(str(ipaddress.ip_address(text)) == text)


def _is_global_unicast(text: celtypes.StringType) -> celtypes.BoolType:
    address = ipaddress.ip_address(text)
    local = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return celtypes.BoolType(not local and str(address) != "255.255.255.255")


def _is_cidr(text: celtypes.StringType) -> celtypes.BoolType:
    network = _parsed(text, lambda each: ipaddress.ip_network(each, strict=False))
    return celtypes.BoolType("/" in text and network is not None)


def _masked(text: celtypes.StringType) -> celtypes.StringType:
    return celtypes.StringType(str(ipaddress.ip_network(text, strict=False)))


def _split(text: celtypes.StringType, separator: celtypes.StringType) -> celtypes.ListType:
    return celtypes.ListType([celtypes.StringType(part) for part in text.split(separator)])


_FUNCTIONS: dict[str, CELFunction] = {
    "isIP": _is_ip,
    "ip": lambda text: text,
    "family": lambda text: celtypes.IntType(ipaddress.ip_address(text).version),
    "isCanonical": _is_canonical,
    "isGlobalUnicast": _is_global_unicast,
    "isCIDR": _is_cidr,
    "cidr": lambda text: text,
    "masked": _masked,
    "split": _split,
    # celpy's own fails for concatenated strings.
    "contains": lambda text, part: celtypes.BoolType(part in text),
}
