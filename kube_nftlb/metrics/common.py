"""Metrics of both operator and agent."""

from kube_nftlb.metrics.registry import PROGRAMS, counter, gauge

BUILD_INFO = gauge(
    "kube_nftlb_build_info",
    "Always 1; the labels have the versions.",
    *PROGRAMS,
    program="operator, agent",
    version="version of kube-nftlb",
    python="version of Python",
)
API_REQUESTS = counter(
    "kube_nftlb_api_requests_total",
    "Requests to the API server, except those of kopf. A watch counts when it starts.",
    *PROGRAMS,
    method="GET, POST, PATCH, DELETE",
    code="HTTP status, or error without a response",
)
WATCH_FAILURES = counter(
    "kube_nftlb_watch_failures_total",
    "Lists and watches that failed and were restarted. Those of kopf are in kube_nftlb_watch_restarts_total.",
    *PROGRAMS,
    resource="nftlbfarms, nftlbpolicies, nodes, servicecidrs; of the operator: endpointslices, nftlbfarms, nftlbnodes, "
    "pods, nftlbpolicies",
    reason="Expired (objects are listed again), Failed",
)
PROBES = counter(
    "kube_nftlb_probes_total",
    "Responses to probes.",
    *PROGRAMS,
    path="/healthz, /livez, /alive, /readyz",
    code="200, 503",
)
EVENTS = counter("kube_nftlb_events_total", "Kubernetes Events sent.", *PROGRAMS, reason="reason of the Event")
