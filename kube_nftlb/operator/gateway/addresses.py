"""The addresses that a Gateway asks for, and how they are served."""

from typing import NamedTuple, get_args

from kube_nftlb import names
from kube_nftlb.api.base import FAMILIES, Family
from kube_nftlb.api.gateway.gateway import Gateway
from kube_nftlb.api.values import TrafficPolicy
from kube_nftlb.operator.gateway.listeners import Problem
from kube_nftlb.operator.gateway.wanted import AddressRequest

_TEXT_MAX = 253


class Asked(NamedTuple):
    """What a Gateway asks for, or why it gets nothing: because its Accepted or its Programmed is false."""

    request: AddressRequest | None
    unsupported: Problem | None = None
    """Accepted is false: no address of this kind exists here."""
    unclear: str = ""
    """Programmed is false, because this is wrong with what it asks for, as a sentence."""


def asked(gateway: Gateway) -> Asked:
    """Return what a Gateway asks for."""
    addresses = gateway.spec.addresses
    kinds = {each.type or "IPAddress" for each in addresses} - {"IPAddress"}
    if kinds:
        message = f"spec.addresses: the type {min(kinds)[:253]} is not supported, only IPAddress is"
        return Asked(None, Problem("UnsupportedAddress", message))
    if any(each.routability for each in addresses):
        message = "spec.addresses: routability is not supported, addresses are those of NftlbAddressPools"
        return Asked(None, Problem("UnsupportedAddress", message))
    static = tuple(each.value for each in addresses if each.value)
    if static and len(static) < len(addresses):
        message = "spec.addresses: either all addresses must have a value, or none"
        return Asked(None, unclear=message)
    try:
        pool, families = _pool(gateway), _families(gateway)
    except ValueError as error:
        return Asked(None, unclear=str(error))
    return Asked(AddressRequest(static, () if static else families, pool))


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
