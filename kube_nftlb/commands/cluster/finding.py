"""Something that is wrong, and what conditions say. Pure: no I/O."""

from datetime import datetime
from typing import NamedTuple

from kube_nftlb.kube import timestamps
from kube_nftlb.kube.resources import JsonObject


class Finding(NamedTuple):
    """Something that is wrong with an object, and what to do about it."""

    kind: str
    namespace: str
    name: str
    reason: str
    message: str
    todo: str
    since: datetime | None = None
    """None if nothing tells."""

    @property
    def subject(self) -> str:
        """The object, as people name it."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def condition(raw: JsonObject, kind: str) -> JsonObject | None:
    """Return a condition of an object, or None if it has no such."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), None)


def is_silent(report: JsonObject) -> bool:
    """Return True if the agent of a node has not reported for minutes: what it has told last is true no longer."""
    return (condition(report, "Ready") or {}).get("reason") == "AgentSilent"


def since(found: JsonObject | None) -> datetime | None:
    """Return the time of a condition's last transition, if it is known."""
    return timestamps.parse((found or {}).get("lastTransitionTime"))


def is_older(raw: JsonObject, now: datetime, seconds: float) -> bool:
    """Return True if an object was created more than so many seconds ago."""
    created = timestamps.parse(raw["metadata"].get("creationTimestamp"))
    return created is not None and (now - created).total_seconds() > seconds
