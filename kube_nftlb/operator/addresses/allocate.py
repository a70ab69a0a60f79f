"""Decide which addresses a Service has, and why it lacks some. Pure.

An address that it has stays, whatever becomes of its pool, unless it asks for another one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kube_nftlb.api.address_ranges import Ip
from kube_nftlb.api.base import Family
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.pools import Pool
from kube_nftlb.operator.addresses.requests import EVERY_PORT, GatewayKey, Holder, Request
from kube_nftlb.prose import counted, some_of
from kube_nftlb.reasons import AddressReason

_NAMES: Final[dict[Family, str]] = {"ipv4": "IPv4", "ipv6": "IPv6"}
SHARED_MAX: Final = 64
"""How many Services get one address: all of them are looked at whenever one changes."""
_SHARING_MAX: Final = 1024
"""How many Services with the same key are asked for an address to share."""


class Outcome(NamedTuple):
    """What a Service is to have."""

    addresses: tuple[Ip, ...]
    reason: AddressReason
    message: str
    waits: bool = False
    """It may get more once something is freed."""
    leave: bool = False
    """Its addresses are another program's: its status is not written."""


class Refusal(NamedTuple):
    """Why an address cannot be had."""

    reason: AddressReason
    message: str
    asked: bool = False
    """It is about an address that the Service asks for itself."""


def allocate(request: Request, book: Book) -> Outcome:
    """Return what a Service is to have. ``book`` has it and all others."""
    if (foreign := _foreign(request, book)) is not None:
        return foreign
    if not request.families:
        return Outcome((), "NotAllowed", "the Service has no IP family yet (spec.ipFamilies)")
    had: dict[Family, Ip] = {}
    found: list[Ip] = []
    less: list[Ip] = []
    refusals: list[Refusal] = []
    for family in request.families:
        gone = less
        if (has := keeps(request, family, book)) is not None:
            had[family] = has
            if not _is_shared(request, has, book):
                gone = [*less, has]
        new = _new(request, family, has, book, found, gone)
        if isinstance(new, Ip):
            found.append(new)
            less = gone
        elif new is not None:
            refusals.append(new)
    if refusals and request.all_families:
        # One of a pair is of no use alone. What clients may know already stays.
        found = []
    gets = had | {ip.family: ip for ip in found}
    return _outcome(request, tuple(gets[family] for family in request.families if family in gets), refusals, book)


def _new(
    request: Request, family: Family, has: Ip | None, book: Book, also: Sequence[Ip], less: Sequence[Ip]
) -> Ip | Refusal | None:
    """Return another address than a Service ``has``, or why it gets none that it asks for; None if it asks for none.

    It gets ``also`` others in the same decision, and for this one it gives up ``less``.
    """
    wanted = next((ip for ip in request.addresses if ip.family == family), None)
    if request.problem:
        return Refusal("NotAllowed", request.problem, asked=True)
    if wanted is not None:
        return asked(request, wanted, book, also, less) if wanted != has else None
    return any_free(request, family, book, also, less) if has is None else None


def _outcome(request: Request, addresses: tuple[Ip, ...], refusals: list[Refusal], book: Book) -> Outcome:
    named = " and ".join(_named(ip, book) for ip in addresses) + _cannot_share(request, addresses, book)
    if not refusals:
        return Outcome(addresses, "Assigned", named)
    refusal = min(refusals, key=lambda each: not each.asked)
    if addresses and not refusal.asked and not request.all_families:
        # PreferDualStack: one family is enough.
        return Outcome(addresses, "Assigned", f"{named}; {refusal.message}", waits=True)
    ending = f"; the Service keeps {named}" if addresses else ""
    return Outcome(addresses, refusal.reason, refusal.message + ending, waits=True)


def _named(ip: Ip, book: Book) -> str:
    pool = book.pool_of(ip)
    return (
        f"{ip} of the address pool {pool.name}" if pool is not None else f"{ip}, which is in no accepted address pool"
    )


