"""The parts of a v1 Node that its agent reads. (The NftlbNode is in ``api.node``.)"""

import ipaddress
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from kube_nftlb.api.base import ForeignModel, OptionalList


class CoreNodeMetadata(ForeignModel):
    """metadata, without resourceVersion and the like, so that Nodes are equal if nothing that we read has changed."""

    name: str
    uid: str = ""
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class Taint(ForeignModel):
    """spec.taints[]."""

    key: str
    effect: str = ""


class CoreNodeSpec(ForeignModel):
    """spec."""

    pod_cidrs: Annotated[OptionalList[str], Field(alias="podCIDRs")] = ()
    taints: OptionalList[Taint] = ()


class NodeAddress(ForeignModel):
    """status.addresses[]; types are ``InternalIP``, ``ExternalIP``, ``Hostname`` and so on (Node API)."""

    type: str
    address: str


class CoreNodeStatus(ForeignModel):
    """status."""

    addresses: OptionalList[NodeAddress] = ()


class CoreNode(ForeignModel):
    """A Node object."""

    metadata: CoreNodeMetadata
    spec: CoreNodeSpec = CoreNodeSpec()
    status: CoreNodeStatus = CoreNodeStatus()


def ips_of(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the addresses of a Node object of the API server that are IP addresses, in their canonical form."""
    entries = (raw.get("status") or {}).get("addresses") or ()
    found = (_canonical_ip(str(entry.get("address", ""))) for entry in entries)
    return tuple(dict.fromkeys(ip for ip in found if ip is not None))


def _canonical_ip(text: str) -> str | None:
    """Return an IP address in its canonical form, or None if the text is none."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None
