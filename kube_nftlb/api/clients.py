"""What a farm with a persistence knows a client by, as text: ``10.0.0.1``, ``02:00:00:00:00:01``, ``10.0.0.1 . 4000``.

The text is nft(8)'s for a key of the farm's map of sessions, in its one canonical form, so that it can be compared.
"""

import ipaddress
import re

SEPARATOR = " . "
"""Between the values of a client that is known by several fields."""

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_PORT_MAX = 65535


def check(client: str, persistence: str, family: str) -> None:
    """Raises ValueError with a sentence where ``client`` is not what ``persistence`` knows a client by."""
    fields, parts = persistence.split(), client.split(SEPARATOR)
    if len(fields) != len(parts):
        raise ValueError(
            f"the session's client {client!r} must have a value for each of {', '.join(fields)}, "
            f"with {SEPARATOR!r} between"
        )
    for field, part in zip(fields, parts, strict=True):
        if not _fits(field, part, family):
            raise ValueError(f"the session's client {client!r} must have {_wanted(field, family)} for {field}")


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
