"""The addresses that a Gateway asks for, and how they are served."""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final, NamedTuple, get_args

from kube_nftlb import names
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.gateway.gateway import Gateway, GatewayAddress
from kube_nftlb.api.values import TrafficPolicy
from kube_nftlb.operator.gateway.listeners import Problem
from kube_nftlb.operator.gateway.objects import CLUSTER, SENTINEL
from kube_nftlb.operator.gateway.wanted import AddressRequest, ClusterRequest

ADDRESSES_MAX: Final = 16
"""As many addresses as the CustomResourceDefinition admits, also in a status."""
_TEXT_MAX = 253
NOTHING_NEW: Final = AddressRequest(families=(), only_kept=True, cluster=ClusterRequest(only_kept=True))
"""What a Gateway asks for that gets nothing new."""


class Asked(NamedTuple):
    """What a Gateway asks for, or why it gets nothing new: because its Accepted or its Programmed is false."""

    request: AddressRequest
    unsupported: Problem | None = None
    """Accepted is false: that is so, or something that it asks for does not exist here."""
    unclear: str = ""
    """Programmed is false, because this is wrong with what it asks for, as a sentence."""


def asked(gateway: Gateway, refused: Problem | None = None) -> Asked:
    """Return what a Gateway asks for; ``refused`` is why it is not accepted, whatever that is."""
    found = _asked(gateway)
    unsupported = refused or _parameters(gateway) or found.unsupported
    return found if unsupported is None else found._replace(request=NOTHING_NEW, unsupported=unsupported)


def _parameters(gateway: Gateway) -> Problem | None:
    infrastructure = gateway.spec.infrastructure
    if infrastructure is None or infrastructure.parameters_ref is None:
        return None
    return Problem("InvalidParameters", "spec.infrastructure.parametersRef is not supported")


def _asked(gateway: Gateway) -> Asked:
    addresses = gateway.spec.addresses
    kinds = {each.type or "IPAddress" for each in addresses} - {"IPAddress"}
    if kinds:
        message = f"spec.addresses: the type {min(kinds)[:253]} is not supported, only IPAddress is"
        return Asked(NOTHING_NEW, Problem("UnsupportedAddress", message))
    try:
        _check_routability(addresses)
        pool, families = _pool(gateway), _families(gateway)
    except ValueError as error:
        return Asked(NOTHING_NEW, unclear=str(error))
    if not addresses:
        return Asked(AddressRequest(families=families or (None,), pool=pool))
    # What is said of the last ones is theirs whichever addresses they get.
    of_pools = sorted((each for each in addresses if each.routability != CLUSTER), key=lambda each: each.routability)
    inside = [each for each in addresses if each.routability == CLUSTER]
    sentinels = sum(each.routability == SENTINEL for each in of_pools)
    cluster = ClusterRequest(_static(inside), _others(inside, families))
    request = AddressRequest(_static(of_pools), _others(of_pools, families), pool, False, sentinels, cluster)
    number = sum(len(each.static) + len(each.families) for each in (request, cluster))
    if number > ADDRESSES_MAX:
        annotation = f"with the annotation {names.ANNOTATION_GATEWAY_FAMILIES}"
        message = f"spec.addresses: {annotation} it asks for {number} addresses, and may have {ADDRESSES_MAX}"
        return Asked(NOTHING_NEW, unclear=message)
    return Asked(request)


def _check_routability(addresses: Sequence[GatewayAddress]) -> None:
    """Raise ValueError with a sentence if addresses have a routability that does not exist here."""
    if strange := {each.routability for each in addresses} - {"", CLUSTER, SENTINEL}:
        named = min(strange)[:_TEXT_MAX]
        raise ValueError(f"spec.addresses: the routability {named} is not supported, only Cluster is")
    if any(each.value and each.routability == SENTINEL for each in addresses):
        raise ValueError(f"spec.addresses: with the routability {SENTINEL} an address cannot have a value")


def _static(addresses: Sequence[GatewayAddress]) -> tuple[str, ...]:
    return tuple(each.value for each in addresses if each.value)


def _others(addresses: Sequence[GatewayAddress], families: Sequence[Family]) -> tuple[Family | None, ...]:
    """Return the families of addresses without a value: those of the annotation, each once at least, if it has any."""
    number = sum(not each.value for each in addresses)
    if not number:
        return ()
    return tuple(islice(cycle(families), max(number, len(families)))) if families else (None,) * number


def _pool(gateway: Gateway) -> str:
    text = gateway.metadata.annotations.get(names.ANNOTATION_GATEWAY_POOL, "").strip()
    if len(text) > _TEXT_MAX:
        raise ValueError(f"the annotation {names.ANNOTATION_GATEWAY_POOL} has more than {_TEXT_MAX} characters")
    return text


def _families(gateway: Gateway) -> tuple[Family, ...]:
    """Return the families that the annotation names, in its order. Raises ValueError with a sentence."""
    text = gateway.metadata.annotations.get(names.ANNOTATION_GATEWAY_FAMILIES, "")
    words = [word.strip() for word in text[:_TEXT_MAX].split(",")] if text.strip() else []
    found = tuple(family for word in words for family in FAMILIES if family == word)
    if len(found) < len(words) or len(set(found)) < len(found):
        raise ValueError(
            f"the annotation {names.ANNOTATION_GATEWAY_FAMILIES} must be ipv4, ipv6, or both with a comma between them"
        )
    return found


def traffic_policy(gateway: Gateway) -> tuple[TrafficPolicy, str]:
    """Return what the annotation says, and what is wrong with it, as a sentence: then it is Cluster."""
    text = gateway.metadata.annotations.get(names.ANNOTATION_GATEWAY_TRAFFIC_POLICY, "").strip() or "Cluster"
    for policy in get_args(TrafficPolicy):
        if text == policy:
            return policy, ""
    return "Cluster", f"the annotation {names.ANNOTATION_GATEWAY_TRAFFIC_POLICY} must be Cluster or Local"
