"""NftlbAddressPool: addresses that Services of type LoadBalancer get, and which nodes may announce them."""

from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, Field

from kube_nftlb.api import rules
from kube_nftlb.api.address_ranges import AddressRange
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

Community = Annotated[
    str,
    Field(max_length=32, pattern=r"^[0-9]{1,10}(:[0-9]{1,10}){1,2}$", json_schema_extra=rules.schema(rules.COMMUNITY)),
    AfterValidator(rules.validator(rules.COMMUNITY)),
]
"""A BGP community, such as ``65000:100``, or a large one, such as ``65000:1:2``."""

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
        Field(
            description="Nodes that get an address first when it needs a holder. One that another node holds does not "
            "move to them. Absent: no preference."
        ),
    ] = None


class AnnounceBGP(Model):
    """Which nodes announce the addresses of a pool by BGP, and how."""

    node_selector: Annotated[Selector, Field(description="Nodes that may announce them. Absent: all.")] = Selector()
    communities: Annotated[
        tuple[Community, ...],
        Field(
            description="BGP communities of the routes, such as 65000:100, or large ones, such as 65000:1:2.",
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    local_pref: Annotated[
        int | None,
        Field(description="Local preference of the routes, for peers with our own AS number.", ge=0, le=2**32 - 1),
    ] = None
    aggregation_length: Annotated[
        int,
        Field(
            description="Prefix length of the routes to IPv4 addresses. A shorter one than 32 stands for all addresses "
            "in it, once the node may announce one of them; it is used where the pool has all of them in one range.",
            ge=8,
            le=32,
        ),
    ] = 32
    aggregation_length_v6: Annotated[int, Field(description="The same of IPv6.", ge=16, le=128)] = 128


class Announce(Model):
    """How the addresses of a pool are announced."""

    l2: Annotated[
        AnnounceL2 | None,
        Field(description="By ARP and NDP, on the segment whose subnet has the address. Absent: so too, without bgp."),
    ] = None
    bgp: Annotated[
        AnnounceBGP | None,
        Field(description="By BGP, where the chart's addresses.bgp.enabled is set. Absent: not by BGP."),
    ] = None
    when_empty: Annotated[
        WhenEmpty,
        Field(
            description="What becomes of an address whose Services have no endpoint that serves or drains. announce: a "
            "node answers for it, and clients are refused at once. withdraw: nobody answers."
        ),
    ] = "announce"

    @property
    def on_segment(self) -> AnnounceL2 | None:
        """Return how they are announced by ARP and NDP; None if they are not."""
        return AnnounceL2() if self.l2 is None and self.bgp is None else self.l2


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

    @property
    def is_accepted(self) -> bool:
        """Return whether the operator has accepted it as it is: it overlaps with nothing of the cluster."""
        return self._accepted_generation == self.metadata.generation

    @property
    def was_accepted(self) -> bool:
        """Return whether the operator has accepted it, as it is or as it was before its last changes."""
        return self._accepted_generation is not None

    @property
    def _accepted_generation(self) -> int | None:
        accepted = (each for each in self.status.conditions if (each.type, each.status) == ("Accepted", "True"))
        return next((each.observed_generation for each in accepted), None)


class PoolRanges(NamedTuple):
    """A pool, and the addresses for which it counts."""

    pool: AddressPool
    ranges: tuple[AddressRange, ...]
