"""The sets of client address ranges of NftlbPolicies, one per policy and family. Pure: no I/O."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from kube_nftlb import __version__, names
from kube_nftlb.api.address_ranges import AddressRange, address_range, intervals
from kube_nftlb.api.base import Family, first_error
from kube_nftlb.api.policy import PolicyKey, PolicySpec
from kube_nftlb.api.unknown import unknown_fields
from kube_nftlb.netfilter.table_text import Contents, NamedSet
from kube_nftlb.prose import some_of

Json = Mapping[str, Any]


class _Nft(NamedTuple):
    """A family in nftables."""

    suffix: str
    key_type: str
    saddr: str
    last: int


_FAMILIES: dict[Family, _Nft] = {
    "ipv4": _Nft("ip", "ipv4_addr", "ip saddr", 2**32 - 1),
    "ipv6": _Nft("ip6", "ipv6_addr", "ip6 saddr", 2**128 - 1),
}


_NOTHING = Contents()
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class EnforcedPolicy(NamedTuple):
    """A policy as it is enforced; if it is ``invalid`` or ``refused``, for the reason given, nobody is admitted."""

    allows: bool = False
    contents: Contents = _NOTHING
    invalid: str | None = None
    refused: str | None = None
    """Why the kernel does not take its ranges."""

    @property
    def admits_nobody(self) -> bool:
        """True if there are no ranges to compare clients with."""
        return self.invalid is not None or self.refused is not None


def policy(raw: Json) -> EnforcedPolicy:
    """Return an NftlbPolicy object as it is enforced. Takes up to half a second: not for the event loop."""
    key = PolicyKey.of(raw)
    if not all(_LABEL.fullmatch(part) for part in key):
        return EnforcedPolicy(
            invalid="its name and namespace must be of lower-case letters, digits and dashes, without a dot"
        )
    try:
        spec = PolicySpec.model_validate(raw.get("spec"))
    except ValidationError as error:
        return EnforcedPolicy(invalid=first_error(error, "spec"))
    if unknown := tuple(unknown_fields(PolicySpec, raw.get("spec"), "spec")):
        # Whom it admits may depend on that.
        return EnforcedPolicy(
            invalid=f"{some_of(unknown)}: this agent ({__version__}) does not know the field; upgrade the agents"
        )
    ranges = [address_range(cidr) for cidr in spec.cidrs]
    return EnforcedPolicy(spec.type == "allow", Contents(sets=tuple(_set(key, family, ranges) for family in _FAMILIES)))


def _set(key: PolicyKey, family: Family, ranges: Iterable[AddressRange]) -> NamedSet:
    declaration = f"type {_FAMILIES[family].key_type}; flags interval;"
    return NamedSet(set_name(key, family), declaration, intervals(ranges, family))


def admitting_nobody(key: PolicyKey, policy: EnforcedPolicy) -> Contents:
    """Return sets in place of a policy's own with which its rules admit nobody: all that it denies, or nothing."""
    everybody = [AddressRange(family, 0, nft.last) for family, nft in _FAMILIES.items()]
    ranges = [] if policy.allows else everybody
    return Contents(sets=tuple(_set(key, family, ranges) for family in _FAMILIES))


def set_name(key: PolicyKey, family: Family) -> str:
    """Return the name of a policy's set."""
    return f"policy-{names.shorten('.'.join(key), names.NODE_FARM_NAME_MAX)}-{_FAMILIES[family].suffix}"


def matches_source(key: PolicyKey, family: Family) -> str:
    """Return the match for clients in a policy's ranges."""
    return f"{_FAMILIES[family].saddr} @{set_name(key, family)}"
