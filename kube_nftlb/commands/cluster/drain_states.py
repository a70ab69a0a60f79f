"""The states of backends before a drain and after it, by annotations of Pods and by farms. Pure: no I/O."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.commands.cluster.drain_plan import ANNOTATION, DRAIN, Drained, Member, PodRef
from kube_nftlb.kube.resources import JsonObject


def state_of(pod: JsonObject | None) -> str | None:
    """Return the state that the annotation of a Pod says; None without one, or if the Pod is gone."""
    state: str | None = ((pod or {}).get("metadata", {}).get("annotations") or {}).get(ANNOTATION)
    return state


class Other(NamedTuple):
    """A backend in another state, and what says so."""

    state: str
    what: str
    by: str

    @property
    def is_out(self) -> bool:
        """True if it gets no new connections as it is; a state that there is not counts as up."""
        return self.state in ("off", "down")

    def __str__(self) -> str:
        return f"{self.what} has the state {self.state}, by {self.by}"


def others(
    members: Iterable[Member], states: Mapping[PodRef, str | None], written: Mapping[FarmKey, JsonObject] | None = None
) -> dict[Drained, Other]:
    """Return each backend in a state that drain would replace, and undrain not bring back.

    ``states`` are those that the annotations of Pods say. ``written`` are farms as they are after undrain: what drains
    in one of them does so by the farm's manifest.
    """
    found: dict[Drained, Other] = {}
    for each in members:
        if (pod := each.annotated_pod) is not None:
            if (state := states.get(pod)) not in (None, "up", DRAIN):
                found[pod] = Other(str(state), f"pod {'/'.join(pod)}", f"its annotation {ANNOTATION}")
            continue
        state = each.backend.state
        if written is not None:
            state = next((state for state in states_in(written[each.farm], each.entry) if state != "up"), "up")
        if state not in (("up",) if written is not None else ("up", DRAIN)):
            what = f"backend {each.entry} of farm {'/'.join(each.farm)}"
            found[each.farm, each.entry] = Other(state, what, "the farm's manifest")
    return found


def says_drain(raw: JsonObject | None, entry: str) -> bool:
    """Return True if a farm says that a backend drains; also if the farm is gone."""
    return raw is None or DRAIN in states_in(raw, entry)


def states_in(raw: JsonObject, entry: str) -> list[str]:
    """Return the states that a farm says a backend has."""
    spec = raw.get("spec") or {}
    overrides = [each for group in spec.get("backendsFrom") or () for each in group.get("overrides") or ()]
    entries = [*(spec.get("backends") or ()), *overrides]
    return [each["state"] for each in entries if each.get("state") and each.get("pod", each.get("name")) == entry]
