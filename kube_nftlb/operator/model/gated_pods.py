"""Pods with the readiness gate, as far as decisions need them (KEP-580). No I/O."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.endpointslices.slices import canonical_ip

SELECTOR = f"{names.LABEL_READINESS_GATE}={names.READINESS_GATE_ENABLED}"
"""The label selector of the Pods that are watched for their gate."""


EVENT_PART = "readiness gate"
"""The part of Events about a Pod's gate, beside those about its annotations; no farm has a name with a space."""


class GatedPod(NamedTuple):
    """A Pod with the readiness gate."""

    resource_version: int
    uid: str
    labels: Mapping[str, str]
    ips: Mapping[Family, str]
    prepared: bool
    """True if it lacks nothing but the gate to be ready: it runs, and so do its containers."""
    programmed: bool
    """True if its condition of the gate is true."""

    @property
    def waits(self) -> bool:
        """True if it waits for the gate alone."""
        return self.prepared and not self.programmed


def slim(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Return the part of a Pod to keep, or None for a Pod without the gate."""
    gates = {gate.get("conditionType") for gate in (raw.get("spec") or {}).get("readinessGates") or ()}
    if names.READINESS_GATE not in gates:
        return None
    metadata, status = raw["metadata"], raw.get("status") or {}
    true = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    needed = (gates - {names.READINESS_GATE}) | {"ContainersReady"}
    identity = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {
        "metadata": identity,
        "labels": metadata.get("labels") or {},
        "ips": [each.get("ip") or "" for each in (status.get("podIPs") or ())[: len(FAMILIES)]],
        "prepared": needed <= true and status.get("phase") == "Running" and "deletionTimestamp" not in metadata,
        "programmed": names.READINESS_GATE in true,
    }


def parse_gated_pod(raw: dict[str, Any]) -> GatedPod:
    """Parse what ``slim`` kept."""
    metadata = raw["metadata"]
    ips = {
        family: ip
        for text in raw["ips"]
        for family in FAMILIES
        if (":" in text) == (family == "ipv6") and (ip := canonical_ip(text, family)) is not None
    }
    return GatedPod(
        int(metadata["resourceVersion"]), metadata["uid"], raw["labels"], ips, raw["prepared"], raw["programmed"]
    )
