"""NftlbPolicies and the farms that refer to them -> what the agent's own table has for them. No I/O.

A policy has a set of address ranges per family, shared by all farms that refer to it. A farm has, per combination of
policies, a chain that asks these sets: denied clients are dropped; then, where there is an allow list, all that are in
none are. The element of ``layout.POLICY`` for each of its listeners leads there. nftlb's own policies do not serve:
they work only where the address is on a local interface, and its allow lists keep nobody out.

Where a policy is missing, or is not understood, the chain lets nobody in.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from kube_nftlb import names
from kube_nftlb.agent.table import layout
from kube_nftlb.api.base import Family, first_error
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.policy import AddressRange, PolicyKey, PolicySpec, address_range
from kube_nftlb.api.values import expand_ports
from kube_nftlb.netfilter.transaction import Chain, Contents, Element, NamedSet
from kube_nftlb.reasons import FailureReason

Json = Mapping[str, Any]


class _Nft(NamedTuple):
    """How nftables speaks of a family."""

    suffix: str
    key_type: str
    saddr: str
    last: int
    address: type[ipaddress.IPv4Address | ipaddress.IPv6Address]


_FAMILIES: dict[Family, _Nft] = {
    "ipv4": _Nft("ip", "ipv4_addr", "ip saddr", 2**32 - 1, ipaddress.IPv4Address),
    "ipv6": _Nft("ip6", "ipv6_addr", "ip6 saddr", 2**128 - 1, ipaddress.IPv6Address),
}


_NOTHING = Contents()
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class EnforcedPolicy(NamedTuple):
    """A policy as it is enforced; ``invalid`` says why it cannot be, and then nobody gets in."""

    allows: bool = False
    contents: Contents = _NOTHING
    invalid: str = ""


def policy(raw: Json) -> EnforcedPolicy:
    """An NftlbPolicy object as it is enforced. The largest take half a second: not in the event loop's thread."""
    key = PolicyKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
    if not all(_LABEL.fullmatch(part) for part in key):
        return EnforcedPolicy(
            invalid="its name and namespace must be of lower-case letters, digits and dashes, without a dot"
        )
    try:
        spec = PolicySpec.model_validate(raw.get("spec"))
    except ValidationError as error:
        return EnforcedPolicy(invalid=first_error(error, "spec"))
    ranges = [address_range(cidr) for cidr in spec.cidrs]
    return EnforcedPolicy(spec.type == "allow", Contents(sets=tuple(_set(key, family, ranges) for family in _FAMILIES)))


def _set(key: PolicyKey, family: Family, ranges: Iterable[AddressRange]) -> NamedSet:
    nft = _FAMILIES[family]
    merged = list(_merged(sorted(each for each in ranges if each.family == family)))
    elements = tuple(
        str(nft.address(first)) if first == last else f"{nft.address(first)}-{nft.address(last)}"
        for _, first, last in merged
    )
    # The kernel has the beginning and the end of each interval. The end of all addresses is not told; before the first
    # interval there is an end, unless it begins with the first address.
    held = 2 * len(merged) + (merged[0].first > 0) - (merged[-1].last == nft.last) if merged else 0
    return NamedSet(_set_name(key, family), f"type {nft.key_type}; flags interval;", elements, held=held)


def _merged(ranges: Iterable[AddressRange]) -> Iterator[AddressRange]:
    """Sorted ranges, those that overlap or follow each other as one: nft refuses some and merges others."""
    open_: AddressRange | None = None
    for each in ranges:
        if open_ is None:
            open_ = each
        elif each.first <= open_.last + 1:
            open_ = open_._replace(last=max(open_.last, each.last))
        else:
            yield open_
            open_ = each
    if open_ is not None:
        yield open_


def _set_name(key: PolicyKey, family: Family) -> str:
    return f"policy-{names.shorten('.'.join(key), names.NODE_FARM_NAME_MAX)}-{_FAMILIES[family].suffix}"


