"""The table of the first screen: what users notice, beside kube-proxy. Computation only."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks import packets, series, stats
from benchmarks.expected import RATE
from benchmarks.processes import PEAK
from benchmarks.records import Parameter
from benchmarks.series import Groups
from benchmarks.subjects import EAGER, KUBE_PROXY, NFTABLES, NFTLB, Subject

SUBJECTS = (NFTLB, NFTABLES, KUBE_PROXY, EAGER)
PAIRED = frozenset({"latency", "endpoints", "datapath", "schedulers"})
"""The scenarios in which the subjects take turns, so that those of a round were measured at about the same time."""


_ON_NODE: Mapping[str, tuple[str, ...]] = {
    NFTLB: ("agent", "nftlb"),
    NFTABLES: ("agent",),
    KUBE_PROXY: ("kube-proxy",),
    EAGER: ("kube-proxy",),
}
"""The programs of a subject on a node."""
_GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "node": _ON_NODE,
    "node and operator": {
        subject: (*programs, "operator") if Subject(subject).ours else programs
        for subject, programs in _ON_NODE.items()
    },
}
"""The programs whose figures are summed up, by the name that rows have for them, and by subject."""


class Headline(NamedTuple):
    """A row of the table."""

    text: str
    scenario: str
    metric: str
    where: Mapping[str, Parameter]
    unit: str
    suffix: str = ""
    """Follows our names in the records: a mode that does what kube-proxy does."""
    process: str = ""
    """Whose figure: that of a program, or of a group of them."""


_STEADY: Mapping[str, Parameter] = {"load": "steady", "endpoints": "found by selector", "size": 100}
_IDLE: Mapping[str, Parameter] = {**_STEADY, "load": "idle"}
_LARGE: Mapping[str, Parameter] = {"services": 8000, "endpoints": 30}
_SOME: Mapping[str, Parameter] = {"services": 1000, "endpoints": 10}
_COST: Mapping[str, Parameter] = {**_SOME, "load": "10 changes a second"}
_FOLLOWED: Mapping[str, Parameter] = {"services": 50, "changes per s": 10}
_CREATED: Mapping[str, Parameter] = {"services": 8000, "endpoints": 1}
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
    Headline("beside 1,000 Services of 10 endpoints, one more is created", "scale", series.SINGLE_CHANGE, _SOME, "ms"),
    Headline("memory on a node, 1,000 Services of 10 endpoints: agent and nftlb, or kube-proxy", "scale", PEAK, _SOME,
             "MB", process="node"),
    Headline("the same, 8,000 Services of 30 endpoints", "scale", PEAK, _LARGE, "MB", process="node"),
    Headline("memory of the API server then", "scale", PEAK, _LARGE, "MB", process="apiserver"),
    Headline("CPU time of the API server while 8,000 Services are created", "scale", "processor time", _CREATED, "s",
             process="apiserver"),
    Headline("the same while they are scaled to 30 endpoints", "scale", "processor time", _LARGE, "s",
             process="apiserver"),
    Headline("CPU of all programs on a node and of the operator, 1,000 Services, 10 changes a second", "cost",
             "processor time", _COST, "% of a core", process="node and operator"),
    Headline("CPU time of the API server for a change of endpoints, 10 a second over 50 Services", "status",
             "processor time of apiserver per change", _FOLLOWED, "ms"),
    Headline("bytes to etcd for such a change", "status", "bytes to etcd per change", _FOLLOWED, "B"),
    Headline("bytes to a node for such a change", "status", "bytes to the node per change", _FOLLOWED, "B"),
    Headline("CPU time of a connection's first packet, 1,000 other Services", "datapath", packets.FIRST,
             {"others": 1000}, "ns", " dnat"),
    Headline("CPU time of its later packets", "datapath", packets.LATER, {"others": 1000}, "ns", " dnat"),
    Headline("requests per second, a new connection for each, 500 users", "datapath", RATE, _NEW, "/s", " dnat"),
    Headline("rules on a node with 1,000 Services of 10 endpoints", "latency", "rules",
             {"services": 1000, "endpoints": 10}, ""),
)  # fmt: skip


def rows(groups: Groups) -> Iterator[tuple[Headline, dict[str, Sequence[float]]]]:
    """Yield each row, with the values of each subject that has some."""
    for headline in HEADLINES:
        found: dict[str, Sequence[float]] = {}
        for subject in SUBJECTS:
            if values := values_of(groups, headline, subject):
                found[subject] = values
        yield headline, found


def values_of(groups: Groups, headline: Headline, subject: str) -> Sequence[float]:
    """Return the values of a row and a subject; none if it was not measured."""
    of = (headline.scenario, headline.metric)
    name = subject + headline.suffix if Subject(subject).ours else subject
    if (programs := _GROUPS.get(headline.process)) is not None:
        total = summed(groups, of, headline.where, subject, programs[subject])
        return [total] if total is not None else ()
    if headline.process:
        return series.values_at(groups, *of, {**headline.where, "process": headline.process}, subject)
    return series.values_at(groups, *of, headline.where, name)


def summed(
    groups: Groups, of: tuple[str, str], where: Mapping[str, Parameter], subject: str, programs: Iterable[str]
) -> float | None:
    """Return what programs needed together, each at its most, or None if one was not measured.

    ``of`` is a scenario and its metric.
    """
    parts = [series.values_at(groups, *of, {**where, "process": each}, subject) for each in programs]
    return sum(map(max, parts)) if all(parts) else None


def ratio(headline: Headline, values: Mapping[str, Sequence[float]], subject: str) -> stats.Interval | None:
    """Return the figure of a subject as a share of kube-proxy's, or None if there is none."""
    if not Subject(subject).ours:
        return None
    paired = headline.scenario in PAIRED
    return stats.share(values.get(subject, ()), values.get(KUBE_PROXY, ()), paired=paired)
