"""All metrics of operator and agent, each declared here and nowhere else.

No label has a value per Service, farm, node or client, so that the number of series does not grow with the cluster.
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
"""Seconds for which a response is cached, so that frequent scrapes cost no more than four per second."""

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Buckets in seconds, for what normally takes milliseconds."""
_LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
"""Buckets in seconds, for what normally takes less than a second, and minutes under problems."""

Values = str | tuple[str, ...]
"""All values of a label, exported as 0 from the start so that the first increase is visible; or their description."""

_M = TypeVar("_M", bound=MetricWrapperBase)

# Another series per counter, which nobody needs.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no hints


class Series(NamedTuple):
    """The description of a metric, for docs/metrics.md."""

    name: str
    """As in queries; for a histogram without ``_bucket``, ``_sum`` and ``_count``."""
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


_QUEUES = "farms (Services to reconcile), statuses (farms whose status to update)"

BUILD_INFO = _gauge(
    "kube_nftlb_build_info",
    "Always 1; the labels have the versions.",
    *PROGRAMS,
    program="operator, agent",
    version="version of kube-nftlb",
    python="version of Python",
)
API_REQUESTS = _counter(
    "kube_nftlb_api_requests_total",
    "Requests to the API server, except those of kopf. A watch counts when it starts.",
    *PROGRAMS,
    method="GET, POST, PATCH, DELETE",
    code="HTTP status, or error without a response",
)
WATCH_FAILURES = _counter(
    "kube_nftlb_watch_failures_total",
    "Lists and watches that failed and were restarted. Those of kopf are in kube_nftlb_watch_restarts_total.",
    *PROGRAMS,
    resource="nftlbfarms, nftlbpolicies, nodes, servicecidrs; of the operator: endpointslices, nftlbfarms, nftlbnodes, "
    "pods, nftlbpolicies",
    reason="Expired (objects are listed again), Failed",
)
PROBES = _counter(
    "kube_nftlb_probes_total",
    "Responses to probes.",
    *PROGRAMS,
    path="/healthz, /livez, /alive, /readyz",
    code="200, 503",
)
EVENTS = _counter("kube_nftlb_events_total", "Kubernetes Events sent.", *PROGRAMS, reason="reason of the Event")

SERVICE_CHANGES = _counter(
    "kube_nftlb_rules_services_changes_total",
    "Observed creations, updates and deletions of Services.",
    "operator",
)
ENDPOINT_SLICE_CHANGES = _counter(
    "kube_nftlb_rules_endpoints_changes_total",
    "Observed creations, updates and deletions of EndpointSlices.",
    "operator",
)
SERVICE_CHANGES_PENDING = _gauge(
    "kube_nftlb_rules_services_changes_pending",
    "Changes of Services whose farms are not written yet.",
    "operator",
)
ENDPOINT_SLICE_CHANGES_PENDING = _gauge(
    "kube_nftlb_rules_endpoints_changes_pending",
    "Changes of EndpointSlices whose farms are not written yet.",
    "operator",
)
SERVICE_SYNC_SECONDS = _histogram(
    "kube_nftlb_service_sync_duration_seconds",
    "Time to reconcile a Service: to build its farms and write the changes.",
    _SHORT,
    "operator",
)
FARMS_APPLIED = _counter(
    "kube_nftlb_farms_applied_total",
    "NftlbFarms that the operator created or updated.",
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
    "kube_nftlb_farms_refused_total", "Writes of NftlbFarms that the API server rejected as invalid.", "operator"
)
FARM_WRITE_RETRIES = _counter(
    "kube_nftlb_farm_write_retries_total",
    "Times that the writes for a Service failed temporarily and were retried.",
    "operator",
)
FARM_STATUSES_WRITTEN = _counter("kube_nftlb_farm_statuses_written_total", "Status updates of NftlbFarms.", "operator")
FARMS = _gauge(
    "kube_nftlb_farms",
    "NftlbFarms in the cluster.",
    "operator",
    state="programmed (on every node), pending (accepted, but not on every node yet), refused (invalid, or another "
    "farm owns one of its listeners)",
)
BACKENDS = _gauge(
    "kube_nftlb_backends", "Backends of all NftlbFarms in the cluster.", "operator", state="ready, not_ready"
)
NODES = _gauge(
    "kube_nftlb_nodes",
    "Nodes with an NftlbNode.",
    "operator",
    state="ready, not_ready (its agent reports that it cannot work)",
)
RELIST_REPAIRS = _counter(
    "kube_nftlb_relist_repairs_total",
    "Differences that a periodic list found and repaired, missed by watches.",
    "operator",
    resource=("services", "endpointslices", "nftlbfarms", "nftlbnodes"),
)
LAST_LIST = _gauge(
    "kube_nftlb_last_list_timestamp_seconds",
    "Unix time of the operator's last complete list.",
    "operator",
)
LEADER = _gauge(
    "kube_nftlb_leader",
    "1 for the leader, 0 for a standby replica. Always 1 without leader election.",
    "operator",
)
WATCH_RESTARTS = _counter(
    "kube_nftlb_watch_restarts_total",
    "Restarts of all watches of kopf after a failure.",
    "operator",
)
QUEUE_LENGTH = _gauge("kube_nftlb_queue_length", "Number of keys in the queue.", "operator", queue=_QUEUES)
QUEUE_STALLED_SECONDS = _gauge(
    "kube_nftlb_queue_stalled_seconds",
    "Time without progress of a queue that has keys due; 0 if none is.",
    "operator",
    queue=_QUEUES,
)

