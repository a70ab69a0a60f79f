"""The annotations that set no field of our objects alone, for ``kube-nftlb explain`` and docs/reference.md. No I/O.

Those of which each sets one field are marked at the models, see ``reference``.
"""

from typing import Final, Literal, NamedTuple

from kube_nftlb import names


class Annotation(NamedTuple):
    """An annotation that users set."""

    key: str
    """The full key; the last word in capitals, if there is one, stands for a name."""
    annotated: Literal["Service", "Gateway"]
    """The kind of object that has it."""
    values: str
    meaning: str
    sets: str = ""
    """The path of the field, within a farm, that it contributes to; empty if there is none."""

    @property
    def short(self) -> str:
        """The key without the prefix."""
        return self.key.removeprefix(names.ANNOTATION_PREFIX).removeprefix(f"{names.GROUP}/")


_PORTS = (
    "Ports on which the farm listens besides the Service's own, which is always among them; the Service must have one "
    "port. If its targetPort equals its port, connections keep their destination port, otherwise all go to the "
    "targetPort. A node port stays one port."
)
_SHARING = "Services of one namespace with the same key get the same address if their ports differ."
_TRAFFIC_POLICY = (
    "Local: each node serves its own endpoints alone, which then see the client's address, and only nodes with such "
    "announce the Gateway's addresses. Default: Cluster."
)
_FAMILIES = (
    "Families of the addresses that the Gateway gets for entries of spec.addresses without a value, or without any "
    "entry. Default: ipv4, if a pool has such addresses."
)
_PORT_RANGE = (
    "Range of ports of the listener of that name, with its own port in it. Backends see the port to which the client "
    "connected. Also on a ListenerSet, for its listeners."
)

ANNOTATIONS: Final = (
    Annotation(
        f"{names.ANNOTATION_PREFIX}ports",
        "Service",
        "ports and ranges, such as 8001-8003,9000, of at most 100 characters",
        _PORTS,
        "spec.addresses.ports",
    ),
    Annotation(
        names.ANNOTATION_ADDRESSES, "Service", "an address of each family", "Addresses of pools that the Service gets."
    ),
    Annotation(
        names.ANNOTATION_ADDRESS_POOL,
        "Service",
        "the name of an NftlbAddressPool",
        "The only pool that the Service gets addresses of.",
    ),
    Annotation(names.ANNOTATION_SHARING_KEY, "Service", "a text of at most 253 characters", _SHARING),
    Annotation(
        names.ANNOTATION_GATEWAY_POOL,
        "Gateway",
        "the name of an NftlbAddressPool",
        "The only pool that the Gateway gets addresses of.",
    ),
    Annotation(names.ANNOTATION_GATEWAY_FAMILIES, "Gateway", "ipv4, ipv6 or ipv4,ipv6", _FAMILIES),
    Annotation(names.ANNOTATION_GATEWAY_TRAFFIC_POLICY, "Gateway", "Cluster or Local", _TRAFFIC_POLICY),
    Annotation(
        f"{names.ANNOTATION_PORT_RANGE}LISTENER", "Gateway", "a range of ports, such as 30000-30100", _PORT_RANGE
    ),
)


def find(query: str) -> list[Annotation]:
    """Return the annotations with this key, with or without its prefix; case is ignored."""
    text = query.strip().lower()
    return [each for each in ANNOTATIONS if _matches(text, each.key.lower()) or _matches(text, each.short.lower())]


def _matches(text: str, key: str) -> bool:
    stem, dot, _ = key.partition(".listener")
    return text == key or (bool(dot) and (text == stem or text.startswith(f"{stem}.")))
