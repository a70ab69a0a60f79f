"""The open connections to backends that drain, by the nodes' reports. Pure: no I/O."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kube_nftlb.commands.cluster.finding import condition
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.operator.cache.node_record import SILENT


class Open(NamedTuple):
    """The open connections to backends that drain."""

    by_node: Mapping[str, int]
    """Of the nodes that have any."""
    uncounted: tuple[str, ...]
    """The nodes that have not counted since the backends drain."""
    partial: tuple[str, ...] = ()
    """The nodes that report the busiest backends only, all of these not among them: there may be more connections."""
    silent: tuple[str, ...] = ()
    """The nodes whose agents are silent: nobody knows of their connections, nor when that will change."""

    @property
    def total(self) -> int:
        """On all nodes, as far as they tell."""
        return sum(self.by_node.values())

    @property
    def done(self) -> bool:
        """True if no connection is open on any node whose agent is not silent."""
        return not (self.total or self.uncounted or self.partial)


def open_connections(
    addresses: Iterable[tuple[str, int]], since: int, reports: Iterable[JsonObject], *, gone: bool = False
) -> Open:
    """Return what nodes report about addresses that have drained since a resourceVersion of farms.

    With ``gone`` the backends are there no more, and a node on which nothing drains has no connections to them.
    """
    wanted = set(addresses)
    counted: dict[str, int] = {}
    uncounted, partial, silent = [], [], []
    for report in reports:
        name, draining = report["metadata"]["name"], (report.get("status") or {}).get("draining") or {}
        watermark = int(draining.get("watermark") or 0)
        if (condition(report, "Ready") or {}).get("reason") == SILENT:
            silent.append(name)
            continue
        if watermark < since and (watermark or not gone):
            uncounted.append(name)
            continue
        busiest = draining.get("busiest") or ()
        shown = {(each["ip"], each.get("port") or 0): int(each["connections"]) for each in busiest}
        if here := sum(shown[each] for each in wanted & shown.keys()):
            counted[name] = here
        # The list has an end, which backends of other namespaces may fill.
        if wanted - shown.keys() and int(draining.get("connections") or 0) > sum(shown.values()):
            partial.append(name)
    return Open(counted, tuple(sorted(uncounted)), tuple(sorted(partial)), tuple(sorted(silent)))
