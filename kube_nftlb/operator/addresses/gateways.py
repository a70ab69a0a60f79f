"""Decide which addresses a Gateway has, and why it lacks some. Pure.

An address that it has stays, whatever becomes of its pool, as long as it asks for none itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.gateway.gateway import Gateway
from kube_nftlb.operator.addresses.allocate import Refusal, any_free, asked, keeps, loses
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.ranges import Ip, ip_of
from kube_nftlb.operator.addresses.requests import GatewayKey, Request
from kube_nftlb.operator.gateway.objects import AddressState
from kube_nftlb.operator.gateway.wanted import AddressRequest

_READ_MAX = 16
"""As many addresses as the CustomResourceDefinition admits."""


def request_of(key: GatewayKey, gateway: Gateway, wanted: AddressRequest) -> Request:
    """Return what a Gateway asks for, as the book has it: it shares addresses with nobody."""
    return Request(
        key,
        (gateway.metadata.created_s, key),
        tuple(sorted(gateway.metadata.labels.items())),
        wanted.families,
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
    """Return the addresses that a Gateway is to have, and what to say of them. ``book`` has it and all others."""
    if wanted.only_kept:
        found, problem = tuple(ip for ip in book.has(request.key) if not loses(request, ip, book)), ""
    elif wanted.static:
        found, problem = _static(request, wanted, book)
    else:
        found, problem = _of_families(request, wanted, book)
    texts = tuple(map(str, found))
    if not problem:
        return found, AddressState(texts)
    return found, AddressState(texts, "AddressNotUsable" if wanted.static else "AddressNotAssigned", problem)


def _static(request: Request, wanted: AddressRequest, book: Book) -> tuple[tuple[Ip, ...], str]:
    found: dict[Ip, None] = {}
    problem = ""
    for text in wanted.static:
        try:
            ip = ip_of(text)
        except ValueError as error:
            problem = problem or f"spec.addresses: {error}"
            continue
        keeping = ip in book.has(request.key) and not loses(request, ip, book)
        result = ip if keeping else asked(request, ip, book, list(found))
        if isinstance(result, Refusal):
            problem = problem or f"spec.addresses: {result.message}"
        else:
            found[ip] = None
    return tuple(found), problem


def _of_families(request: Request, wanted: AddressRequest, book: Book) -> tuple[tuple[Ip, ...], str]:
    found: list[Ip] = []
    refusals: list[Refusal] = []
    had = {family: ip for family in wanted.families or FAMILIES if (ip := keeps(request, family, book)) is not None}
    for family in wanted.families or tuple(had) or FAMILIES:
        result = had.get(family) or any_free(request, family, book, [ip for ip in found if ip not in had.values()])
        if isinstance(result, Refusal):
            refusals.append(result)
            continue
        found.append(result)
        if not wanted.families:
            # One is enough.
            return (result,), ""
    return tuple(found), _message(refusals, wanted.families)


def _message(refusals: list[Refusal], families: tuple[Family, ...]) -> str:
    """Return why addresses are missing: without families, where there are pools."""
    if not refusals:
        return ""
    with_pool = [each for each in refusals if each.reason != "NoPool"]
    return (refusals if families or not with_pool else with_pool)[0].message
