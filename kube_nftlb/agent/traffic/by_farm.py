"""The traffic of farms in a report: the farm on each listener, and the sums of each farm. Pure."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.values import Protocol
from kube_nftlb.netfilter.traffic.report import ListenerCounts
from kube_nftlb.netfilter.traffic.tally import Counts

Backend = tuple[str, int]
"""The address and port."""
_PROTOCOLS: dict[str, Protocol] = {"TCP": "TCP", "UDP": "UDP", "SCTP": "SCTP"}


class FarmCounts(NamedTuple):
    """The traffic of a farm."""

    counts: Counts
    backends: dict[Backend, Counts]
    """Of the busiest backends."""


def by_farm(
    listeners: Iterable[ListenerCounts], owner: Callable[[Listener], FarmKey | None]
) -> dict[FarmKey, FarmCounts]:
    """Return the traffic of each farm. What is translated by others than kube-nftlb is left out."""
    found: dict[FarmKey, FarmCounts] = {}
    for each in listeners:
        if each.protocol not in _PROTOCOLS:
            continue
        key = owner(Listener(each.ip, _PROTOCOLS[each.protocol], each.port))
        if key is None:
            continue
        before = found.get(key, FarmCounts(Counts(), {}))
        for backend in each.backends:
            address = (backend.ip, backend.port)
            before.backends[address] = before.backends.get(address, Counts()).plus(backend.counts)
        found[key] = before._replace(counts=before.counts.plus(each.counts))
    return found
