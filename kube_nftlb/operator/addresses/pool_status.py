"""The status of an NftlbAddressPool. Pure."""

from typing import Literal

from kube_nftlb.api.address_pool import COUNT_MAX, AddressPoolStatus, FamilyCounts
from kube_nftlb.api.base import FAMILIES, Condition, Family
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.pools import Pool
from kube_nftlb.reasons import PoolReason


def status(pool: Pool, book: Book, services: int, now: str) -> AddressPoolStatus:
    """Return the status of a pool of which ``services`` have addresses; ``now`` is the time of what changes."""
    why = book.problems.get(pool.name)
    if why is not None:
        accepted = _condition(pool, "Accepted", "Invalid", why, now)
        return _with(pool, 0, FamilyCounts(), FamilyCounts(), (accepted,))
    accepted = _condition(pool, "Accepted", "Valid", "Services can have its addresses", now)
    full = [family for family in FAMILIES if pool.has(family) and book.free(pool, family) <= 0]
    message = f"no {' and no '.join('IPv4' if each == 'ipv4' else 'IPv6' for each in full)} address is free"
    reason: PoolReason = "PoolExhausted" if full else "AddressesFree"
    free = _condition(pool, "AddressesFree", reason, message if full else "Services can get addresses", now)
    return _with(pool, services, _counts(pool, book, "ipv4"), _counts(pool, book, "ipv6"), (accepted, free))


def _with(
    pool: Pool, services: int, ipv4: FamilyCounts, ipv6: FamilyCounts, conditions: tuple[Condition, ...]
) -> AddressPoolStatus:
    generation = pool.metadata.generation
    return AddressPoolStatus(
        observed_generation=generation, services=services, ipv4=ipv4, ipv6=ipv6, conditions=conditions
    )


def _counts(pool: Pool, book: Book, family: Family) -> FamilyCounts:
    size, used, free = pool.size(family), book.used(pool, family), book.free(pool, family)
    return FamilyCounts(size=min(size, COUNT_MAX), used=used, free=min(max(free, 0), COUNT_MAX))


def _condition(pool: Pool, kind: str, reason: PoolReason, message: str, now: str) -> Condition:
    status: Literal["True", "False"] = "True" if reason in ("Valid", "AddressesFree") else "False"
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        observed_generation=pool.metadata.generation,
        last_transition_time=Condition.since(pool.status.conditions, kind, status, now),
    )
