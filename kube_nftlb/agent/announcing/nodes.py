"""What bears on whether a node may announce addresses, by its Node object. Pure: no I/O."""

import ipaddress
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kube_nftlb import names
from kube_nftlb.announce.ownership.gate import EXCLUDED

_LEAVING_TAINTS: Final = ("ToBeDeletedByClusterAutoscaler", "node.kubernetes.io/out-of-service")


class NodeSeen(NamedTuple):
    """A Node, as far as its addresses are concerned."""

    labels: Mapping[str, str]
    leaves: str | None = None
    """Why it is about to go, or may not work; None if it is not. To be cordoned is no reason."""
    ipv4: str = ""
    """Its internal IPv4 address, if it has one."""

    @property
    def excluded(self) -> bool:
        """True by the label, whatever its value."""
        return EXCLUDED in self.labels


def seen(raw: Mapping[str, Any]) -> NodeSeen:
    """Return what is seen of a Node object of the API server."""
    metadata = raw["metadata"]
    return NodeSeen(metadata.get("labels") or {}, _leaves(raw), _ipv4(raw))


def _leaves(raw: Mapping[str, Any]) -> str | None:
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "the Node is being deleted"
    if (metadata.get("annotations") or {}).get(names.ANNOTATION_NODE_DRAINS) == "true":
        return "the node drains: `kubectl nftlb undrain` ends that"
    taints = {taint.get("key") for taint in spec.get("taints") or ()}
    for key in _LEAVING_TAINTS:
        if key in taints:
            return f"the node has the taint {key}"
    ready = [each for each in status.get("conditions") or () if each.get("type") == "Ready"]
    if any(each.get("status") != "True" for each in ready):
        return f"the node is not ready: {ready[0].get('message') or ready[0].get('reason') or 'no reason is given'}"
    return None


def _ipv4(raw: Mapping[str, Any]) -> str:
    entries = (raw.get("status") or {}).get("addresses") or ()
    internal = (str(entry.get("address", "")) for entry in entries if entry.get("type") == "InternalIP")
    # The lowest, whatever their order: as BIRD identifies itself by it, another one ends all sessions.
    return min(filter(_is_ipv4, internal), key=ipaddress.IPv4Address, default="")


def _is_ipv4(text: str) -> bool:
    # Whoever may write the status of a Node is not to write BIRD's configuration.
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
