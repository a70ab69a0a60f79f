"""NftlbAddressPool: addresses that Services of type LoadBalancer get, and which nodes may announce them."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from kube_nftlb.api import rules
from kube_nftlb.api.base import Condition, Family, ForeignModel, Metadata, Model
from kube_nftlb.api.selector import Selector

RANGES_MAX: Final = 64
COUNT_MAX: Final = 2**53 - 1
"""The largest number that JSON readers keep exact. A pool that has more addresses says that it has these."""

PoolRange = Annotated[
    str,
    Field(max_length=91, json_schema_extra=rules.schema(rules.ADDRESS_RANGE)),
    AfterValidator(rules.validator(rules.ADDRESS_RANGE)),
]
"""A range of addresses, such as ``192.0.2.0/28`` or ``192.0.2.10-192.0.2.20``."""

WhenEmpty = Literal["announce", "withdraw"]

InterfacePattern = Annotated[str, Field(min_length=1, max_length=15, pattern=r"^[A-Za-z0-9_.:*?@-]+$")]


class AnnounceL2(Model):
    """Which nodes answer ARP and NDP for the addresses of a pool, and where."""

    interfaces: Annotated[
        tuple[InterfacePattern, ...],
        Field(
            description="Names of network interfaces, or patterns such as eth*, on which nodes may answer. Absent: on "
            "any whose subnet has the address.",
            max_length=16,
        ),
    ] = ()
    node_selector: Annotated[Selector, Field(description="Nodes that may answer. Absent: all.")] = Selector()
    prefer: Annotated[
        Selector | None,
        Field(description="Nodes that answer rather than others, as long as one of them can. Absent: no preference."),
    ] = None


class Announce(Model):
    """How the addresses of a pool are announced."""

    l2: Annotated[AnnounceL2, Field(description="By ARP and NDP, on the segment whose subnet has the address.")] = (
        AnnounceL2()
    )
    when_empty: Annotated[
        WhenEmpty,
        Field(
            description="What becomes of an address whose Services have no endpoint that serves. announce: a node "
            "answers for it, and clients are refused at once. withdraw: nobody answers."
        ),
    ] = "announce"


class AddressPoolSpec(Model):
    """The desired state of a pool of addresses."""

    ranges: Annotated[
        tuple[PoolRange, ...],
        Field(
            description="Addresses, of both families: ranges in canonical form, such as 192.0.2.16/28, or the first "
            "and the last, such as 192.0.2.10-192.0.2.20. All of them are used, also the first and the last. None may "
            "be an address of a node, a pod, a cluster IP, or of another pool.",
            min_length=1,
            max_length=RANGES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ]
    reserved: Annotated[
        tuple[PoolRange, ...],
        Field(
            description="Ranges of these addresses that no Service gets. One that has such an address already keeps "
            "it.",
            max_length=RANGES_MAX,
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    service_selector: Annotated[
        Selector, Field(description="Services that may have these addresses, by labels. Absent: all.")
    ] = Selector()
    namespace_selector: Annotated[
        Selector,
        Field(
            description="Namespaces whose Services may have them, by labels; kubernetes.io/metadata.name is the name. "
            "Absent: all."
        ),
    ] = Selector()
    priority: Annotated[
        int,
        Field(
            description="Of the pools that a Service may use, the one with the highest is asked first.", ge=0, le=1000
        ),
    ] = 0
    auto_assign: Annotated[
        bool,
        Field(description="Whether Services get addresses that ask for neither a pool nor an address."),
    ] = True
    addresses_per_namespace: Annotated[
        int | None,
        Field(
            description="How many of these addresses the Services of a namespace may have. Absent: any number.",
            ge=0,
            le=1000000,
        ),
    ] = None
    announce: Annotated[Announce, Field(description="How nodes announce these addresses.")] = Announce()


class FamilyCounts(Model):
    """Numbers of addresses of one family. The highest number is 9007199254740991, also if there are more."""

    size: Annotated[int, Field(description="Addresses in the ranges, without the reserved ones.", ge=0)] = 0
    used: Annotated[int, Field(description="Addresses that Services have, the reserved ones included.", ge=0)] = 0
    free: Annotated[int, Field(description="Addresses that Services can get.", ge=0)] = 0


class AddressPoolStatus(Model):
    """The observed state of a pool, written by the operator."""

    observed_generation: Annotated[int, Field(description="The metadata.generation that this status describes.")] = 0
    services: Annotated[int, Field(description="Number of Services that have addresses of the pool.", ge=0)] = 0
    ipv4: Annotated[FamilyCounts, Field(description="Numbers of IPv4 addresses.")] = FamilyCounts()
    ipv6: Annotated[FamilyCounts, Field(description="Numbers of IPv6 addresses.")] = FamilyCounts()
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            description="Accepted: the pool is valid, and has no address of something else. AddressesFree: a Service "
            "can get an address of each family that the pool has.",
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()

    def counts(self, family: Family) -> FamilyCounts:
        """Return the numbers of one family."""
        return self.ipv4 if family == "ipv4" else self.ipv6


class AddressPool(ForeignModel):
    """An NftlbAddressPool object."""

    metadata: Metadata
    spec: AddressPoolSpec
    status: AddressPoolStatus = AddressPoolStatus()