def _cannot_share(request: Request, addresses: tuple[Ip, ...], book: Book) -> str:
    """Return why a Service would not get one of its addresses by its sharing key now, as the end of a sentence."""
    found = ((ip, _unshareable(request, ip, book)) for ip in addresses)
    return "".join(f"; another {why[0]} has {ip}{why[1]}" for ip, why in found if why is not None and why[1])


def _foreign(request: Request, book: Book) -> Outcome | None:
    """Return an outcome for a Service without a class whose addresses another program has given."""
    given = book.status(request.key)
    strange = [ip for ip in given.ips if book.pool_of(ip) is None]
    if request.with_class or given.ours or not (strange or given.others):
        return None
    what = str(strange[0]) if strange else "a name, or an address of another kind"
    message = f"status.loadBalancer has {what}, which is in no accepted address pool: it is left to who wrote it"
    return Outcome(given.ips, "NotAllowed", message, waits=True, leave=True)


def keeps(request: Request, family: Family, book: Book) -> Ip | None:
    """Return the address that a Service has and keeps."""
    given, assigned = book.status(request.key), book.assigned(request.key)
    for ip in (*assigned, *given.ips):
        known = ip in assigned or given.ours or book.pool_of(ip) is not None
        if ip.family == family and known and not loses(request, ip, book):
            return ip
    return None


def loses(request: Request, ip: Ip, book: Book) -> bool:
    """Return true if an address is an older Service's, with which it cannot be shared.

    It happens only if somebody else writes statuses: ports that change later move no address.
    """
    others = filter(None, map(book.request, book.at(ip, request.key)))
    return any(other.rank < request.rank and not _coexist(request, other) for other in others)


def _coexist(one: Request, other: Request) -> bool:
    if one.key.namespace != other.key.namespace or GatewayKey in map(type, (one.key, other.key)):
        return False
    return bool(one.sharing_key and one.sharing_key == other.sharing_key) or one.port_of_both(other) is None


def asked(request: Request, ip: Ip, book: Book, also: Sequence[Ip], less: Sequence[Ip] = ()) -> Ip | Refusal:
    """Return the address that a Service asks for, or why it does not get it. For it, it gives up ``less``."""
    pool = book.pool_of(ip)
    if pool is None:
        return Refusal("NoPool", f"no accepted address pool has {ip}", asked=True)
    if request.pool and pool.name != request.pool:
        return Refusal("NotAllowed", f"{ip} is in the address pool {pool.name}, not in {request.pool[:63]}", asked=True)
    if not _admits(pool, request, book):
        return Refusal(
            "NotAllowed",
            f"the address pool {pool.name}, which has {ip}, does not select this {_kind(request.key)}",
            asked=True,
        )
    if not book.is_assignable(ip):
        return Refusal("NotAllowed", f"{ip} is reserved in the address pool {pool.name}", asked=True)
    if (why := _unshareable(request, ip, book)) is not None:
        return Refusal("AddressTaken", f"another {why[0]} has {ip}{why[1]}", asked=True)
    return _beyond_quota(request, pool, book, also, less, ip) or ip


def any_free(request: Request, family: Family, book: Book, also: Sequence[Ip], less: Sequence[Ip] = ()) -> Ip | Refusal:
    """Return an address of a family, or why there is none.

    It gets ``also`` others in the same decision, and gives up ``less``.
    """
    pools = [pool for pool in book.accepted if pool.has(family) and _offers(pool, request, book)]
    if not pools:
        return _no_pool(request, family, book)
    for shared in _shared(request, family, book):
        if book.pool_of(shared) in pools and _unshareable(request, shared, book) is None:
            return shared
    refusals = []
    for pool in pools:
        refusal = _beyond_quota(request, pool, book, also, less)
        if refusal is None and (ip := book.first_free(pool, family)) is not None:
            return ip
        refusals.append(refusal)
    exhausted = [pool.name for pool, refusal in zip(pools, refusals, strict=True) if refusal is None]
    if exhausted:
        what = f"the address pool{'s' if len(exhausted) > 1 else ''} {some_of(exhausted)}"
        return Refusal("PoolExhausted", f"no {_NAMES[family]} address is free in {what}")
    return next(filter(None, refusals))


