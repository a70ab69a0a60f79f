"""The addresses of a farm."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import IpAddressOrEmpty, Model
from kube_nftlb.api.policy import PolicyName
from kube_nftlb.api.values import AddressType, Ports, SourceRange

SOURCE_RANGES_MAX = 256
POLICIES_MAX = 16


class Address(Model):
    """An address on which the farm takes connections."""

    type: Annotated[
        AddressType,
        Field(
            description="What kind of address it is, as of a Service. NodePort: those of every node; ip must be empty. "
            "With trafficPolicy Local, connections from a node and its pods to addresses of the types "
            "ExternalIP, LoadBalancer and NodePort still go to backends on all nodes."
        ),
    ] = "ClusterIP"
    ip: Annotated[
        IpAddressOrEmpty, Field(description="IP address, of the farm's family. Empty only with type NodePort.")
    ] = ""
    ports: Annotated[
        Ports,
        Field(description="A port, list or range: 80, or 80,443, or 8000-8003. Empty only with protocol All."),
    ] = ""
    source_ranges: Annotated[
        tuple[SourceRange, ...],
        Field(
            description="Address ranges of the clients that may connect to this address; empty: all clients. Farms of "
            "Services have spec.loadBalancerSourceRanges here.",
            max_length=SOURCE_RANGES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    policies: Annotated[
        tuple[PolicyName, ...],
        Field(
            description="Names of NftlbPolicies that apply to this address only, in addition to those of the farm.",
            max_length=POLICIES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
