"""The servers of the healthCheckNodePorts on the loopback address, and the agent's own answers."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from kube_nftlb import errors
from kube_nftlb.agent.health import probes
from kube_nftlb.agent.health.health_check_ports import HealthCheckPorts
from kube_nftlb.agent.health.probes import AgentHealth
from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.sync.progress import Problem, Progress
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.environment import ListenAddress
from kube_nftlb.kube.event_limits import Finding
from kube_nftlb.kube.events import Subject
from tests.builders import farm, raw_backend
from tests.fakes.clock import FakeClock
from tests.fakes.events import RecordingEvents
from tests.ports import free_port

KEY = FarmKey("default", "web--http")
WEB, API = ("Service web", ""), ("Service api", "")
POLICY = Path(__file__).parents[4] / "charts/kube-nftlb/admission/agent-events.yaml"
"""Of these Events the API server takes those alone whose messages have the form that the policy gives."""


def admitted() -> re.Pattern[str]:
    (policy, _) = yaml.safe_load_all(POLICY.read_text())
    (form,) = (each["expression"] for each in policy["spec"]["variables"] if each["name"] == "isOfPort")
    return re.compile("".join(re.findall("'([^']*)'", form.partition("variables.message.matches(")[2])))


class AdmittedEvents(RecordingEvents):
    """None of them is one that the chart's admission policy refuses."""

    def __init__(self) -> None:
        super().__init__()
        self._admitted = admitted()

    def report(self, subject: Subject, findings: Iterable[Finding], about: str = "") -> None:
        findings = list(findings)
        assert all(self._admitted.search(finding.message) for finding in findings)
        super().report(subject, findings, about)


def failed(_: FarmKey) -> bool:
    return False