class References(NamedTuple):
    """The policies that a farm refers to, by name: for all that it listens on, and for single ports."""

    namespace: str
    everywhere: frozenset[str] = frozenset()
    at: Mapping[tuple[str, int], frozenset[str]] = {}
    unread: bool = False
    """Of a farm that our models do not take: whether it asks for source ranges or limits, which nobody can apply."""

    def of(self, listener: Listener) -> frozenset[str]:
        """Return those for a listener. An engine may still have one that the farm no longer names: all apply there."""
        own = self.at.get((listener.ip, listener.port))
        return self.everywhere | (own if own is not None else frozenset().union(*self.at.values()))

    def all(self) -> frozenset[str]:
        """Every policy that it refers to."""
        return self.everywhere.union(*self.at.values())


def references(farm: Farm) -> References:
    """What a farm refers to."""
    at = {
        (address.ip, port): frozenset(address.policies)
        for address in farm.spec.addresses
        for port in expand_ports(address.ports) or [0]
    }
    return References(farm.metadata.namespace, frozenset(farm.spec.policies), at)


def raw_references(raw: Json) -> References:
    """What a farm refers to that our models do not take: every policy that its spec names, for all it listens on.

    What is no list of names stands for a policy that there is not: nobody gets in.
    """
    spec = raw.get("spec")
    addresses = spec.get("addresses") if isinstance(spec, dict) else None
    parts = [spec, *(addresses if isinstance(addresses, list) else ())]
    found = [part for part in parts if isinstance(part, dict)]
    named = frozenset(name for part in found for name in _names(part.get("policies") or []))
    unread = any(part.get("sourceRanges") or _limited(part.get("limits")) for part in found)
    return References(raw["metadata"]["namespace"], named, unread=unread)


def _limited(limits: Any) -> bool:
    """Whether there are limits, of which the API server fills in some fields in any case."""
    return isinstance(limits, dict) and any(limits.get(key) for key in ("new", "reset", "established", "tcpStrict"))


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else [str(value)]


@dataclass(slots=True)
class _Change:
    since: int
    raw: Json | None


