"""Every series that kube-nftlb exports, each declared here and nowhere else.

No label has a value per Service, farm, node or client: there are as many series in a large cluster as in a small one.
docs/metrics.md is generated from the declarations.
"""

import platform
import time
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

from kube_nftlb import __version__
from kube_nftlb.http_server import Answer, Text

Program = Literal["operator", "agent"]
PROGRAMS: tuple[Program, ...] = ("operator", "agent")

_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
_FRESH_S = 0.25
"""An answer is given again for so long: who asks without pause must not cost more than who asks four times a second."""

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Seconds, for what takes milliseconds when all is well."""
_LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
"""Seconds, for what takes a part of a second when all is well, and minutes when it is not."""

Values = str | tuple[str, ...]
"""A label's values: all of them, which are there from the start, so that the first increase is seen; or a sentence."""

_M = TypeVar("_M", bound=MetricWrapperBase)

# Of each counter another series, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no hints


class Series(NamedTuple):
    """What is to be known of a metric, for docs/metrics.md."""

    name: str
    """As it is queried; a histogram's goes on with ``_bucket``, ``_sum`` and ``_count``."""
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: Mapping[str, Values]
    programs: tuple[Program, ...]


SERIES: list[Series] = []
_REGISTRIES: dict[Program, CollectorRegistry] = {program: CollectorRegistry() for program in PROGRAMS}


def _exported(metric: _M, series: Series) -> _M:
    SERIES.append(series)
    match list(series.labels.values()):
        case [tuple(values)]:
            for value in values:
                metric.labels(value)
    for program in series.programs:
        _REGISTRIES[program].register(metric)
    return metric


def _counter(name: str, meaning: str, *programs: Program, **labels: Values) -> Counter:
    metric = Counter(name, meaning, list(labels), registry=None)
    return _exported(metric, Series(name, "counter", meaning, labels, programs))


def _gauge(name: str, meaning: str, *programs: Program, **labels: Values) -> Gauge:
    metric = Gauge(name, meaning, list(labels), registry=None)
    return _exported(metric, Series(name, "gauge", meaning, labels, programs))


def _histogram(name: str, meaning: str, buckets: tuple[float, ...], *programs: Program, **labels: Values) -> Histogram:
    metric = Histogram(name, meaning, list(labels), buckets=buckets, registry=None)
    return _exported(metric, Series(name, "histogram", meaning, labels, programs))


_QUEUES = "farms (Services whose farms are looked at), statuses (farms whose status is)"

BUILD_INFO = _gauge(
    "kube_nftlb_build_info",
    "Always 1; the labels say what runs.",
    *PROGRAMS,
    program="operator, agent",
    version="kube-nftlb's version",
    python="Python's version",
)
API_REQUESTS = _counter(
    "kube_nftlb_api_requests_total",
    "Requests to the API server, but those of kopf. A watch counts when it begins.",
    *PROGRAMS,
    method="GET, POST, PATCH, DELETE",
    code="HTTP status; error where there was no answer",
)
WATCH_FAILURES = _counter(
    "kube_nftlb_watch_failures_total",
    "How often a list or watch failed and was begun anew; those of kopf are in kube_nftlb_watch_restarts_total.",
    *PROGRAMS,
    resource="nftlbfarms, nftlbpolicies, nodes, servicecidrs; of the operator: endpointslices, nftlbfarms, nftlbnodes, "
    "pods, nftlbpolicies",
    reason="Expired (all is listed anew), Failed",
)
PROBES = _counter(
    "kube_nftlb_probes_total",
    "Answers to probes.",
    *PROGRAMS,
    path="/healthz, /livez, /alive, /readyz",
    code="200, 503",
)
EVENTS = _counter(
    "kube_nftlb_events_total", "Kubernetes Events that were told.", *PROGRAMS, reason="the Event's reason"
)