class Agent:
    def __init__(self, ports_max: int | None = None) -> None:
        self.events, self.progress, self.clock = AdmittedEvents(), Progress(), FakeClock()
        self.unserved: set[FarmKey] = set()
        self.progress.other_lag.advanced((1,), (0,), self.clock.now(), pending=False)
        state = AgentHealth(self.progress, lambda key: key in self.unserved, OwnNode("node-1"), 60, self.clock)
        self.hosts: tuple[str, ...] = ("127.0.0.1",)
        self.ports = HealthCheckPorts("node-1", state, self.events, lambda: self.hosts, self.clock, ports_max)
        self.task = asyncio.create_task(self.ports.run())

    async def ask(self, port: int) -> tuple[int, dict[str, Any]]:
        """The status and the body; status 0 where nobody listens."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
        except ConnectionError:
            return 0, {}
        if not head:
            return 0, {}
        return int(head.split()[1]), json.loads(body)

    async def until_status(self, port: int, status: int) -> dict[str, Any]:
        async with asyncio.timeout(20):
            while True:
                # Not while ports are opened and closed: a connection that comes just then may never be answered.
                for _ in range(10):
                    await asyncio.sleep(0)
                found, body = await self.ask(port)
                if found == status:
                    return body


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    async with serving() as agent:
        yield agent


@contextlib.asynccontextmanager
async def serving(ports_max: int | None = None) -> AsyncIterator[Agent]:
    agent = Agent(ports_max)
    yield agent
    agent.task.cancel()
    await asyncio.gather(agent.task, return_exceptions=True)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0)


def balanced(port: int | None, *backends: dict[str, Any], name: str = "web--http", owner: str = "web") -> Farm:
    return farm(name, owner=owner, healthCheckNodePort=port, backends=list(backends))


LOCAL = raw_backend("a", "10.244.1.2", nodeName="node-1")


async def test_a_port_follows_its_farm(agent: Agent) -> None:
    port, other = free_port(), free_port()
    agent.ports.put(balanced(port, LOCAL))
    body = await agent.until_status(port, 200)
    assert body["service"] == {"namespace": "default", "name": "web"}
    agent.ports.put(balanced(port))
    assert (await agent.until_status(port, 503))["localEndpoints"] == 0
    agent.ports.put(balanced(other, LOCAL))
    await agent.until_status(other, 200)
    assert await agent.ask(port) == (0, {})
    agent.ports.put(balanced(None, LOCAL))
    await agent.until_status(other, 0)


async def test_ports_follow_the_addresses_of_the_node(agent: Agent) -> None:
    port, other = free_port(), free_port()
    agent.ports.put(balanced(port, LOCAL))
    agent.ports.put(balanced(other, LOCAL, name="api--http", owner="api"))
    await agent.until_status(port, 200)
    agent.hosts = ("127.0.0.2",)
    agent.ports.hosts_changed()
    await agent.until_status(port, 0)
    await agent.until_status(other, 0)
    agent.hosts = ("127.0.0.2", "127.0.0.1")
    agent.ports.hosts_changed()
    await agent.until_status(port, 200)
    await agent.until_status(other, 200)


async def test_an_address_that_cannot_be_listened_on_takes_no_other_away(agent: Agent) -> None:
    port = free_port()
    agent.ports.put(balanced(port, LOCAL))
    await agent.until_status(port, 200)
    # Nobody has it: of documentation (RFC 5737).
    agent.hosts = ("192.0.2.1", "127.0.0.1")
    agent.ports.hosts_changed()
    await until(lambda: bool(agent.events.reported.get(WEB)))
    assert (await agent.ask(port))[0] == 200
    agent.hosts = ("127.0.0.1",)
    agent.ports.hosts_changed()
    await until(lambda: agent.events.reported[WEB] == [])
    assert (await agent.ask(port))[0] == 200


async def test_a_port_closes_with_its_farm_and_with_a_list_without_it(agent: Agent) -> None:
    port, other = free_port(), free_port()
    agent.ports.replace_all([balanced(port, LOCAL), balanced(other, LOCAL, name="api--http", owner="api")])
    await agent.until_status(other, 200)
    agent.ports.remove(KEY)
    await agent.until_status(port, 0)
    agent.ports.replace_all([])
    await agent.until_status(other, 0)


async def test_an_agent_without_programmed_farms_sends_load_balancers_away(agent: Agent) -> None:
    port = free_port()
    agent.progress.other_lag.done_at = None
    agent.ports.put(balanced(port, LOCAL))
    body = await agent.until_status(port, 503)
    assert (body["localEndpoints"], body["serviceProxyHealthy"]) == (1, False)
    agent.progress.other_lag.advanced((1,), (0,), agent.clock.now(), pending=False)
    assert (await agent.until_status(port, 200))["serviceProxyHealthy"] is True
    agent.progress.other_lag.queued((2,), agent.clock.now() - 61)
    await agent.until_status(port, 503)


async def test_farms_that_wait_for_nftlb_send_load_balancers_away_from_their_own_service_alone(agent: Agent) -> None:
    port, other, progress = free_port(), free_port(), agent.progress
    agent.ports.put(balanced(port, LOCAL))
    agent.ports.put(balanced(other, LOCAL, name="api--http", owner="api"))
    progress.lag.advanced((1,), (0,), agent.clock.now(), pending=False)
    progress.lag.queued((2,), agent.clock.now() - 61)
    progress.problems[FarmKey("default", "api--http")] = Problem("NftlbUnreachable", "it hangs")
    assert (await agent.until_status(other, 503))["serviceProxyHealthy"] is False
    await agent.until_status(port, 200)


async def test_a_node_that_serves_no_farm_of_a_service_sends_load_balancers_away(agent: Agent) -> None:
    port = free_port()
    agent.ports.put(balanced(port, LOCAL))
    agent.ports.put(balanced(port, LOCAL, name="web--https"))
    agent.unserved.add(KEY)
    await agent.until_status(port, 200)
    agent.unserved.add(FarmKey("default", "web--https"))
    body = await agent.until_status(port, 503)
    assert (body["localEndpoints"], body["serviceProxyHealthy"]) == (1, False)


@pytest.mark.parametrize(("is_mostly_nftlb", "status"), [(False, 200), (True, 503)])
def test_farms_that_wait_for_nftlb_count_for_the_node_if_most_are_nftlbs(is_mostly_nftlb: bool, status: int) -> None:
    progress, clock = Progress(is_mostly_nftlb=is_mostly_nftlb), FakeClock()
    progress.lag.queued((2,), clock.now() - 61)
    state = AgentHealth(progress, failed, OwnNode("node-1"), 60, clock)
    assert [state.answer(path).status for path in ("/healthz", "/livez")] == [status, status]


async def test_a_port_that_is_taken_is_told_stops_no_other_and_is_tried_again(agent: Agent) -> None:
    free = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        agent.ports.put(balanced(port, LOCAL))
        agent.ports.put(balanced(free, LOCAL, name="api--http", owner="api"))
        await agent.until_status(free, 200)
        ((reason, message),) = agent.events.reported[WEB]
        assert reason == "FailedToStartServiceHealthcheck"
        assert message.startswith("node node-1 cannot listen on the health")
        assert f"{port}: Address already in use" in message
        assert API not in agent.events.reported
    await agent.until_status(port, 200)
    await until(lambda: agent.events.reported[WEB] == [])


async def test_a_port_that_an_older_service_has_is_told(agent: Agent) -> None:
    port = free_port()
    agent.ports.put(balanced(port, LOCAL, name="api--http", owner="api"))
    agent.ports.put(balanced(port, LOCAL))
    assert (await agent.until_status(port, 200))["service"]["name"] == "api"
    await until(lambda: WEB in agent.events.reported)
    assert "the Service default/api has the same port" in agent.events.reported[WEB][0][1]
    agent.ports.remove(FarmKey("default", "api--http"))
    await until(lambda: agent.events.reported[WEB] == [])
    assert (await agent.ask(port))[1]["service"]["name"] == "web"


async def test_so_many_ports_are_opened_that_files_are_left_for_nftlb() -> None:
    async with serving(ports_max=1) as agent:
        first, second = free_port(), free_port()
        agent.ports.put(balanced(first, LOCAL))
        await agent.until_status(first, 200)
        agent.ports.put(balanced(second, LOCAL, name="api--http", owner="api"))
        await until(lambda: API in agent.events.reported)
        assert "the limit of 1 ports" in agent.events.reported[API][0][1]
        assert await agent.ask(second) == (0, {})


async def test_the_ports_close_with_the_agent(agent: Agent) -> None:
    port = free_port()
    agent.ports.put(balanced(port, LOCAL))
    await agent.until_status(port, 200)
    agent.task.cancel()
    await agent.until_status(port, 0)


def test_the_agent_answers_from_its_progress_and_its_node() -> None:
    progress, own_node, clock = Progress(), OwnNode("node-1"), FakeClock()
    state = AgentHealth(progress, failed, own_node, 60, clock)
    assert [state.answer(path).status for path in ("/healthz", "/livez", "/readyz", "/")] == [200, 200, 503, 404]
    progress.other_lag.advanced((1,), (0,), clock.now(), pending=False)
    own_node.update(CoreNode.model_validate({"metadata": {"name": "node-1"}}))
    assert [state.answer(path).status for path in ("/healthz", "/livez", "/readyz")] == [200, 200, 200]
    own_node.update(None)
    assert [state.answer(path).status for path in ("/healthz", "/livez", "/readyz")] == [503, 200, 200]
    progress.other_lag.queued((2,), clock.now() - 61)
    assert [state.answer(path).status for path in ("/healthz", "/livez", "/readyz")] == [503, 503, 200]
    answers = [state.answer_kubelet(path) for path in ("/alive", "/readyz", "/metrics")]
    assert [answer and answer.status for answer in answers] == [200, 200, None]


async def test_the_agent_answers_load_balancers_once_kube_proxy_has_stopped(agent: Agent) -> None:
    state, clock = AgentHealth(agent.progress, failed, OwnNode("node-1"), 60, agent.clock), FakeClock()
    with socket.create_server(("127.0.0.1", 0)) as kube_proxy:
        port = kube_proxy.getsockname()[1]
        task = asyncio.create_task(probes.serve_when_free(state.answer, ListenAddress("127.0.0.1", port), clock))
        tried_at = clock.now()
        await until(lambda: clock.now() > tried_at)
        assert not task.done()
    await agent.until_status(port, 404)
    task.cancel()
    await agent.until_status(port, 0)


async def test_a_health_address_that_no_interface_has_is_told() -> None:
    state = AgentHealth(Progress(), failed, OwnNode("node-1"), 60)
    with pytest.raises(errors.UsageError, match=r"cannot listen on health address 198\.51\.100\.1:1:"):
        await probes.serve_when_free(state.answer, ListenAddress("198.51.100.1", 1))


async def test_the_mode_is_told_as_kube_proxy_does_once_its_port_is_free(agent: Agent) -> None:
    clock = FakeClock()
    with socket.create_server(("127.0.0.1", 0)) as kube_proxy, capture_logs() as logs:
        port = kube_proxy.getsockname()[1]
        address = ListenAddress("127.0.0.1", port)
        task = asyncio.create_task(probes.serve_when_free(probes.proxy_mode, address, clock, "proxy mode"))
        tried_at = clock.now()
        await until(lambda: clock.now() > tried_at + 5 * probes.RETRY_S)
        assert not task.done()
    assert [log["event"] for log in logs] == ["proxy mode port in use by another process, retrying"]
    async with asyncio.timeout(20):
        while (await agent.ask(port))[0] != 404:
            await asyncio.sleep(0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /proxyMode HTTP/1.1\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 200 " in head.splitlines()[0]
    assert b"Content-Type: text/plain" in head
    assert body == b"nftables"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
