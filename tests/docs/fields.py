"""The table of fields in docs/gateway.md. Computation only."""

import re
from collections.abc import Collection, Mapping

_ROW = re.compile(r"^\| ([\w, ]+) \| (`[^|]+`) \| (yes|no|-) \|", re.MULTILINE)


def rows(page: str, kind: str) -> dict[str, str]:
    """The fields of a kind's spec that the table has, and whether they are supported: yes, no or -."""
    return {
        field: supported
        for kinds, fields, supported in _ROW.findall(page)
        if kind in kinds.split(", ")
        for field in re.findall(r"`([^`]+)`", fields)
    }


def covered(leaf: str, fields: Mapping[str, str]) -> bool:
    """Return True if one of the fields is this one, or has it within."""
    return any(_is_within(leaf, field) for field in fields)


def matches(field: str, leaves: Collection[str]) -> bool:
    """Return True if one of the leaves is this field, or within it."""
    return any(_is_within(leaf, field) for leaf in leaves)


def _is_within(leaf: str, field: str) -> bool:
    return leaf == field or leaf.startswith((f"{field}.", f"{field}[]"))
