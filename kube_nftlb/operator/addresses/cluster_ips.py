"""Decide which cluster IPs a Gateway has, and why it lacks some. Pure.

They come from ServiceCIDRs, as those of Services do, and are picked as the API server picks them: from the upper part
of a range, and from the lower one, where addresses are that people choose, only once the upper one is full.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.address_ranges import AddressRange, Ip, ip_of, range_of_network
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.environment import IpNetwork
from kube_nftlb.operator.gateway.wanted import ClusterRequest
from kube_nftlb.prose import some_of, until_then

_NAMES: Final[dict[Family, str]] = {"ipv4": "IPv4", "ipv6": "IPv6"}
_LOWER_MIN: Final = 16
_LOWER_MAX: Final = 256
_LOWER_SHARE: Final = 16
"""The lower part of a range is a sixteenth of it, within these bounds."""


class ClusterState(NamedTuple):
    """What became of the request of a Gateway for cluster IPs."""

    ips: tuple[Ip, ...] = ()
    problem: str = ""
    """Why it lacks some, as a sentence."""
    unasked: int = 0
    """So many of the addresses, the last ones, it does not ask for: it keeps them until it has others."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decision depends on beside the Gateway."""

    networks: Sequence[IpNetwork]
    """Those of the ServiceCIDRs that give addresses."""
    is_taken: Callable[[Ip], bool]
    """Returns True for an address that somebody else is known to have."""
    taken: int
    """The number of such addresses, or more."""
    room: int
    """The namespace may have so many more; negative: it has too many."""
    most: int
    """It may have so many altogether."""
    full: Set[Family] = frozenset()
    """No address of these families is free, as has been found just now."""


class Decision(NamedTuple):
    """What a Gateway is to have."""

    ips: tuple[Ip, ...]
    takes: tuple[Ip, ...]
    """Those of them for which an IPAddress is to be created."""
    problem: str
    """Why it lacks some, as a sentence."""
    full: Set[Family] = frozenset()
    """The families of which no address is free."""
    unasked: int = 0
    """As ``ClusterState`` has it."""


class _Lacks(NamedTuple):
    """Why there is no address."""

    message: str
    full: Family | None = None


def decide(request: ClusterRequest, seed: int, held: Sequence[Ip], lost: Sequence[Ip], facts: Facts) -> Decision:
    """Return what a Gateway is to have. ``held`` are those that it has an IPAddress for, the first ones to be kept.

    It gets back those that it has ``lost``, as far as it can, and for each one that it cannot have it keeps one that it
    does not ask for any more. ``seed`` is a random number, the same for one Gateway: two operators that decide at once
    create the same IPAddress, and one of them finds it.
    """
    if request.only_kept:
        return Decision(tuple(held), (), "")
    has, spare = matched(request.families, [ip for ip in held if str(ip) not in request.static])
    gets = _Gets(held, spare, facts.room)
    for text in request.static:
        gets.judge(partial(_static, text, held, facts))
    back = [ip for ip in lost if ip not in held and not facts.is_taken(ip) and _is_usable(ip, facts.networks)]
    for number, (family, again) in enumerate(zip(request.families, has, strict=True)):
        options = (ip for ip in back if ip not in gets.found and gets.room > 0 and family in (None, ip.family))
        if (known := again or next(options, None)) is not None:
            gets.add(known)
        else:
            gets.judge(partial(_new, family, seed + number, gets.found, facts))
    lacks = gets.lacks
    # While one goes for another, the namespace has both, and must not keep both.
    most = len(lacks) if facts.room >= 0 else min(len(lacks), max(len(lost) - len(gets.found), 0))
    stays = spare[:most]
    full = frozenset(each.full for each in lacks if each.full is not None)
    problem = f"{lacks[0].message}{until_then(stays)}" if lacks else ""
    return Decision((*gets.found, *stays), tuple(gets.takes), problem, full, len(stays))


class _Gets:
    """What a Gateway gets in a decision, and lacks; of ``spare`` it gives up what its namespace may not have besides.

    The namespace may have ``room`` more.
    """

    def __init__(self, held: Sequence[Ip], spare: list[Ip], room: int) -> None:
        self.found: list[Ip] = []
        self.takes: list[Ip] = []
        self.lacks: list[_Lacks] = []
        self.room = room
        self._held = held
        self._spare = spare

    def add(self, ip: Ip) -> None:
        """Give it an address."""
        if ip not in self.found:
            self.found.append(ip)
        if ip not in self._held and ip not in self.takes:
            self.takes.append(ip)
            self.room -= 1

    def judge(self, ask: Callable[[int], Ip | _Lacks]) -> None:
        """Give it what is the answer with that much room, or note why there is none."""
        result = ask(self.room)
        if isinstance(result, _Lacks) and self._spare and self.room == 0 and isinstance(instead := ask(1), Ip):
            self._spare.pop()
            self.room, result = 1, instead
        if isinstance(result, _Lacks):
            self.lacks.append(result)
        else:
            self.add(result)