SERVICE_CHANGES = _counter(
    "kube_nftlb_rules_services_changes_total",
    "Creations, changes and deletions of Services that were seen.",
    "operator",
)
ENDPOINT_SLICE_CHANGES = _counter(
    "kube_nftlb_rules_endpoints_changes_total",
    "Creations, changes and deletions of EndpointSlices that were seen.",
    "operator",
)
SERVICE_CHANGES_PENDING = _gauge(
    "kube_nftlb_rules_services_changes_pending",
    "Changes of Services whose farms were not written yet.",
    "operator",
)
ENDPOINT_SLICE_CHANGES_PENDING = _gauge(
    "kube_nftlb_rules_endpoints_changes_pending",
    "Changes of EndpointSlices whose farms were not written yet.",
    "operator",
)
SERVICE_SYNC_SECONDS = _histogram(
    "kube_nftlb_service_sync_duration_seconds",
    "How long the operator took for a Service: what its farms are to be, and the writes for it.",
    _SHORT,
    "operator",
)
FARMS_APPLIED = _counter(
    "kube_nftlb_farms_applied_total",
    "NftlbFarms that the operator created or changed.",
    "operator",
    reason=("Created", "SpecChanged", "OwnerChanged"),
)
FARMS_DELETED = _counter(
    "kube_nftlb_farms_deleted_total",
    "NftlbFarms that the operator deleted.",
    "operator",
    reason=("ServiceGone", "ServiceNotServed", "PortGone"),
)
FARMS_REFUSED = _counter(
    "kube_nftlb_farms_refused_total", "Writes of NftlbFarms that the API server refused for good.", "operator"
)
FARM_WRITE_RETRIES = _counter(
    "kube_nftlb_farm_write_retries_total",
    "How often the writes for a Service failed in a passing way and are repeated.",
    "operator",
)
FARM_STATUSES_WRITTEN = _counter(
    "kube_nftlb_farm_statuses_written_total", "Statuses of NftlbFarms that the operator wrote.", "operator"
)
FARMS = _gauge(
    "kube_nftlb_farms",
    "NftlbFarms in the cluster.",
    "operator",
    state="programmed (on every node), pending (accepted, but a node does not have it), refused (invalid, or another "
    "farm has an address of it)",
)
BACKENDS = _gauge(
    "kube_nftlb_backends", "Backends of all NftlbFarms in the cluster.", "operator", state="ready, not_ready"
)
NODES = _gauge(
    "kube_nftlb_nodes",
    "Nodes that run, or have run, an agent.",
    "operator",
    state="ready, not_ready (its agent says that it cannot work)",
)
RELIST_REPAIRS = _counter(
    "kube_nftlb_relist_repairs_total",
    "Differences that a periodic list found, and repaired, because no watch told of them.",
    "operator",
    resource=("services", "endpointslices", "nftlbfarms", "nftlbnodes"),
)
LAST_LIST = _gauge(
    "kube_nftlb_last_list_timestamp_seconds",
    "When the operator last listed everything with success, in seconds since 1970.",
    "operator",
)
LEADER = _gauge(
    "kube_nftlb_leader",
    "1 for the operator that writes, 0 for one that stands by; 1 too where there is no election.",
    "operator",
)
WATCH_RESTARTS = _counter(
    "kube_nftlb_watch_restarts_total",
    "How often all watches of kopf were begun anew after a failure.",
    "operator",
)
QUEUE_LENGTH = _gauge("kube_nftlb_queue_length", "What waits to be looked at.", "operator", queue=_QUEUES)
QUEUE_STALLED_SECONDS = _gauge(
    "kube_nftlb_queue_stalled_seconds",
    "For how long nothing of a queue was begun or finished although something was due; 0 where nothing is.",
    "operator",
    queue=_QUEUES,
)

