"""The nodes that have been behind with a farm for too long. No I/O."""

from collections.abc import Iterable
from typing import NamedTuple

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.events import Lasting
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.cache.node_record import NodeRecord
from kube_nftlb.prose import some_of


class _Awaited(NamedTuple):
    """The change that nodes have to program: the resourceVersions of farm and endpoints, and since when, in seconds."""

    farm: int
    endpoints: int
    since: float


class Late(NamedTuple):
    """The nodes that are late, and in how many seconds to look again; None if there is nothing to wait for."""

    nodes: tuple[str, ...] = ()
    again_s: float | None = None


class Lateness:
    """Measures, for each farm, how long its oldest change that is not on all nodes has been on its way.

    So endpoints that change all the time count as late only where a node does not keep up. ``after_s`` is how long
    nodes may take.
    """

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self._awaited: dict[FarmKey, _Awaited] = {}

    def look(self, farm: FarmRecord, endpoints_at: int, nodes: Iterable[NodeRecord], now: float) -> Late:
        """Return which nodes are late, of those that are to keep up.

        ``endpoints_at`` is the resourceVersion of the last change of the endpoints.
        """
        everywhere = list(nodes)
        awaited = self._awaited.get(farm.key)
        if awaited is None or not _behind(awaited, everywhere):
            awaited = _Awaited(farm.since, endpoints_at, now)
            if not _behind(awaited, everywhere):
                self.forget(farm.key)
                return Late()
            self._awaited[farm.key] = awaited
        if (again_s := awaited.since + self.after_s - now) > 0:
            return Late(again_s=again_s)
        return Late(tuple(_behind(awaited, everywhere)))

    def forget(self, key: FarmKey) -> None:
        """Forget a farm that is gone, or that no node has to program."""
        self._awaited.pop(key, None)


def problem(late: Late, after_s: float) -> Lasting:
    """Return what users are told about a farm that is late on some nodes."""
    named = some_of(late.nodes, 1, "nodes")
    message = f"its last change has not been programmed on {named} for more than {after_s:g} s"
    return Lasting("NotProgrammed", f"{message}; see kubectl describe nftlbnode {late.nodes[0]}")


def _behind(awaited: _Awaited, nodes: Iterable[NodeRecord]) -> list[str]:
    """Return the nodes that have not come so far."""
    return sorted(
        node.name for node in nodes if node.watermark < awaited.farm or node.slice_watermark < awaited.endpoints
    )