def matched(families: Iterable[Family | None], had: Iterable[Ip]) -> tuple[list[Ip | None], list[Ip]]:
    """Return which of the addresses that a Gateway has are those of these families, and the others of them."""
    found: list[Ip | None] = []
    remaining = sorted(had, key=lambda ip: FAMILIES.index(ip.family))
    for family in families:
        found.append(next((ip for ip in remaining if family in (None, ip.family)), None))
        remaining = [ip for ip in remaining if ip != found[-1]]
    return found, remaining


def _static(text: str, held: Sequence[Ip], facts: Facts, room: int) -> Ip | _Lacks:
    try:
        ip = ip_of(text)
    except ValueError as error:
        return _Lacks(f"spec.addresses: {error}")
    if ip in held:
        return ip
    if not _is_usable(ip, facts.networks):
        return _Lacks(f"spec.addresses: {ip} is not {_in_networks(ip.family, facts)}")
    if facts.is_taken(ip):
        return _Lacks(f"spec.addresses: {ip} is the cluster IP of something else (kubectl get ipaddress {ip})")
    return ip if room > 0 else _beyond_quota(facts)


def _new(family: Family | None, seed: int, found: Sequence[Ip], facts: Facts, room: int) -> Ip | _Lacks:
    """Return a free address, or why there is none."""
    lacks: list[_Lacks] = []
    for each in [family] if family is not None else FAMILIES:
        if not any(network.version == (6 if each == "ipv6" else 4) for network in facts.networks):
            lacks.append(_Lacks(f"no ServiceCIDR has {_NAMES[each]} addresses"))
        elif room <= 0:
            return _beyond_quota(facts)
        elif each not in facts.full and (ip := _free(each, seed, found, facts)) is not None:
            return ip
        else:
            lacks.append(_Lacks(f"no {_NAMES[each]} address is free {_in_networks(each, facts)}", each))
    return next((each for each in lacks if each.full is not None), lacks[0])


def _free(family: Family, seed: int, found: Sequence[Ip], facts: Facts) -> Ip | None:
    """Return an address that nobody is known to have: from a random one on, the first."""
    parts = [part for network in facts.networks for part in parts_of(network) if part.family == family]
    tries = facts.taken + len(found) + 1
    for part in sorted(parts, key=lambda each: each.lower):
        size = part.last - part.first + 1
        for step in range(min(size, tries)):
            ip = Ip(family, part.first + (seed + step) % size)
            if ip not in found and not facts.is_taken(ip):
                return ip
    return None


class Part(NamedTuple):
    """A part of a ServiceCIDR."""

    family: Family
    first: int
    last: int
    lower: bool
    """It is the one for addresses that people choose."""


def parts_of(network: IpNetwork) -> Iterator[Part]:
    """Yield the parts of a range, without those of no address."""
    usable = _usable(network)
    lower = 0
    if network.num_addresses > _LOWER_MIN:
        lower = min(max(network.num_addresses // _LOWER_SHARE, _LOWER_MIN), _LOWER_MAX)
    middle = usable.first + lower
    for first, last, is_lower in ((middle, usable.last, False), (usable.first, middle - 1, True)):
        if first <= last:
            yield Part(usable.family, first, last, is_lower)


def _usable(network: IpNetwork) -> AddressRange:
    """Return a range without the addresses of no Service: its first one, and the broadcast address of IPv4."""
    found = range_of_network(network)
    return found._replace(first=found.first + 1, last=found.last - (network.version == 4))


def _is_usable(ip: Ip, networks: Iterable[IpNetwork]) -> bool:
    ranges = map(_usable, networks)
    return any(each.family == ip.family and each.first <= ip.number <= each.last for each in ranges)


def _in_networks(family: Family, facts: Facts) -> str:
    found = [str(each) for each in facts.networks if each.version == (6 if family == "ipv6" else 4)]
    return f"in the ServiceCIDR{'s' if len(found) > 1 else ''} {some_of(found)}" if found else "in a ServiceCIDR"


def _beyond_quota(facts: Facts) -> _Lacks:
    message = (
        f"the Gateways of the namespace may have {facts.most} cluster IPs{', and have them' if facts.most else ''}"
    )
    return _Lacks(f"{message} (gateway.namespaceClusterIPs)")


def seed_of(uid: str) -> int:
    """Return the random number of a Gateway."""
    return int(names.digest(uid, characters=16), 16)