class Policies:
    """The policies that there are, who refers to them, and which changes are not in the kernel yet."""

    def __init__(self) -> None:
        self.listed = False
        self._policies: dict[PolicyKey, EnforcedPolicy] = {}
        self._generations: dict[PolicyKey, tuple[str, int]] = {}
        self._references: dict[FarmKey, References] = {}
        self._pending: dict[PolicyKey, _Change] = {}
        self._in_work: dict[PolicyKey, _Change] = {}
        self._seen = 0
        self.changed_at = 0
        """The resourceVersion of the last change."""

    @property
    def count(self) -> int:
        """How many policies there are."""
        return len(self._policies)

    def referring(self, key: PolicyKey) -> int:
        """How many farms refer to a policy."""
        return sum(key.namespace == to.namespace and key.name in to.all() for to in self._references.values())

    # What the watches tell.

    def put(self, raw: Json, since: int | None = None) -> None:
        """A policy was created or changed; one whose generation is known is not looked at again."""
        metadata = raw["metadata"]
        key, generation = _key(raw), (metadata.get("uid", ""), metadata.get("generation", 0))
        if self._generations.get(key) != generation:
            self._generations[key] = generation
            self._change(key, int(metadata["resourceVersion"]) if since is None else since, raw)

    def remove(self, key: PolicyKey, since: int) -> None:
        """A policy was deleted."""
        if self._generations.pop(key, None) is not None:
            self._change(key, since, None)

    def replace_all(self, raws: Iterable[Json], resource_version: int) -> None:
        """The complete list: what is not on it is gone."""
        present = {_key(raw): raw for raw in raws}
        since = self._seen + 1
        for key in self._generations.keys() - present.keys():
            self.remove(key, since)
        for raw in present.values():
            self.put(raw, since)
        self.listed = True
        self.seen(resource_version)

    def seen(self, resource_version: int) -> None:
        """The watch has come to here."""
        self._seen = max(self._seen, resource_version)

    def refer(self, farm: FarmKey, to: References | None) -> None:
        """This is what a farm refers to; None for one that is gone."""
        if to is not None and to.all():
            self._references[farm] = to
        else:
            self._references.pop(farm, None)

    def refers(self, farm: FarmKey) -> bool:
        """Whether a farm refers to any policy."""
        return farm in self._references

    def _change(self, key: PolicyKey, since: int, raw: Json | None) -> None:
        earlier = self._pending.get(key)
        self._pending[key] = _Change(earlier.since if earlier else since, raw)
        self.changed_at = max(self.changed_at, since)

    # What the loop does.

    @property
    def pending(self) -> bool:
        """Whether there are changes to take."""
        return bool(self._pending)

    @property
    def watermark(self) -> int:
        """The resourceVersion up to which every policy is in the kernel."""
        open_ = [change.since for change in (*self._pending.values(), *self._in_work.values())]
        return max(min(open_) - 1, 0) if open_ else self._seen

    def take(self) -> dict[PolicyKey, Json | None]:
        """All changes that are not ``done``, those of an earlier attempt too; None for a policy that is gone."""
        for key, change in self._pending.items():
            self._in_work[key] = _Change(self._in_work.get(key, change).since, change.raw)
        self._pending = {}
        return {key: change.raw for key, change in self._in_work.items()}

    def turn(self, changed: Mapping[PolicyKey, EnforcedPolicy | None]) -> set[FarmKey]:
        """From now on the policies are so; returns the farms whose guards become others by it."""
        turned = set()
        for key, new in changed.items():
            if _kind(self._policies.get(key)) != _kind(new):
                turned.add(key)
            if new is None:
                self._policies.pop(key, None)
            else:
                self._policies[key] = new
        return {
            farm
            for farm, to in self._references.items()
            if any(PolicyKey(to.namespace, name) in turned for name in to.all())
        }

    def done(self) -> None:
        """What was taken is in the kernel."""
        self._in_work = {}

    # What the own table has.

    def sets(self) -> dict[str, Contents]:
        """What each policy has in the table, by owner."""
        return {owner(key): policy.contents for key, policy in self._policies.items()}

    def rules(self, key: FarmKey, farm: str, family: Family, listeners: Iterable[Listener]) -> Contents:
        """Return what applies a farm's policies at these listeners; ``farm`` is its name on the node."""
        if (to := self._references.get(key)) is None:
            return Contents()
        elements: set[Element] = set()
        chains: dict[str, Chain] = {}
        for listener in listeners:
            if named := sorted(to.of(listener)):
                chain = names.policy_chain(farm, named)
                if chain not in chains:
                    chains[chain] = Chain(chain, tuple(self._rules(to.namespace, named, family)))
                elements.add(layout.listener(layout.POLICY, listener, f"jump {chain}"))
        return Contents(frozenset(elements), tuple(chains.values()))

    def problem(self, key: FarmKey) -> tuple[FailureReason, str] | None:
        """Why a farm lets nobody in, as a word for machines and a sentence; None where it does as it shall."""
        if (to := self._references.get(key)) is None:
            return None
        for name in sorted(to.all()):
            found = self._policies.get(PolicyKey(to.namespace, name))
            if found is None:
                sentence = f"there is no NftlbPolicy {name!r} in its namespace; until there is, nobody gets in"
                return "PolicyMissing", sentence
            if found.invalid:
                return "PolicyInvalid", f"the NftlbPolicy {name!r} is not understood, nobody gets in: {found.invalid}"
        return None

    def _rules(self, namespace: str, named: Iterable[str], family: Family) -> Iterator[str]:
        keys = [PolicyKey(namespace, name) for name in named]
        known = {key: found for key in keys if (found := self._policies.get(key)) is not None and not found.invalid}
        if len(known) == len(keys):
            source = _FAMILIES[family].saddr
            denying = [key for key, found in known.items() if not found.allows]
            yield from (f"{source} @{_set_name(key, family)} drop" for key in denying)
            if len(denying) == len(known):
                return
            yield from (f"{source} @{_set_name(key, family)} return" for key in known if key not in denying)
        yield "drop"


def owner(key: PolicyKey) -> str:
    """The owner of a policy's sets in the own table."""
    return f"policy:{'.'.join(key)}"


def rules_owner(farm: str) -> str:
    """Return the owner of the rules that apply policies to a farm, by the farm's name on the node."""
    return f"policies:{farm}"


def _key(raw: Json) -> PolicyKey:
    return PolicyKey(raw["metadata"]["namespace"], raw["metadata"]["name"])


def _kind(policy: EnforcedPolicy | None) -> tuple[bool, bool] | None:
    """What guards depend on."""
    return (policy.allows, bool(policy.invalid)) if policy is not None else None
