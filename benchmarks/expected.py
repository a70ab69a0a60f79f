"""The measurements that each scenario yields in its long form, so that a lost one is noticed. Computation only."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from benchmarks import cost, handovers, limit, many_addresses, new_addresses, packets, routes, series, status
from benchmarks.processes import PEAK
from benchmarks.records import Record
from benchmarks.subjects import ANNOUNCING, EAGER, KUBE_PROXY, METALLB_EAGER, NFTABLES, NFTLB, Subject

RATE: Final = "requests per second"
_PROXIES = (NFTLB, NFTABLES, KUBE_PROXY)
_WITH_MODES = (f"{NFTLB} dnat", f"{NFTABLES} dnat", KUBE_PROXY)
"""With many other Services dnat alone is measured, which does what kube-proxy does."""
_PER_CHANGE = (
    "bytes to etcd per change", "bytes to the node per change", "processor time of apiserver per change",
    "processor time of etcd per change",
)  # fmt: skip
_OF_STATUSES = (status.SHOWN, status.SHOWN_AS_PROGRAMMED, status.IN_KERNELS, status.STATUSES)
_REQUESTS = (RATE, "p50", "p95", "p99", "processor time per request")


class _Yield(NamedTuple):
    subjects: Sequence[str]
    metrics: Sequence[str]


_OF_SCENARIO: Final = {
    "latency": _Yield(
        (*_PROXIES, EAGER),
        ("created until answered", "deleted until refused", "creation at the API", "segment", "rules", "chains",
         "elements"),
    ),
    "endpoints": _Yield(
        (*_PROXIES, EAGER),
        ("ready until reached", "not ready until not reached", "rolling update to etcd", "rolling update to the node",
         *_PER_CHANGE),
    ),
    "datapath": _Yield(_WITH_MODES, (packets.FIRST, packets.LATER, *_REQUESTS)),
    "schedulers": _Yield((NFTLB + " rr", NFTABLES + " rr", KUBE_PROXY), _REQUESTS),
    "scale": _Yield(
        (*_PROXIES, EAGER),
        ("written at the API", series.ALL_THERE, series.AFTER_WRITES, series.MEANWHILE, series.SINGLE_CHANGE,
         "processor time", PEAK, cost.RESTARTED),
    ),
    "intake": _Yield((NFTLB,), (series.OPERATOR_STARTED, PEAK, "processor time")),
    "addresses": _Yield(
        ANNOUNCING,
        (new_addresses.CREATED, new_addresses.GAP, new_addresses.CONNECTIONS, *new_addresses.FAILED.values(),
         handovers.CONNECTIONS, *handovers.FAILED.values(), handovers.LONGEST),
    ),
    "many_addresses": _Yield(
        many_addresses.SUBJECTS,
        (many_addresses.PROCESSOR, PEAK, many_addresses.ANSWER, many_addresses.ANSWERED, many_addresses.LOST),
    ),
    "routes": _Yield(routes.SUBJECTS, (routes.ROUTED, routes.UNROUTED)),
    "status": _Yield(_PROXIES, _PER_CHANGE),
    "limit": _Yield(limit.PROGRAMS, (limit.TIME,)),
    "cost": _Yield(_PROXIES, ("processor time", "memory", PEAK, cost.RESTARTED, cost.ALL_BACK)),
}  # fmt: skip


def of(scenario: str) -> Iterator[tuple[str, str]]:
    """Yield each subject and metric that a scenario measures, whatever its size."""
    if scenario not in _OF_SCENARIO:
        return
    subjects, metrics = _OF_SCENARIO[scenario]
    for subject in subjects:
        yield from ((subject, metric) for metric in metrics)
        if scenario == "addresses" and subject != METALLB_EAGER:
            yield subject, handovers.ANEW
        if scenario == "status" and Subject(subject).ours:
            yield from ((subject, metric) for metric in _OF_STATUSES)
        if scenario in ("endpoints", "status"):
            programs = Subject(subject).programs
            yield from ((subject, f"processor time of {program} per change") for program in programs)


def lacking(scenario: str, measured: Iterable[Record]) -> dict[str, list[str]]:
    """Return the metrics of each subject that a scenario measures, and that these records do not have."""
    found = {(record.subject, record.metric) for record in measured if record.scenario == scenario}
    lost: dict[str, list[str]] = {}
    for subject, metric in of(scenario):
        if (subject, metric) not in found:
            lost.setdefault(subject, []).append(metric)
    return lost
