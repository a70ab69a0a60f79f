"""What was found in a cluster. Pure: no I/O."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Severity = Literal["blocks", "differs", "note"]
"""``blocks``: connections would fail. ``differs``: something behaves in another way, or needs a setting."""

_SHOWN = 5


class Finding(NamedTuple):
    """Something that the cluster uses."""

    severity: Severity
    reason: str
    """One CamelCase word."""
    message: str
    action: str
    objects: tuple[str, ...] = ()
    """Names of the objects concerned."""


def names_of(objects: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    listed = list(objects)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def text(finding: Finding) -> str:
    """Return a finding as lines to read."""
    concerned = f" ({names_of(finding.objects)})" if finding.objects else ""
    return f"{finding.severity:8}{finding.reason}: {finding.message}{concerned}\n        {finding.action}"
