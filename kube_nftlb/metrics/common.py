"""Metrics of both operator and agent, and the page on which each program shows its own."""

import platform
import time
from collections.abc import Callable

from prometheus_client import generate_latest

from kube_nftlb import __version__
from kube_nftlb.http_server import Answer, Text
from kube_nftlb.metrics.registry import PROGRAMS, REGISTRIES, Program, counter, gauge

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
    resource="each kind that the program watches, as kubectl api-resources names it, such as nftlbfarms",
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


_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
_FRESH_S = 0.25
"""Seconds for which a response is cached, so that frequent scrapes cost no more than four per second."""


class Page:
    """The metrics page of one program.

    ``refresh`` updates the gauges before they are read. It must not block.
    """

    def __init__(
        self, program: Program, refresh: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        BUILD_INFO.labels(program, __version__, platform.python_version()).set(1)
        self._registry = REGISTRIES[program]
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
