"""Decide which addresses a Gateway has, and why it lacks some. Pure.

An address that it has stays, whatever becomes of its pool, as long as it asks for none itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kube_nftlb.api.address_ranges import Ip, ip_of
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.gateway.gateway import Gateway
from kube_nftlb.operator.addresses.allocate import Refusal, any_free, asked, loses
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.addresses.cluster_ips import ClusterState, matched
from kube_nftlb.operator.addresses.requests import GatewayKey, Request
from kube_nftlb.operator.gateway.addresses import ADDRESSES_MAX
from kube_nftlb.operator.gateway.objects import CLUSTER, SENTINEL, AddressProblem, AddressState
from kube_nftlb.operator.gateway.wanted import AddressRequest
from kube_nftlb.prose import until_then


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
    for each in (found if isinstance(found, list) else [])[:ADDRESSES_MAX]:
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

    For each one that it cannot have, it keeps one that it has, if there is one that it does not ask for any more.

    ``book`` has it and all others, and gets what is new at once: so the next one is another.
    """
    had = [ip for ip in book.has(request.key) if not loses(request, ip, book)]
    if wanted.only_kept:
        return tuple(had), AddressState(tuple(map(str, had)))
    has, spare = matched(wanted.families, [ip for ip in had if str(ip) not in wanted.static])
    gets = _Gets(request, book, spare)
    static = _static(gets, wanted.static, had)
    why_not = gets.problem
    others = _others(gets, wanted.families, has)
    found = tuple(dict.fromkeys((*static, *others)))
    stays = spare[: gets.refusals]
    of_tests = tuple((str(ip), SENTINEL) for ip in others[max(len(others) - wanted.sentinels, 0) :])
    problem: AddressProblem = "AddressNotUsable" if why_not else "AddressNotAssigned" if gets.problem else ""
    ips = (*found, *stays)
    return ips, AddressState(tuple(map(str, ips)), problem, f"{gets.problem}{until_then(stays)}", of_tests, len(stays))


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
        of_pools.unasked + inside.unasked,
    )


class _Gets:
    """What a Gateway gets in a decision, and how often it is refused; of ``spare`` it gives up what a quota takes."""

    def __init__(self, request: Request, book: Book, spare: list[Ip]) -> None:
        self.refusals = 0
        self.problem = ""
        """Why it lacks something, as a sentence; of the first thing that it lacks."""
        self._request = request
        self._book = book
        self._spare = spare
        self._gone: list[Ip] = []

    def refuse(self, message: str) -> None:
        """Note that it lacks something."""
        self.refusals += 1
        self.problem = self.problem or message

    def named(self, ip: Ip) -> Ip | Refusal:
        """Return an address, if it can have it."""
        return self._get(lambda less: asked(self._request, ip, self._book, (), less))

    def new(self, family: Family) -> Ip | Refusal:
        """Return an address of a family, or why there is none."""
        return self._get(lambda less: any_free(self._request, family, self._book, (), less))

    def _get(self, ask: Callable[[Sequence[Ip]], Ip | Refusal]) -> Ip | Refusal:
        result = ask(self._gone)
        if isinstance(result, Refusal):
            for each in self._spare:
                instead = ask([*self._gone, each])
                if not isinstance(instead, Refusal):
                    self._spare.remove(each)
                    self._gone.append(each)
                    result = instead
                    break
        if not isinstance(result, Refusal) and result not in self._book.has(self._request.key):
            self._book.assign(self._request.key, (*self._book.assigned(self._request.key), result))
        return result


def _static(gets: _Gets, static: Iterable[str], had: Sequence[Ip]) -> list[Ip]:
    found: list[Ip] = []
    for text in static:
        try:
            ip = ip_of(text)
        except ValueError as error:
            gets.refuse(f"spec.addresses: {error}")
            continue
        result = ip if ip in had else gets.named(ip)
        if isinstance(result, Refusal):
            gets.refuse(f"spec.addresses: {result.message}")
        elif ip not in found:
            found.append(ip)
    return found


def _others(gets: _Gets, families: Iterable[Family | None], has: Iterable[Ip | None]) -> list[Ip]:
    """Return an address for each of these families, those that it ``has`` first."""
    found: list[Ip] = []
    for family, ip in zip(families, has, strict=True):
        result = ip or _new(gets, family)
        if isinstance(result, Refusal):
            gets.refuse(result.message)
        else:
            found.append(result)
    return found


def _new(gets: _Gets, family: Family | None) -> Ip | Refusal:
    """Return an address, or why there is none: without a family, where there are pools."""
    refusals: list[Refusal] = []
    for each in [family] if family is not None else FAMILIES:
        result = gets.new(each)
        if not isinstance(result, Refusal):
            return result
        refusals.append(result)
    return next((each for each in refusals if each.reason != "NoPool"), refusals[0])
