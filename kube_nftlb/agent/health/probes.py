"""Serve health probes: of the agent, and on the farms' healthCheckNodePorts."""

import asyncio
import errno
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from kube_nftlb import errors, metrics
from kube_nftlb.agent.health import proxy_health, service_health
from kube_nftlb.agent.health.service_health import Check, PortRequest
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.sync.progress import Progress
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.http_server import ALL_ADDRESSES, Answer, HttpServer, serve
from kube_nftlb.kube.events import Events, Subject
from kube_nftlb.reasons import AgentEvent
from kube_nftlb.settings import ListenAddress

_log = structlog.get_logger()

SETTLE_S = 0.1
"""Changes within this time are applied together."""
RETRY_S = 5.0
"""How often listening on a port in use is retried."""


class PortFailure(NamedTuple):
    """Why the agent does not listen on a port."""

    reason: AgentEvent
    message: str


class AgentHealth:
    """Answers to probes of the agent."""

    def __init__(self, progress: Progress, own_node: OwnNode, sync_overdue_s: float) -> None:
        self._progress = progress
        self._own_node = own_node
        self._sync_overdue_s = sync_overdue_s

    @property
    def serves(self) -> bool:
        """True once all farms have been programmed, unless changes are overdue."""
        return self._progress.backlog.done_at is not None and not self._overdue

    @property
    def _overdue(self) -> bool:
        return self._progress.backlog.overdue(self._sync_overdue_s, time.monotonic())

    def answer(self, path: str) -> Answer:
        """Answer a probe on the port of kube-proxy's health checks."""
        if path == "/proxyMode":
            return Answer(200, {"mode": "nftlb"})
        probes = {"/healthz": proxy_health.healthz, "/livez": proxy_health.livez, "/readyz": proxy_health.readyz}
        if path not in probes:
            return Answer(404, {"error": "ask for /healthz, /livez, /readyz or /proxyMode"})
        return self._probe(path, probes[path])

    def answer_kubelet(self, path: str) -> Answer | None:
        """Answer a probe of the kubelet, on a port of the agent's own; None for other paths."""
        probes = {"/alive": proxy_health.alive, "/readyz": proxy_health.readyz}
        return self._probe(path, probes[path]) if path in probes else None

    def _probe(self, path: str, probe: Callable[[proxy_health.Health], Answer]) -> Answer:
        done_at = self._progress.backlog.done_at
        began_at = self._progress.began_at
        now = time.monotonic()
        answer = probe(
            proxy_health.Health(
                now=datetime.now(UTC),
                overdue=self._overdue,
                done_s_ago=now - done_at if done_at is not None else None,
                began_s_ago=now - began_at if began_at is not None else 0,
                node_eligible=proxy_health.node_eligible(self._own_node.current, known=self._own_node.known),
                nftlb_error=self._progress.nftlb_error,
            )
        )
        metrics.PROBES.labels(path, str(answer.status)).inc()
        return answer


async def serve_health(state: AgentHealth, address: ListenAddress) -> None:
    """Serve load balancers' probes until cancelled. Waits while the port is in use, perhaps by kube-proxy.

    Raises UsageError if listening fails for another reason.
    """
    logged = False
    while True:
        try:
            server = await serve(state.answer, address)
            break
        except errors.UsageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                raise
        if not logged:
            _log.warning("health check port in use by another process, retrying", port=address.port)
        logged = True
        await asyncio.sleep(RETRY_S)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


class HealthCheckPorts:
    """Serves the farms' healthCheckNodePorts, on the addresses that ``hosts`` returns."""

    def __init__(
        self,
        node: str,
        state: AgentHealth,
        events: Events,
        hosts: Callable[[], tuple[str, ...]] = lambda: (ALL_ADDRESSES,),
    ) -> None:
        self._node = node
        self._state = state
        self._events = events
        self._hosts = hosts
        self._requests: dict[FarmKey, PortRequest] = {}
        self._checks: dict[int, Check] = {}
        self._servers: dict[int, HttpServer] = {}
        self._failing: set[Subject] = set()
        self._wake = asyncio.Event()

    # Handlers of the watch, which return at once.

    def put(self, farm: Farm) -> None:
        """Add or replace a farm."""
        self._set(_key(farm), service_health.port_request(farm, self._node))

    def remove(self, key: FarmKey) -> None:
        """Remove a farm."""
        self._set(key, None)

    def replace_all(self, farms: Iterable[Farm]) -> None:
        """Replace all farms."""
        present = {_key(farm): farm for farm in farms}
        for key in self._requests.keys() - present.keys():
            self.remove(key)
        for farm in present.values():
            self.put(farm)

    def _set(self, key: FarmKey, request: PortRequest | None) -> None:
        if self._requests.get(key) == request:
            return
        if request is None:
            del self._requests[key]
        else:
            self._requests[key] = request
        self._wake.set()

    # Servers.

    async def run(self) -> None:
        """Open and close ports until cancelled."""
        try:
            while True:
                try:
                    await asyncio.wait_for(self._wake.wait(), RETRY_S if self._failing else None)
                except TimeoutError:
                    pass
                else:
                    await asyncio.sleep(SETTLE_S)
                self._wake.clear()
                self._tell(await self._apply())
        finally:
            for server in self._servers.values():
                server.close()

    async def _apply(self) -> dict[Subject, list[PortFailure]]:
        """Open and close ports as the farms need; return the failures by object."""
        self._checks, conflicts = service_health.decide(self._requests.values())
        for port in self._servers.keys() - self._checks.keys():
            self._servers.pop(port).close()
        problems = defaultdict[Subject, list[PortFailure]](list)
        for port, check in self._checks.items():
            if port not in self._servers and (reason := await self._open(port)):
                problems[check.subject].append(self._problem(port, reason))
        for subject, port, owner in conflicts:
            reason = f"the {owner.resource.kind} {owner.namespace}/{owner.name} has the same port"
            problems[subject].append(self._problem(port, reason))
        return problems

    async def _open(self, port: int) -> str | None:
        """Listen on a port; return why that failed, or None."""
        limit = _servers_max()
        if len(self._servers) >= limit:
            return f"the limit of {limit} ports is reached, half of the limit of open files"
        server = HttpServer(lambda _path: self._answer(port))
        try:
            await server.listen(self._hosts(), port)
        except OSError as error:
            return error.strerror or str(error)
        self._servers[port] = server
        return None

    def _answer(self, port: int) -> Answer:
        if (check := self._checks.get(port)) is None:
            # The port was closed during the request.
            return Answer(404, {"error": "no Service has this port anymore"})
        return service_health.answer(check, proxy_healthy=self._state.serves)

    def _problem(self, port: int, reason: str) -> PortFailure:
        return PortFailure(
            "FailedToStartServiceHealthcheck",
            f"node {self._node} cannot listen on the healthCheckNodePort {port}: {reason}",
        )

    def _tell(self, problems: dict[Subject, list[PortFailure]]) -> None:
        for subject in self._failing | problems.keys():
            self._events.report(subject, problems.get(subject, ()))
        self._failing = set(problems)


def _servers_max() -> int:
    """Return half of the limit of open files; the rest is for connections, to nftlb and the API server above all."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit // 2


def _key(farm: Farm) -> FarmKey:
    return FarmKey(farm.metadata.namespace, farm.metadata.name)