SYNC_SECONDS = _histogram(
    "kube_nftlb_sync_duration_seconds",
    "Time to program a batch of changed farms.",
    _SHORT,
    "agent",
)
LAST_SYNC = _gauge(
    "kube_nftlb_last_sync_timestamp_seconds",
    "Unix time at which the queue was last found empty and everything programmed; 0 before the first time.",
    "agent",
)
LAST_QUEUED = _gauge(
    "kube_nftlb_last_queued_timestamp_seconds",
    "Unix time at which a change was last queued.",
    "agent",
)
LAG_SECONDS = _gauge(
    "kube_nftlb_lag_seconds",
    "Age of the oldest change that is not programmed yet; 0 if there is none.",
    "agent",
)
PROGRAMMING_SECONDS = _histogram(
    "kube_nftlb_network_programming_duration_seconds",
    "Time from the change of a Pod or Service (the trigger time of its EndpointSlices) until it was verified in this "
    "node's kernel. Deletions, and changes before the start of operator or agent, do not count.",
    _LONG,
    "agent",
)
NODE_FARMS = _gauge(
    "kube_nftlb_node_farms",
    "Farms on this node.",
    "agent",
    state="programmed, pending (queued, or not compared with the kernel yet), failed, refused (another farm owns one "
    "of its listeners)",
)
NODE_BACKENDS = _gauge(
    "kube_nftlb_node_backends",
    "Backends programmed on this node.",
    "agent",
    state="up (receives new connections), off (only keeps open connections, or serves clients with a session)",
)
NODE_POLICIES = _gauge("kube_nftlb_node_policies", "NftlbPolicies programmed on this node.", "agent")
FARMS_WITHOUT_LOCAL_BACKENDS = _gauge(
    "kube_nftlb_node_farms_without_local_backends",
    "Farms with trafficPolicy Local and no backend on this node, which drops their connections.",
    "agent",
)
FARMS_FAILED = _counter(
    "kube_nftlb_farms_failed_total",
    "Times that a farm could not be programmed as requested.",
    "agent",
    reason="Invalid, Refused, KernelFeatureMissing, Unsupported, AddressInUse, PolicyMissing, or another reason of "
    "failedFarms",
)
DRIFT_REPAIRED = _counter(
    "kube_nftlb_drift_repaired_total",
    "Times that drift in the kernel was repaired.",
    "agent",
)
KERNEL_COMPARISONS = _counter(
    "kube_nftlb_kernel_comparisons_total",
    "Comparisons of a farm, or of the shared parts of the ruleset, with the kernel.",
    "agent",
    result=("same", "different"),
)
STALE_CONNECTIONS_REMOVED = _counter(
    "kube_nftlb_stale_connections_removed_total",
    "Stale connections and sessions removed after their backend was gone or down. Untranslated: connections from "
    "before the farm existed.",
    "agent",
    reason=("BackendGone", "BackendDown", "Untranslated"),
)
NFTLB_UP = _gauge("kube_nftlb_nftlb_up", "1 if nftlb responded to the last request, else 0.", "agent")
NFTLB_STARTS = _counter("kube_nftlb_nftlb_restarts_total", "Detected restarts of nftlb.", "agent")
NFTLB_REQUEST_SECONDS = _histogram(
    "kube_nftlb_nftlb_request_duration_seconds",
    "Response time of nftlb.",
    _SHORT,
    "agent",
    method=("GET", "POST", "PUT", "PATCH", "DELETE"),
)
NFTLB_REQUESTS_FAILED = _counter(
    "kube_nftlb_nftlb_requests_failed_total",
    "Requests that nftlb did not answer, or refused.",
    "agent",
    reason=("Unreachable", "Refused"),
)


class Page:
    """The metrics page of one program.

    ``refresh`` updates the gauges before they are read. It must not block.
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
        """Return Prometheus' text format 0.0.4 for ``/metrics``, and 404 for any other path."""
        if path != "/metrics":
            return Answer(404, {"error": "only /metrics is served"})
        if self._clock() - self._made_at >= _FRESH_S:
            self._refresh()
            self._text = generate_latest(self._registry)
            self._made_at = self._clock()
        return Answer(200, Text(_TEXT_FORMAT, self._text))


def set_states(gauge: Gauge, counts: Mapping[str, int], states: Collection[str]) -> None:
    """Set a gauge with the label ``state`` for each of these states; 0 for those without a count."""
    for state in states:
        gauge.labels(state).set(counts.get(state, 0))


def _register_process_metrics() -> None:
    """Register process_cpu_seconds_total, process_resident_memory_bytes and the like for each program."""
    for registry in _REGISTRIES.values():
        ProcessCollector(registry=registry)


_register_process_metrics()