SYNC_SECONDS = _histogram(
    "kube_nftlb_sync_duration_seconds",
    "How long the agent took to send some changed farms to nftlb and the kernel.",
    _SHORT,
    "agent",
)
LAST_SYNC = _gauge(
    "kube_nftlb_last_sync_timestamp_seconds",
    "When everything that waited was last found done, in seconds since 1970; 0 before the first time.",
    "agent",
)
LAST_QUEUED = _gauge(
    "kube_nftlb_last_queued_timestamp_seconds",
    "When something was last to be programmed, in seconds since 1970.",
    "agent",
)
BACKLOG_SECONDS = _gauge(
    "kube_nftlb_backlog_seconds",
    "For how long the oldest change has waited to be programmed; 0 where none does.",
    "agent",
)
PROGRAMMING_SECONDS = _histogram(
    "kube_nftlb_network_programming_duration_seconds",
    "From the change of a Pod or Service (the trigger time of its EndpointSlices) until this node's kernel was found "
    "to have it. Changes from before the start of the operator or the agent do not count, nor do deletions.",
    _LONG,
    "agent",
)
NODE_FARMS = _gauge(
    "kube_nftlb_node_farms",
    "Farms on this node.",
    "agent",
    state="programmed, pending (in work, or not compared with the kernel yet), failed, refused (another farm has an "
    "address of it)",
)
NODE_BACKENDS = _gauge(
    "kube_nftlb_node_backends",
    "Backends that this node's nftlb has.",
    "agent",
    state="up (gets connections), off (keeps those that it has, or serves some clients alone)",
)
NODE_POLICIES = _gauge("kube_nftlb_node_policies", "NftlbPolicies that this node has.", "agent")
FARMS_WITHOUT_LOCAL_BACKENDS = _gauge(
    "kube_nftlb_node_farms_without_local_backends",
    "Farms with the traffic policy Local whose backends are all on other nodes: this node drops their connections.",
    "agent",
)
FARMS_FAILED = _counter(
    "kube_nftlb_farms_failed_total",
    "How often a farm could not be programmed as asked.",
    "agent",
    reason="Invalid, Refused, KernelFeatureMissing, Unsupported, AddressInUse, PolicyMissing, or another reason of "
    "failedFarms",
)
DRIFT_REPAIRED = _counter(
    "kube_nftlb_drift_repaired_total",
    "How often the kernel was found to differ from the plan, and was repaired.",
    "agent",
)
KERNEL_COMPARISONS = _counter(
    "kube_nftlb_kernel_comparisons_total",
    "Comparisons of a farm, or of what all farms share, with the kernel.",
    "agent",
    result=("same", "different"),
)
CONNECTIONS_PARTED = _counter(
    "kube_nftlb_connections_parted_total",
    "Connections and UDP flows that were ended, or no longer hold their client to a backend that is gone. Untranslated "
    "are those from before there was a farm.",
    "agent",
    reason=("BackendGone", "BackendDown", "Untranslated"),
)
NFTLB_UP = _gauge("kube_nftlb_nftlb_up", "Whether nftlb answered when it was last asked: 1 or 0.", "agent")
NFTLB_STARTS = _counter(
    "kube_nftlb_nftlb_restarts_total", "How often nftlb was found to have been started anew.", "agent"
)
NFTLB_REQUEST_SECONDS = _histogram(
    "kube_nftlb_nftlb_request_duration_seconds",
    "How long nftlb took to answer.",
    _SHORT,
    "agent",
    method=("GET", "POST", "PUT", "PATCH", "DELETE"),
)
NFTLB_REQUESTS_FAILED = _counter(
    "kube_nftlb_nftlb_requests_failed_total",
    "Requests that nftlb did not answer, and changes that it refused.",
    "agent",
    reason=("Unreachable", "Refused"),
)


class Page:
    """What one program answers to ``/metrics``.

    ``refresh`` is called before the gauges are read. Like the answer itself, it must not block.
    """

    def __init__(
        self, program: Program, refresh: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        BUILD_INFO.labels(program, __version__, platform.python_version()).set(1)
        self._registry = _REGISTRIES[program]
        self._refresh = refresh
        self._clock = clock
        self._made_at = float("-inf")
        self._text = b""

    def answer(self, path: str) -> Answer:
        """The text format of Prometheus 0.0.4 for ``/metrics``, 404 for any other path."""
        if path != "/metrics":
            return Answer(404, {"error": "ask for /metrics"})
        if self._clock() - self._made_at >= _FRESH_S:
            self._refresh()
            self._text = generate_latest(self._registry)
            self._made_at = self._clock()
        return Answer(200, Text(_TEXT_FORMAT, self._text))


def set_states(gauge: Gauge, counts: Mapping[str, int], states: Collection[str]) -> None:
    """Set a gauge with the label ``state`` for each of these states; one that is not counted is 0."""
    for state in states:
        gauge.labels(state).set(counts.get(state, 0))


def _process_figures() -> None:
    """process_cpu_seconds_total, process_resident_memory_bytes and the like, for each program."""
    for registry in _REGISTRIES.values():
        ProcessCollector(registry=registry)


_process_figures()
