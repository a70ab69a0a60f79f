"""The parts of a v1 Node that its agent reads. (The NftlbNode is in ``api.node``.)"""

from datetime import datetime
from typing import Annotated

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
