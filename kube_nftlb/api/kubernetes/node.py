"""The parts of a v1 Node that an agent reads of its own Node. (``api.node`` has the NftlbNode.)"""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import ForeignModel, OptionalList


class CoreNodeMetadata(ForeignModel):
    """metadata, without what changes all the time: so that two are equal where nothing has changed that is read."""

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
    """status.addresses[]; a type is ``InternalIP``, ``ExternalIP``, ``Hostname`` and the like (the Node API)."""

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
