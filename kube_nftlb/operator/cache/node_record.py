"""Nodes in the cache: what their agents report, and whether they still do. No I/O."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.operator.cache.sanitize import sanitized_status
from kube_nftlb.operator.model.failures import Failure, parse_failure

Json = dict[str, Any]

_INTERRUPTED_S: Final = 30.0
"""Time in seconds without contact to the API server after which all agents have their time anew."""
SILENT: Final = "AgentSilent"
"""The reason of the condition Ready of an NftlbNode whose agent does not report."""


class NodeRecord(NamedTuple):
    """The report of a node's agent."""

    name: str
    resource_version: int
    watermark: int
    slice_watermark: int
    policy_watermark: int
    ready: bool
    silent: bool
    """True if its agent has not reported for so long that the operator says so (``operator/status/silent_agents``)."""
    reported_at: str
    """When its agent reported last, as it says; "" for one of an older version."""
    failed: dict[tuple[FarmKey, int], Failure]
    """The farms that failed on the node, by key and generation."""
    failed_namespaces: frozenset[str]
    """Namespaces in which more farms failed than ``failed`` has."""
    warnings: dict[tuple[FarmKey, int], Failure]
    """The same of the farms that are programmed, and part of which has no effect."""
    announced: frozenset[str] = frozenset()
    """The addresses for which the node answers, as far as it names them."""


class CoreNode(NamedTuple):
    """The fields of a Node that the operator keeps."""

    resource_version: int
    ready: bool = True
    """False if its kubelet says so, or is silent."""


def parse_core_node(raw: Json) -> CoreNode:
    """Return a Node's record. Without the condition Ready it counts as ready."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    ready = all(each.get("status") == "True" for each in conditions if each.get("type") == "Ready")
    return CoreNode(int(raw["metadata"]["resourceVersion"]), ready)


def parse_node(raw: Json) -> NodeRecord:
    """Return an NftlbNode's record. What an agent of another version does not write counts as not done."""
    raw = {**raw, "status": sanitized_status(raw.get("status"))}
    metadata, status = raw["metadata"], raw.get("status") or {}
    return NodeRecord(
        name=metadata["name"],
        resource_version=int(metadata["resourceVersion"]),
        watermark=_number(status.get("watermark")),
        slice_watermark=_number(status.get("sliceWatermark")),
        policy_watermark=_number(status.get("policyWatermark")),
        silent=any(c.get("reason") == SILENT for c in status.get("conditions") or () if c.get("type") == "Ready"),
        reported_at=str(status.get("reportedAt") or ""),
        ready=all(c.get("status") != "False" for c in status.get("conditions") or () if c.get("type") == "Ready"),
        failed=_problems(status.get("failedFarms"), metadata["name"]),
        failed_namespaces=frozenset(status.get("failedNamespaces") or ()),
        warnings=_problems(status.get("warnings"), metadata["name"]),
        announced=frozenset((status.get("addresses") or {}).get("announced") or ()),
    )


def _problems(entries: list[Json] | None, node: str) -> dict[tuple[FarmKey, int], Failure]:
    return {
        (FarmKey(entry["namespace"], entry["name"]), entry.get("generation", 0)): parse_failure(entry, node)
        for entry in entries or ()
    }


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0


class Heartbeats:
    """When each agent reported last. ``clock`` returns seconds.

    Only time in contact with the API server counts: while it is away nobody is silent, nor as soon as it is back.
    """

    def __init__(self, clock: Callable[[], float], silent_after_s: float) -> None:
        self.silent_after_s = silent_after_s
        self._clock = clock
        self._heard: dict[str, tuple[str, float]] = {}
        self._contact_at = self._contact_since = float("-inf")

    def heard(self, name: str, reported_at: str) -> None:
        """Take the time that an agent gives for its last report; one that gives none, of an older version, counts."""
        if self._heard.get(name, ("", 0.0))[0] != reported_at or not reported_at:
            self._heard[name] = reported_at, self._clock()

    def contact(self) -> None:
        """Note that the API server answers."""
        now = self._clock()
        if now - self._contact_at > _INTERRUPTED_S:
            self._contact_since = now
        self._contact_at = now

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._heard.pop(name, None)

    def silent(self) -> list[str]:
        """Return the nodes whose agents give the time of their reports, and have not reported for so long."""
        return sorted(
            name
            for name, (reported_at, at) in self._heard.items()
            if reported_at and self._contact_at - max(at, self._contact_since) > self.silent_after_s
        )
