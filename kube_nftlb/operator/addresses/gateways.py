"""Decide which addresses a Gateway has, and why it lacks some. Pure.

An address that it has stays, whatever becomes of its pool, as long as it asks for none itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kube_nftlb.api.address_ranges import Ip, ip_of
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.gateway.gateway import Gateway
from kube_nftlb.operator.addresses.allocate import Refusal, any_free, asked, loses
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.cluster_ips import ClusterState
from kube_nftlb.operator.addresses.requests import GatewayKey, Request
from kube_nftlb.operator.gateway.objects import CLUSTER, SENTINEL, AddressState
from kube_nftlb.operator.gateway.wanted import AddressRequest

_READ_MAX = 16
"""As many addresses as the CustomResourceDefinition admits."""


def request_of(key: GatewayKey, gateway: Gateway, wanted: AddressRequest) -> Request:
    """Return what a Gateway asks for, as the book has it: it shares addresses with nobody."""
    return Request(
        key,
        (gateway.metadata.created_s, key),
        tuple(sorted(gateway.metadata.labels.items())),
        (),
        all_families=False,
        with_class=True,
        ports=frozenset(),
        selector=(),
        local=False,
        pool=wanted.pool,
    )


def listed(status: Mapping[str, Any]) -> Iterator[Ip]:
    """Yield the addresses in the status of a Gateway; who wrote them is not known."""
    found = status.get("addresses")
    for each in (found if isinstance(found, list) else [])[:_READ_MAX]:
        try:
            yield ip_of(str(each["value"]))
        except (ValueError, TypeError, KeyError):
            continue


def regained(request: Request, ips: Iterable[Ip], book: Book) -> tuple[Ip, ...]:
    """Return what a Gateway has, with those of these addresses that it could get, too, if it asked for them now."""
    found: list[Ip] = []
    had = book.status(request.key).ips
    for ip in dict.fromkeys(ips):
        if ip not in had and not isinstance(asked(request, ip, book, found), Refusal):
            found.append(ip)
    return (*had, *found)


def allocate(request: Request, wanted: AddressRequest, book: Book) -> tuple[tuple[Ip, ...], AddressState]:
    """Return the addresses of pools that a Gateway is to have, and what to say of them.

    ``book`` has it and all others, and gets what is new at once: so the next one is another.
    """
    had = [ip for ip in book.has(request.key) if not loses(request, ip, book)]
    if wanted.only_kept:
        return tuple(had), AddressState(tuple(map(str, had)))
    static, why_not = _static(request, wanted.static, had, book)
    others, lacking = _others(request, wanted.families, [ip for ip in had if ip not in static], book)
    found = tuple(dict.fromkeys((*static, *others)))
    texts = tuple(map(str, found))
    of_tests = tuple((str(ip), SENTINEL) for ip in others[max(len(others) - wanted.sentinels, 0) :])
    if why_not:
        return found, AddressState(texts, "AddressNotUsable", why_not, of_tests)
    return found, AddressState(texts, "AddressNotAssigned" if lacking else "", lacking, of_tests)


def joined(of_pools: AddressState, inside: ClusterState | None) -> AddressState | None:
    """Return what a Gateway has altogether; None if it has nothing, and its cluster IPs are not decided yet."""
    if inside is None:
        if not of_pools.addresses:
            return None
        inside = ClusterState((), "its cluster IP is not assigned yet")
    ips = tuple(map(str, inside.ips))
    return AddressState(
        (*of_pools.addresses, *ips),
        of_pools.problem or ("AddressNotAssigned" if inside.problem else ""),
        of_pools.message or inside.problem,
        (*of_pools.routability, *((ip, CLUSTER) for ip in ips)),
    )


def _static(request: Request, static: Iterable[str], had: Sequence[Ip], book: Book) -> tuple[list[Ip], str]:
    found: list[Ip] = []
    problem = ""
    for text in static:
        try:
            ip = ip_of(text)
        except ValueError as error:
            problem = problem or f"spec.addresses: {error}"
            continue
        result = ip if ip in had else asked(request, ip, book, ())
        if isinstance(result, Refusal):
            problem = problem or f"spec.addresses: {result.message}"
        elif ip not in found:
            found.append(ip)
            _note(request, ip, book)
    return found, problem


def _others(request: Request, families: Sequence[Family | None], had: Iterable[Ip], book: Book) -> tuple[list[Ip], str]:
    """Return an address for each of these families, and why some are missing."""
    found: list[Ip] = []
    problem = ""
    remaining = sorted(had, key=lambda ip: FAMILIES.index(ip.family))
    for family in families:
        has = next((ip for ip in remaining if family in (None, ip.family)), None)
        if has is not None:
            remaining.remove(has)
        result = has or _new(request, family, book)
        if isinstance(result, Refusal):
            problem = problem or result.message
            continue
        found.append(result)
        _note(request, result, book)
    return found, problem


def _new(request: Request, family: Family | None, book: Book) -> Ip | Refusal:
    """Return an address, or why there is none: without a family, where there are pools."""
    refusals: list[Refusal] = []
    for each in [family] if family is not None else FAMILIES:
        result = any_free(request, each, book, ())
        if not isinstance(result, Refusal):
            return result
        refusals.append(result)
    return next((each for each in refusals if each.reason != "NoPool"), refusals[0])


def _note(request: Request, ip: Ip, book: Book) -> None:
    if ip not in book.has(request.key):
        book.assign(request.key, (*book.assigned(request.key), ip))
