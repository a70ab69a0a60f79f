"""Answer probes of the agent, and serve those of load balancers."""

import asyncio
import errno
from collections.abc import Callable, Collection
from datetime import UTC, datetime

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.clock import Clock, MonotonicClock
from kube_nftlb.agent.health import proxy_health
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.sync.progress import Lag, Progress
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.environment import ListenAddress
from kube_nftlb.http_server import Answer, Text, serve

_log = structlog.get_logger()

RETRY_S = 5.0
"""The pause before listening on a port in use is retried."""


class AgentHealth:
    """Answers to probes of the agent."""

    def __init__(
        self,
        progress: Progress,
        has_failed: Callable[[FarmKey], bool],
        own_node: OwnNode,
        sync_overdue_s: float,
        clock: Clock = MonotonicClock(),  # noqa: B008 - it has no state
    ) -> None:
        """``has_failed`` returns True for a farm with a problem whose clients no engine serves."""
        self._progress = progress
        self._has_failed = has_failed
        self._own_node = own_node
        self._sync_overdue_s = sync_overdue_s
        self._clock = clock

    def serves(self, farms: Collection[FarmKey]) -> bool:
        """Return True unless all of these farms have failed, once all farms have been programmed.

        False while changes are overdue that may concern these.
        """
        lag = self._progress.lag_of(farms)
        return lag.done_at is not None and not self._overdue(lag) and not all(map(self._has_failed, farms))

    def _overdue(self, lag: Lag) -> bool:
        return lag.overdue(self._sync_overdue_s, self._clock.now())

    def answer(self, path: str) -> Answer:
        """Answer a probe on the port of kube-proxy's health checks."""
        probes = {"/healthz": proxy_health.healthz, "/livez": proxy_health.livez, "/readyz": proxy_health.readyz}
        if path not in probes:
            return Answer(404, {"error": "ask for /healthz, /livez or /readyz"})
        return self._probe(path, probes[path])

    def answer_kubelet(self, path: str) -> Answer | None:
        """Answer a probe of the kubelet, on a port of the agent's own; None for other paths."""
        probes = {"/alive": proxy_health.alive, "/readyz": proxy_health.readyz}
        return self._probe(path, probes[path]) if path in probes else None

    def probe(self, path: str) -> Answer:
        """Answer a probe of the kubelet, on a port that has nothing else."""
        return self.answer_kubelet(path) or Answer(404, {"error": "ask for /alive or /readyz"})

    def _probe(self, path: str, probe: Callable[[proxy_health.Health], Answer]) -> Answer:
        lag = self._progress.node_lag
        began_at = self._progress.began_at
        now = self._clock.now()
        answer = probe(
            proxy_health.Health(
                now=datetime.now(UTC),
                overdue=self._overdue(lag),
                done_s_ago=now - lag.done_at if lag.done_at is not None else None,
                began_s_ago=now - began_at if began_at is not None else 0,
                node_eligible=proxy_health.node_eligible(self._own_node.current, known=self._own_node.known),
                nftlb_error=self._progress.engine_error,
            )
        )
        metrics.PROBES.labels(path, str(answer.status)).inc()
        return answer


def proxy_mode(path: str) -> Answer:
    """Answer what mode kube-proxy would be in, which tests of Kubernetes ask: both engines are nftables."""
    if path != "/proxyMode":
        return Answer(404, {"error": "ask for /proxyMode"})
    return Answer(200, Text("text/plain; charset=utf-8", b"nftables"))


async def serve_when_free(
    answer: Callable[[str], Answer],
    address: ListenAddress,
    clock: Clock = MonotonicClock(),  # noqa: B008 - it has no state
    what: str = "health",
) -> None:
    """Serve on a port of kube-proxy's until cancelled. Waits while the port is in use, perhaps by kube-proxy.

    ``what`` names the port. Raises UsageError if listening fails for another reason.
    """
    logged = False
    while True:
        try:
            server = await serve(answer, address, what)
            break
        except errors.UsageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                raise
        if not logged:
            _log.warning(f"{what} port in use by another process, retrying", port=address.port)
        logged = True
        await clock.sleep(RETRY_S)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
