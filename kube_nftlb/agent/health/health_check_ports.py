"""Serve the farms' healthCheckNodePorts."""

import asyncio
import resource
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kube_nftlb.agent.clock import Clock, MonotonicClock
from kube_nftlb.agent.health import service_health
from kube_nftlb.agent.health.probes import AgentHealth
from kube_nftlb.agent.health.service_health import Check, PortRequest
from kube_nftlb.api.conflicts import FarmKey, farm_key
from kube_nftlb.api.farm import Farm
from kube_nftlb.http_server import ALL_ADDRESSES, Answer, Connections, HttpServer
from kube_nftlb.kube.events import Events, Subject
from kube_nftlb.reasons import AgentEvent

SETTLE_S = 0.1
"""Changes within this time are applied together."""
RETRY_S = 5.0
"""The pause before listening on a port in use is retried."""


class PortFailure(NamedTuple):
    """The reason that the agent does not listen on a port."""

    reason: AgentEvent
    message: str


class HealthCheckPorts:
    """Serves the farms' healthCheckNodePorts, on the addresses that ``hosts`` returns."""

    def __init__(
        self,
        node: str,
        state: AgentHealth,
        events: Events,
        hosts: Callable[[], tuple[str, ...]] = lambda: (ALL_ADDRESSES,),
        clock: Clock = MonotonicClock(),  # noqa: B008 - it has no state
        ports_max: int | None = None,
    ) -> None:
        """``ports_max`` is half of the limit of open files if it is None."""
        self._node = node
        self._state = state
        self._events = events
        self._hosts = hosts
        self._clock = clock
        self._ports_max = _ports_max() if ports_max is None else ports_max
        self._requests: dict[FarmKey, PortRequest] = {}
        self._checks: dict[int, Check] = {}
        self._servers: dict[tuple[int, str], HttpServer] = {}
        """By port and address: one that cannot be listened on takes no other away."""
        self._connections: Connections = {}
        """To all of them: tenants choose how many there are."""
        self._failing: set[Subject] = set()
        self._wake = asyncio.Event()

    # Handlers of the watch, which return at once.

    def put(self, farm: Farm) -> None:
        """Add or replace a farm."""
        self._set(farm_key(farm), service_health.port_request(farm, self._node))

    def remove(self, key: FarmKey) -> None:
        """Remove a farm."""
        self._set(key, None)

    def replace_all(self, farms: Iterable[Farm]) -> None:
        """Replace all farms."""
        present = {farm_key(farm): farm for farm in farms}
        for key in self._requests.keys() - present.keys():
            self.remove(key)
        for farm in present.values():
            self.put(farm)

    def hosts_changed(self) -> None:
        """Listen on the addresses that ``hosts`` returns now."""
        if self._requests:
            self._wake.set()

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
                if not self._failing:
                    await self._wake.wait()
                if self._wake.is_set() or await self._clock.wait(self._wake, RETRY_S):
                    await self._clock.sleep(SETTLE_S)
                self._wake.clear()
                self._tell(await self._apply())
        finally:
            for server in self._servers.values():
                server.close()

    async def _apply(self) -> dict[Subject, list[PortFailure]]:
        """Open and close ports as the farms need; return the failures by object."""
        self._checks, conflicts = service_health.decide(self._requests.values())
        hosts = self._hosts()
        wanted = {(port, host) for port in self._checks for host in hosts}
        # Before any is opened: one of the addresses may be all of them.
        for each in self._servers.keys() - wanted:
            self._servers.pop(each).close()
        problems = defaultdict[Subject, list[PortFailure]](list)
        for port, check in self._checks.items():
            closed = (host for host in hosts if (port, host) not in self._servers)
            if reasons := [reason for host in closed if (reason := await self._open(port, host)) is not None]:
                problems[check.subject].append(self._problem(port, reasons[0]))
        for subject, port, owner in conflicts:
            reason = f"the {owner.resource.kind} {owner.namespace}/{owner.name} has the same port"
            problems[subject].append(self._problem(port, reason))
        return problems

    async def _open(self, port: int, host: str) -> str | None:
        """Listen on a port of an address; return why that failed, or None."""
        if len(self._servers) >= self._ports_max:
            return f"the limit of {self._ports_max} ports is reached, half of the limit of open files"
        server = HttpServer(lambda _path: self._answer(port), shared=self._connections)
        try:
            await server.listen([host], port)
        except OSError as error:
            return error.strerror or str(error)
        self._servers[port, host] = server
        return None

    def _answer(self, port: int) -> Answer:
        if (check := self._checks.get(port)) is None:
            # The port was closed during the request.
            return Answer(404, {"error": "no Service has this port anymore"})
        return service_health.answer(check, proxy_healthy=self._state.serves(check.farms))

    def _problem(self, port: int, reason: str) -> PortFailure:
        return PortFailure(
            "FailedToStartServiceHealthcheck",
            f"node {self._node} cannot listen on the healthCheckNodePort {port}: {reason}",
        )

    def _tell(self, problems: dict[Subject, list[PortFailure]]) -> None:
        for subject in self._failing | problems.keys():
            self._events.report(subject, problems.get(subject, ()))
        self._failing = set(problems)


def _ports_max() -> int:
    """Return half of the limit of open files; the rest is for connections, to nftlb and the API server above all."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit // 2
