"""The table of the first screen: what users notice, beside kube-proxy. Computation only."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks import packets, series
from benchmarks.processes import PEAK
from benchmarks.records import Parameter
from benchmarks.series import Groups
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB
from benchmarks.targets import RATE

SUBJECTS = (NFTLB, NFTABLES, KUBE_PROXY)


class Headline(NamedTuple):
    """A row of the table."""

    text: str
    scenario: str
    metric: str
    where: Mapping[str, Parameter]
    unit: str
    suffix: str = ""
    """Follows our names in the records: a mode that does what kube-proxy does."""


_STEADY: Mapping[str, Parameter] = {"load": "steady", "endpoints": "found by selector", "size": 100}
_IDLE: Mapping[str, Parameter] = {**_STEADY, "load": "idle"}
_LARGE: Mapping[str, Parameter] = {"services": 8000, "endpoints": 30}
_NEW: Mapping[str, Parameter] = {"others": 1000, "users": 500, "connections": "new for each request"}

HEADLINES = (
    Headline("a Service is created: its VIP answers, while others change", "latency", "created until answered", _STEADY,
             "ms"),
    Headline("the same when idle", "latency", "created until answered", _IDLE, "ms"),
    Headline("a Service is deleted: its VIP refuses, while others change", "latency", "deleted until refused", _STEADY,
             "ms"),
    Headline("an endpoint of 100 becomes ready: it is reached, while others change", "endpoints", "ready until reached",
             {"size": 100, "load": "steady"}, "ms"),
    Headline("the same with 1,000 endpoints, when idle", "endpoints", "ready until reached",
             {"size": 1000, "load": "idle"}, "ms"),
    Headline("8,000 Services are scaled to 30 endpoints: all in the kernel", "scale", series.ALL_THERE, _LARGE, "s"),
    Headline("beside them, one more Service is created", "scale", series.SINGLE_CHANGE, _LARGE, "ms"),
    Headline("memory of the node's program with them", "scale", PEAK, _LARGE, "MB"),
    Headline("CPU time of a connection's first packet, 1,000 other Services", "datapath", packets.FIRST,
             {"others": 1000}, "ns", " dnat"),
    Headline("CPU time of its later packets", "datapath", packets.LATER, {"others": 1000}, "ns", " dnat"),
    Headline("requests per second, a new connection for each, 500 users", "datapath", RATE, _NEW, "/s", " dnat"),
    Headline("rules on a node with 1,000 Services of 10 endpoints", "latency", "rules",
             {"services": 1000, "endpoints": 10}, ""),
)  # fmt: skip


def rows(groups: Groups) -> Iterator[tuple[Headline, dict[str, Sequence[float]]]]:
    """Yield each row that has figures, with the values of each subject."""
    for headline in HEADLINES:
        found: dict[str, Sequence[float]] = {}
        for subject in SUBJECTS:
            if values := _values(groups, headline, subject):
                found[subject] = values
        if found:
            yield headline, found


def _values(groups: Groups, headline: Headline, subject: str) -> Sequence[float]:
    name = subject if subject == KUBE_PROXY else subject + headline.suffix
    where = dict(headline.where)
    if headline.metric == PEAK:
        where["process"] = "kube-proxy" if subject == KUBE_PROXY else "agent"
    for (scenario, metric, point), values in groups.items():
        same = (scenario, metric) == (headline.scenario, headline.metric) and where.items() <= dict(point).items()
        if same and name in values:
            return values[name]
    return ()


def ratio(values: Mapping[str, Sequence[float]], subject: str) -> float | None:
    """Return the median of a subject as a share of kube-proxy's, or None if one is missing or not positive."""
    if subject not in values or KUBE_PROXY not in values:
        return None
    theirs = statistics.median(values[KUBE_PROXY])
    return statistics.median(values[subject]) / theirs if theirs > 0 else None
