"""The text that identifies a client of a farm with persistence: ``10.0.0.1``, ``10.0.0.1 . 4000``.

It is nft(8)'s text for a key of the farm's session map, in canonical form so that it can be compared.
"""

import ipaddress
import re

SEPARATOR = " . "
"""Separates the values of a client that is identified by several fields."""

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_PORT_MAX = 65535


def check(client: str, persistence: str, family: str) -> None:
    """Raise ValueError if ``client`` does not match the fields of ``persistence``."""
    fields, parts = persistence.split(), client.split(SEPARATOR)
    if len(fields) != len(parts):
        raise ValueError(
            f"the session client {client!r} must have a value for each of {', '.join(fields)}, "
            f"separated by {SEPARATOR!r}"
        )
    for field, part in zip(fields, parts, strict=True):
        if not _fits(field, part, family):
            raise ValueError(f"the session client {client!r} must have {_wanted(field, family)} for {field}")


def _fits(field: str, part: str, family: str) -> bool:
    if field.endswith("mac"):
        return _MAC.fullmatch(part) is not None
    if field.endswith("port"):
        return _PORT.fullmatch(part) is not None and int(part) <= _PORT_MAX
    try:
        address = ipaddress.ip_address(part)
    except ValueError:
        return False
    return str(address) == part and "%" not in part and address.version == (6 if family == "ipv6" else 4)


def _wanted(field: str, family: str) -> str:
    if field.endswith("mac"):
        return "a MAC address such as 02:00:00:00:00:01"
    if field.endswith("port"):
        return "a port such as 4000"
    return f"an address such as {'fd00::1' if family == 'ipv6' else '10.0.0.1'}"