def _no_pool(request: Request, family: Family, book: Book) -> Refusal:
    name = request.pool[:63]
    if not request.pool:
        return Refusal(
            "NoPool", f"no accepted address pool with {_NAMES[family]} addresses selects this {_kind(request.key)}"
        )
    if request.pool not in book.pools:
        return Refusal("NoPool", f"there is no address pool {name}")
    if request.pool in book.problems:
        return Refusal("NoPool", f"the address pool {name} is not accepted")
    if not book.pools[request.pool].has(family):
        return Refusal("NoPool", f"the address pool {name} has no {_NAMES[family]} addresses")
    return Refusal("NotAllowed", f"the address pool {name} does not select this {_kind(request.key)}")


def _offers(pool: Pool, request: Request, book: Book) -> bool:
    wanted = pool.name == request.pool if request.pool else pool.spec is not None and pool.spec.auto_assign
    return wanted and _admits(pool, request, book)


def _admits(pool: Pool, request: Request, book: Book) -> bool:
    return pool.admits(dict(request.labels), book.namespaces.get(request.key.namespace))


def _beyond_quota(
    request: Request, pool: Pool, book: Book, also: Sequence[Ip], less: Sequence[Ip], ip: Ip | None = None
) -> Refusal | None:
    """Return a refusal if the namespace has as many addresses of a pool as it may; ``ip`` is one that is shared."""
    most = pool.spec.addresses_per_namespace if pool.spec is not None else None
    # One that it shares counts already.
    more = [each for each in also if not _is_shared(request, each, book)]
    has = book.of_namespace(pool, request.key.namespace)
    has += sum(book.pool_of(each) is pool for each in more) - sum(book.pool_of(each) is pool for each in less)
    if most is None or has < most or (ip is not None and book.at(ip, request.key)):
        return None
    addresses = counted(most, "address", "addresses")
    message = f"the namespace may have {addresses} of the address pool {pool.name}, and has as many"
    return Refusal("NotAllowed", f"{message} (addressesPerNamespace)", asked=ip is not None)


def _is_shared(request: Request, ip: Ip, book: Book) -> bool:
    """Return true if another of the same namespace has an address, too."""
    return any(other.namespace == request.key.namespace for other in book.at(ip, request.key))


def _kind(key: Holder) -> str:
    return "Gateway" if isinstance(key, GatewayKey) else "Service"


def _shared(request: Request, family: Family, book: Book) -> list[Ip]:
    """Return the addresses of Services with the same sharing key, each once."""
    others = [other for other in book.sharing(request)[:_SHARING_MAX] if other != request.key]
    return list(dict.fromkeys(ip for other in others for ip in book.has(other) if ip.family == family))


def _unshareable(request: Request, ip: Ip, book: Book) -> tuple[str, str] | None:
    """Return what has an address, and why it cannot be shared, as the end of a sentence; None if it can."""
    for key in (others := book.at(ip, request.key)):
        other = book.request(key)
        if other is None or not _same_key(request, other):
            return _kind(key), ""
        if len(others) >= SHARED_MAX:
            return "Service", f", which {SHARED_MAX} Services share already, as many as may"
        if (shared := request.port_of_both(other)) is not None:
            protocol, port = shared
            what = "every port of one of them" if shared == EVERY_PORT else f"the port {port}/{protocol}"
            return "Service", f", and with the same sharing key also {what}"
        if (request.local or other.local) and request.selector != other.selector:
            why = "with externalTrafficPolicy Local both need the same endpoints"
            return "Service", f" with the same sharing key, but another selector: {why}"
    return None


def _same_key(one: Request, other: Request) -> bool:
    """Return true if both agree to share: a Service of another namespace, whose key can be guessed, never does."""
    return one.key.namespace == other.key.namespace and bool(one.sharing_key) and one.sharing_key == other.sharing_key
