"""Parse the text of annotations, by the type of the field that it sets. No I/O."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kube_nftlb.api.base import Family, IpAddress
from kube_nftlb.api.farm import Session
from kube_nftlb.api.values import FarmMark, LogPrefix, Rate

_TRUTHS: Final = {"on": True, "true": True, "off": False, "false": False}
_SEPARATORS = re.compile(r"[\s,]+")
_WORD_SEPARATORS = re.compile(r"[\s,-]+")
_NUMBER = re.compile(r"[0-9]{1,9}|0x[0-9a-fA-F]{1,8}")


class PerFamily(NamedTuple):
    """A value for the farms of each family; None if there is none for them."""

    ipv4: Any
    ipv6: Any

    def of(self, family: Family) -> Any:
        """Return the value for the farms of one family."""
        return self.ipv6 if family == "ipv6" else self.ipv4


def split(text: str) -> list[str]:
    """Split a list at commas and blanks."""
    return [part for part in _SEPARATORS.split(text) if part]


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's schema without the alternative null."""
    (variant,) = (each for each in schema.get("anyOf", [schema]) if each != {"type": "null"})
    return {**schema, **variant}


def reader(types: tuple[Any, ...], schema: Mapping[str, Any]) -> tuple[Callable[[str], Any], str]:
    """Return a parser for fields of such a type, and a description of valid values."""
    schema = _plain(schema)
    for kind, read, allowed in _TYPES:
        if kind in types:
            return read, allowed
    if "enum" in schema:
        return _enumeration(schema["enum"])
    if schema["type"] == "boolean":
        return _truth, "on, off, true or false"
    if schema["type"] == "integer":
        return _number, f"a whole number from {schema['minimum']} to {schema['maximum']}"
    if schema["type"] == "array":
        return _distinct, f"a list of at most {schema['maxItems']} names, separated by commas"
    return str, f"a text like {schema.get('pattern', '')}"


def _enumeration(values: list[str]) -> tuple[Callable[[str], Any], str]:
    words = [value for value in values if " " not in value and value != "none"]
    if not any(" " in value for value in values):
        return str, f"one of: {', '.join(values)}"

    def read(text: str) -> str:
        found = [part for part in _WORD_SEPARATORS.split(text) if part]
        # Unknown words are kept, for the type to reject them.
        return " ".join(sorted(found, key=lambda word: words.index(word) if word in words else len(words)))

    return read, f"{'none, or ' if 'none' in values else ''}any of: {', '.join(words)}"


def _truth(text: str) -> bool:
    if text not in _TRUTHS:
        raise ValueError(text)
    return _TRUTHS[text]


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text, 0) if text.startswith("0x") else int(text)


def _rate(text: str) -> str:
    return f"{text}/second" if text.isdecimal() else text


def _distinct(text: str) -> list[str]:
    return list(dict.fromkeys(split(text)))


def _addresses(text: str) -> PerFamily:
    """Parse one address, or one of each family."""
    found: dict[int, str] = {}
    for part in split(text):
        version = ipaddress.ip_address(part).version
        if version in found:
            raise ValueError(part)
        found[version] = part
    if not found:
        raise ValueError(text)
    return PerFamily(found.get(4), found.get(6))


def _sessions(text: str) -> PerFamily:
    """Parse clients and their backends: those that are an address for the farms of its family, others for all."""
    of: dict[int, list[dict[str, str]]] = {4: [], 6: []}
    clients: set[str] = set()
    # A client of persistence by several fields has blanks inside: 10.0.0.1 . 4000.
    for part in filter(None, (part.strip() for part in text.split(","))):
        client, _, backend = (each.strip() for each in part.partition("="))
        if client in clients:
            raise ValueError(part)
        clients.add(client)
        session = {"client": client, "backend": backend}
        try:
            of[ipaddress.ip_address(client.partition(" ")[0]).version].append(session)
        except ValueError:
            of[4].append(session)
            of[6].append(session)
    if not clients:
        raise ValueError(text)
    return PerFamily(of[4] or None, of[6] or None)


_TYPES: Final[list[tuple[Any, Callable[[str], Any], str]]] = [
    (IpAddress, _addresses, "an address such as 10.0.0.9, or one of each family (10.0.0.9, fd00::9)"),
    (tuple[Session, ...], _sessions, "a list of clients and their backends such as 10.0.0.1=pod-a, 10.0.0.2=pod-b"),
    (Rate, _rate, "a rate such as 100, which is 100/second, or 10/minute, 5/hour, 5/day, 5/week"),
    (FarmMark, str.lower, "a hexadecimal number from 0x1000 to 0xffff000 whose last three digits are 0"),
    (LogPrefix, str, "a text of 1 to 40 letters, digits, blanks and . _ : / - that begins with a letter or digit"),
]
