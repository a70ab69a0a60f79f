"""What the status of a node tells of the addresses that it announces, and of those that it does not. Pure: no I/O."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final, Literal

from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.announce.ownership.address import Act
from kube_nftlb.announce.ownership.gate import Reason
from kube_nftlb.api.node import (
    ANNOUNCED_SHOWN_MAX,
    BLOCKED_ADDRESSES_MAX,
    BLOCKED_SHOWN_MAX,
    BlockedAddresses,
    NodeAddresses,
)

_MESSAGE_MAX: Final = 512


AddressState = Literal["announced", "in_use", "no_link", "blocked", "standby"]


def merged(held: Mapping[str, Act], routed: Mapping[str, Act]) -> Mapping[str, Act]:
    """Return what the node does about each address: on a segment, by BGP, or both."""
    return {**routed, **{ip: act for ip, act in held.items() if act.answer or not routed.get(ip, act).answer}}


def counts(acts: Mapping[str, Act], pools: Pools) -> Counter[tuple[str, str]]:
    """Return the number of addresses by the name of their pool, "" if it is gone, and by AddressState."""
    found = ((pools.of(ip), _state(act)) for ip, act in acts.items())
    return Counter((pool.metadata.name if pool is not None else "", state) for pool, state in found)


def _state(act: Act) -> AddressState:
    if act.answer:
        return "announced"
    if act.used_by:
        return "in_use"
    if act.why_not is None:
        return "standby"
    return "no_link" if act.why_not.reason is Reason.NO_LINK else "blocked"


def summary(acts: Mapping[str, Act], *, pending: bool) -> NodeAddresses:
    """Return it. While changes are ``pending``, it is no news that some are not programmed."""
    announced = sorted(ip for ip, act in acts.items() if act.answer)
    blocked: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for ip in sorted(acts):
        reason, message = _why_not(acts[ip])
        if reason and not (pending and reason == Reason.NOT_PROGRAMMED):
            blocked[reason, message].append(ip)
    most = sorted(blocked.items(), key=lambda entry: (-len(entry[1]), entry[0]))[:BLOCKED_SHOWN_MAX]
    return NodeAddresses(
        number=len(announced),
        announced=tuple(announced[:ANNOUNCED_SHOWN_MAX]),
        blocked=tuple(
            BlockedAddresses(
                reason=reason,
                message=message[:_MESSAGE_MAX],
                number=len(ips),
                addresses=tuple(ips[:BLOCKED_ADDRESSES_MAX]),
            )
            for (reason, message), ips in sorted(most)
        ),
    )


def _why_not(act: Act) -> tuple[str, str]:
    if act.used_by:
        return Reason.ADDRESS_IN_USE, f"another host has the address, at {act.used_by}"
    return (act.why_not.reason, act.why_not.message) if act.why_not is not None else ("", "")
