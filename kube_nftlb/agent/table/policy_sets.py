"""What the agent table has of an NftlbPolicy, and the rules of farms that refer to it. Pure: no I/O.

A policy has two sets of client address ranges in each family, those that it denies and those that it allows, and a
chain for clients that are in neither, which drops them if it is an allow list. Where a farm has no other policy, a
chain does all this by itself. All farms share these. The rules of farms do not depend on the type of a policy, so it
changes its type without them.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from kube_nftlb import __version__, names
from kube_nftlb.agent.table import layout
from kube_nftlb.api.address_ranges import AddressRange, address_range, intervals
from kube_nftlb.api.base import Family, first_error
from kube_nftlb.api.policy import PolicyKey, PolicySpec
from kube_nftlb.api.unknown import unknown_fields
from kube_nftlb.netfilter.table_text import Chain, Contents, NamedSet
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

    contents: Contents = _NOTHING
    """Nothing if nobody is admitted: farms then have no rules that refer to it."""
    invalid: str | None = None
    refused: str | None = None
    """Why the kernel does not take its ranges."""


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
    return EnforcedPolicy(_contents(key, allowed=ranges) if spec.type == "allow" else _contents(key, denied=ranges))


def admitting_nobody(key: PolicyKey) -> Contents:
    """Return what to have in place of a policy so that the rules that refer to it admit nobody."""
    return _contents(key, denied=[AddressRange(family, 0, nft.last) for family, nft in _FAMILIES.items()])


def _contents(
    key: PolicyKey, denied: Collection[AddressRange] = (), allowed: Collection[AddressRange] | None = None
) -> Contents:
    sets = (
        NamedSet(_named(which, key, family), f"type {nft.key_type}; flags interval;", intervals(ranges or (), family))
        for family, nft in _FAMILIES.items()
        for which, ranges in ((layout.DENIED, denied), (layout.ALLOWED, allowed))
    )
    drops = () if allowed is None else ("drop",)
    alone = (
        Chain(_named(layout.ALONE, key, family), ((_allowed if drops else _denied)(key, family), *drops))
        for family in _FAMILIES
    )
    return Contents(sets=tuple(sets), chains=(Chain(_named(layout.NOT_ALLOWED, key), drops), *alone))


def rules(keys: Collection[PolicyKey], family: Family, *, admit: bool) -> Iterator[str]:
    """Yield the rules of a farm that has these policies. None of them admits clients unless they are to ``admit``."""
    if admit and len(keys) == 1:
        yield from (f"goto {_named(layout.ALONE, key, family)}" for key in keys)
        return
    yield from (_denied(key, family) for key in keys)
    if admit:
        yield from (_allowed(key, family) for key in keys)
    yield from (f"jump {_named(layout.NOT_ALLOWED, key)}" for key in keys)


def _denied(key: PolicyKey, family: Family) -> str:
    return f"{_FAMILIES[family].saddr} @{_named(layout.DENIED, key, family)} drop"


def _allowed(key: PolicyKey, family: Family) -> str:
    return f"{_FAMILIES[family].saddr} @{_named(layout.ALLOWED, key, family)} return"


def _named(what: str, key: PolicyKey, family: Family | None = None) -> str:
    short = names.shorten(".".join(key), names.NODE_FARM_NAME_MAX)
    return f"{what}-{short}-{_FAMILIES[family].suffix}" if family is not None else f"{what}-{short}"
