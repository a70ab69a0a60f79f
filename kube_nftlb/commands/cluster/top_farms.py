"""The rows of ``kubectl nftlb top``, from the nodes' reports. Pure: no I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.filesize import decimal

from kube_nftlb import addresses
from kube_nftlb.agent.traffic.by_farm import Backend, by_farm
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.commands.cluster.options import By
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.netfilter.traffic.report import Report
from kube_nftlb.netfilter.traffic.tally import Counts
from kube_nftlb.prose import some_of


@dataclass(frozen=True)
class Traffic:
    """Traffic per second, and connections."""

    new: float = 0
    """New connections per second."""
    open: int = 0
    sent: float = 0
    """Bytes from clients per second."""
    answered: float = 0
    """Bytes from backends per second."""

    def plus(self, counts: Counts, seconds: float) -> "Traffic":
        """Return the sum with what was counted in so many seconds."""
        return Traffic(
            self.new + counts.new / seconds,
            self.open + counts.open,
            self.sent + counts.sent / seconds,
            self.answered + counts.answered / seconds,
        )


@dataclass
class Row:
    """A farm, or a backend of one."""

    name: str
    traffic: Traffic = Traffic()
    nodes: dict[str, Traffic] = field(default_factory=dict)
    """The traffic on each node that has any."""
    backends: dict[Backend, "Row"] = field(default_factory=dict)
    """By address; of a farm only."""

    def add(self, node: str, counts: Counts, seconds: float) -> None:
        """Add what was counted on a node."""
        self.traffic = self.traffic.plus(counts, seconds)
        self.nodes[node] = self.nodes.get(node, Traffic()).plus(counts, seconds)


def _backend_name(raw: JsonObject, backend: Backend) -> str:
    """Return the name of a backend of a farm; its address if none is known."""
    for each in (raw.get("status") or {}).get("backends") or ():
        if each.get("address") == backend[0] and each.get("port") in (None, backend[1]):
            return str(each.get("name"))
    for each in (raw.get("spec") or {}).get("backends") or ():
        if each.get("ip") == backend[0] and each.get("port") in (None, backend[1]):
            return str(each.get("name"))
    return addresses.with_port(*backend)


def rows(reports: Mapping[str, Report], view: ClusterView, namespace: str | None, by: By) -> list[Row]:
    """Return the farms with traffic on these nodes, and their backends, sorted. Names are ``namespace/name``."""
    found: dict[FarmKey, Row] = {}
    for node, report in reports.items():
        for key, farm in by_farm(report.listeners, view.owner).items():
            if namespace not in (None, key.namespace):
                continue
            row = found.setdefault(key, Row("/".join(key)))
            row.add(node, farm.counts, report.seconds)
            for backend, counts in farm.backends.items():
                if backend not in row.backends:
                    row.backends[backend] = Row(_backend_name(view.raw_farms[key], backend))
                row.backends[backend].add(node, counts, report.seconds)
    for row in found.values():
        row.backends = dict(sorted(row.backends.items(), key=lambda entry: _order(by)(entry[1])))
    return sorted(found.values(), key=_order(by))


def _order(by: By) -> Callable[[Row], tuple[float, str]]:
    def order(row: Row) -> tuple[float, str]:
        traffic = row.traffic
        if by is By.BYTES:
            return (-traffic.sent - traffic.answered, row.name)
        return (-traffic.open if by is By.CONNECTIONS else -traffic.new, row.name)

    return order


def notes(reports: Mapping[str, Report]) -> list[str]:
    """Return what is not counted, and why, as sentences."""
    found = []
    if uncounted := [node for node, each in reports.items() if not each.bytes_counted]:
        found.append(
            f"bytes are not counted on {_named(uncounted)}: metrics.perFarm.enabled of the chart, or the sysctl "
            "net.netfilter.nf_conntrack_acct=1, counts those of connections from then on"
        )
    if lossy := [node for node, each in reports.items() if each.lost or not each.events]:
        found.append(f"short connections may be missing on {_named(lossy)}: there are too many to count them all")
    if crowded := [node for node, each in reports.items() if each.omitted]:
        found.append(f"only the busiest listeners of {_named(crowded)} are counted")
    return found


def _named(nodes: Sequence[str]) -> str:
    return some_of(sorted(nodes), what="nodes")


def cells(row: Row, *, bytes_counted: bool) -> tuple[str, ...]:
    """Return the columns of a farm or backend behind its name."""
    traffic = row.traffic
    volume = (decimal(int(traffic.sent)), decimal(int(traffic.answered))) if bytes_counted else ("-", "-")
    return (f"{traffic.new:.1f}", str(traffic.open), *volume, str(len(row.nodes)))


def document(found: Iterable[Row], reports: Mapping[str, Report], problems: Mapping[str, str]) -> JsonObject:
    """Return all for programs."""
    return {
        "farms": [{**_row(row), "backends": [_row(each) for each in row.backends.values()]} for row in found],
        "nodes": [
            {
                "name": node,
                "seconds": each.seconds,
                "bytesCounted": each.bytes_counted,
                "omittedListeners": each.omitted,
                "complete": each.events and not each.lost,
            }
            for node, each in sorted(reports.items())
        ],
        "failedNodes": [{"name": node, "problem": problem} for node, problem in sorted(problems.items())],
    }


def _row(row: Row) -> JsonObject:
    return {
        "name": row.name,
        **_numbers(row.traffic),
        "nodes": {node: _numbers(each) for node, each in row.nodes.items()},
    }


def _numbers(traffic: Traffic) -> JsonObject:
    return {
        "newPerSecond": round(traffic.new, 3),
        "open": traffic.open,
        "sentBytesPerSecond": round(traffic.sent),
        "answeredBytesPerSecond": round(traffic.answered),
    }
