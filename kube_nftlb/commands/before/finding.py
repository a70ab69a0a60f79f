"""What is read of a cluster before a move from kube-proxy, and what is found. Pure: no I/O."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.prose import some_of

Severity = Literal["blocks", "unknown", "differs", "note"]
"""``blocks``: connections would fail. ``unknown``: they may fail, and nothing here tells. ``differs``: something
behaves in another way, or needs a setting."""

_SHOWN = 5


class Survey(NamedTuple):
    """The objects that show what a cluster uses."""

    version: JsonObject
    """Of the API server: ``major``, ``minor``, ``gitVersion``."""
    nodes: list[JsonObject]
    services: list[JsonObject]
    daemon_sets: list[JsonObject] | None = None
    """None if the user may not list them."""
    kube_proxy: JsonObject | None = None
    """The ConfigMap of kube-proxy; None if there is none, or if the user may not read it."""
    cilium: JsonObject | None = None
    """The ConfigMap of Cilium."""
    network_policies: list[JsonObject] | None = None
    """None if the user may not list them."""


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
    return some_of(list(objects), _SHOWN)


def text(finding: Finding) -> str:
    """Return a finding as lines to read."""
    concerned = f" ({names_of(finding.objects)})" if finding.objects else ""
    return f"{finding.severity:8}{finding.reason}: {finding.message}{concerned}\n        {finding.action}"
