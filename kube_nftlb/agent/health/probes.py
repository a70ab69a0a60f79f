"""The agent's answers to probes, and the ports that farms have for load balancers in front of the nodes."""

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
from kube_nftlb.agent.health.service_health import Check, Claim
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
"""Changes that come together are taken together."""
RETRY_S = 5.0
"""How often a port that could not be had is tried again."""


class Problem(NamedTuple):
    """Why a port cannot be answered on."""

    reason: AgentEvent
    message: str


class AgentHealth:
    """The agent's state, as probes ask for it."""

    def __init__(self, progress: Progress, own_node: OwnNode, sync_overdue_s: float) -> None:
        self._progress = progress
        self._own_node = own_node
        self._sync_overdue_s = sync_overdue_s

    @property
    def serves(self) -> bool:
        """Whether the farms have been programmed, and their changes are in time."""
        return self._progress.backlog.done_at is not None and not self._overdue

    @property
    def _overdue(self) -> bool:
        return self._progress.backlog.overdue(self._sync_overdue_s, time.monotonic())

    def answer(self, path: str) -> Answer:
        """What is answered on the port that is known as kube-proxy's."""
        if path == "/proxyMode":
            return Answer(200, {"mode": "nftlb"})
        probes = {"/healthz": proxy_health.healthz, "/livez": proxy_health.livez, "/readyz": proxy_health.readyz}
        if path not in probes:
            return Answer(404, {"error": "ask for /healthz, /livez, /readyz or /proxyMode"})
        return self._probe(path, probes[path])

    def answer_kubelet(self, path: str) -> Answer | None:
        """What is answered where the kubelet asks, which must be nobody else's port; None for what is no probe."""
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
    """Answer at the address where load balancers ask, as soon as nobody else does: kube-proxy may still be there.

    Ends only when cancelled. Raises UsageError where it cannot be listened on for another reason.
    """
    told = False
    while True:
        try:
            server = await serve(state.answer, address)
            break
        except errors.UsageError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
                raise
        if not told:
            _log.warning("somebody else answers to load balancers' probes", port=address.port)
        told = True
        await asyncio.sleep(RETRY_S)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


class HealthCheckPorts:
    """The servers of the farms' healthCheckNodePorts; ``hosts`` tells the addresses that they listen on."""

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
        self._claims: dict[FarmKey, Claim] = {}
        self._checks: dict[int, Check] = {}
        self._servers: dict[int, HttpServer] = {}
        self._troubled: set[Subject] = set()
        self._wake = asyncio.Event()

    # What the watch tells. These return at once.

    def put(self, farm: Farm) -> None:
        """A farm was created or changed."""
        self._set(_key(farm), service_health.claim(farm, self._node))

    def remove(self, key: FarmKey) -> None:
        """A farm was deleted."""
        self._set(key, None)

    def replace_all(self, farms: Iterable[Farm]) -> None:
        """The complete list: what is not on it is gone."""
        present = {_key(farm): farm for farm in farms}
        for key in self._claims.keys() - present.keys():
            self.remove(key)
        for farm in present.values():
            self.put(farm)

    def _set(self, key: FarmKey, claim: Claim | None) -> None:
        if self._claims.get(key) == claim:
            return
        if claim is None:
            del self._claims[key]
        else:
            self._claims[key] = claim
        self._wake.set()

    # The servers.

    async def run(self) -> None:
        """Open and close ports until cancelled."""
        try:
            while True:
                try:
                    await asyncio.wait_for(self._wake.wait(), RETRY_S if self._troubled else None)
                except TimeoutError:
                    pass
                else:
                    await asyncio.sleep(SETTLE_S)
                self._wake.clear()
                self._tell(await self._apply())
        finally:
            for server in self._servers.values():
                server.close()

    async def _apply(self) -> dict[Subject, list[Problem]]:
        """Bring the ports to what the farms say; what is in the way of it."""
        self._checks, refused = service_health.decide(self._claims.values())
        for port in self._servers.keys() - self._checks.keys():
            self._servers.pop(port).close()
        problems = defaultdict[Subject, list[Problem]](list)
        for port, check in self._checks.items():
            if port not in self._servers and (trouble := await self._open(port)):
                problems[check.subject].append(self._problem(port, trouble))
        for subject, port, holder in refused:
            trouble = f"it is the port of the {holder.resource.kind} {holder.namespace}/{holder.name}"
            problems[subject].append(self._problem(port, trouble))
        return problems

    async def _open(self, port: int) -> str:
        """Listen on a port; in words, why that is not possible, else empty."""
        limit = _servers_max()
        if len(self._servers) >= limit:
            return f"it answers on {limit} such ports at most, half of its limit of open files"
        server = HttpServer(lambda _path: self._answer(port))
        try:
            await server.listen(self._hosts(), port)
        except OSError as error:
            return error.strerror or str(error)
        self._servers[port] = server
        return ""

    def _answer(self, port: int) -> Answer:
        if (check := self._checks.get(port)) is None:
            # Somebody asked at the moment at which the port was closed.
            return Answer(404, {"error": "no Service has this port any more"})
        return service_health.answer(check, proxy_healthy=self._state.serves)

    def _problem(self, port: int, trouble: str) -> Problem:
        return Problem(
            "FailedToStartServiceHealthcheck",
            f"node {self._node} cannot answer on the healthCheckNodePort {port}: {trouble}",
        )

    def _tell(self, problems: dict[Subject, list[Problem]]) -> None:
        for subject in self._troubled | problems.keys():
            self._events.report(subject, problems.get(subject, ()))
        self._troubled = set(problems)


def _servers_max() -> int:
    """Each takes a file descriptor; half of them are for connections, above all those to nftlb and the API server."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit // 2


def _key(farm: Farm) -> FarmKey:
    return FarmKey(farm.metadata.namespace, farm.metadata.name)
