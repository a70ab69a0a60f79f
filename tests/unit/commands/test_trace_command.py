import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kube_nftlb import errors
from kube_nftlb.cli import app
from kube_nftlb.commands.cluster import trace as command
from kube_nftlb.commands.cluster import trace_names
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.queries import Target
from kube_nftlb.commands.trace import output
from kube_nftlb.commands.trace.result import Outcome, Reason, TraceResult, object_name
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import FARMS, NODES, PODS, Resource
from kube_nftlb.netfilter.tracing.events import Addresses, Event
from kube_nftlb.netfilter.tracing.rules import Rule, chain_of
from kube_nftlb.netfilter.tracing.table import Flow
from tests.builders import raw_farm, raw_node
from tests.builders.pods import raw_pod
from tests.fakes.kube import FakeKube


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("10.96.0.10:80", ("10.96.0.10", 80)),
        ("[fd00:0::10]:443", ("fd00::10", 443)),
        ("10.96.0.10:65535", ("10.96.0.10", 65535)),
    ],
)
def test_destinations(text: str, parsed: tuple[str, int]) -> None:
    assert command.destination(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "10.96.0.10", "10.96.0.10:0", "10.96.0.10:65536", "10.96.0.300:80", "fd00::10:80", "web:80"]
)
def test_what_is_no_destination(text: str) -> None:
    with pytest.raises(errors.UsageError, match="is not an address with a port, such as"):
        command.destination(text)


def test_farms_have_the_names_that_people_know() -> None:
    assert object_name("web--http") == "default/web--http"
    assert object_name("shop.web--http") == "shop/web--http"


def test_an_answer_for_programs_has_each_rule() -> None:
    event = Event(
        1, "ip", "nftlb", "filter-web", "rule", "continue", "", 4, Addresses("10.244.1.9", 4711, "10.96.0.10", 80)
    )
    made = TraceResult("10.244.1.9:4711", "10.96.0.10:80", farm="shop.web", engine="nftlb")
    made.step("choice", "the scheduler: rr, in turn", "filter-web")
    made.outcome = Outcome("Served", "BackendChosen", "sent to 10.244.1.2:80")
    told = json.loads(output.as_json(made, "n1", [event], {(chain_of(event), 4): Rule(("numgen 0",))}))
    assert (told["node"], told["farm"], told["outcome"]["verdict"]) == ("n1", "shop/web", "Served")
    assert told["steps"] == [{"about": "choice", "text": "the scheduler: rr, in turn", "chain": "filter-web"}]
    assert told["events"][0]["rule"] == 4
    assert told["events"][0]["expressions"] == ["numgen 0"]
    assert told["events"][0]["addresses"]["destination"] == "10.96.0.10"


POD = raw_pod("checkout", namespace="shop", spec={"nodeName": "n1"}, status={"podIPs": [{"ip": "10.244.1.9"}]})
NODE = raw_node("n1", addresses={"InternalIP": "192.0.2.11"}, podCIDRs=["10.244.1.0/24"])
AGENT = raw_pod("kube-nftlb-agent-x7k2p", namespace="system", spec={"nodeName": "n1"})
AGENT["metadata"]["labels"] = {"app.kubernetes.io/component": "agent"}
KUBECTL = """\
#!/bin/sh
echo "$@" >> {ran}
echo "waiting" >&2
[ {status} -eq 0 ] || echo "command terminated with exit code {status}" >&2
printf '%s' '{answer}'
exit {status}
"""


class Cluster(FakeKube):
    """Two nodes; ``asked`` are the selectors of lists of pods. ``kubectl`` writes its arguments to a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.asked: list[str | None] = []
        self._folder = folder
        self.kubectl("Served")
        self.agents = [AGENT]
        self.put(PODS, POD)
        self.put(NODES, NODE)
        self.put(NODES, raw_node("n2", addresses={"InternalIP": "192.0.2.12"}))

    def kubectl(self, answer: str, status: int = 0) -> None:
        """Set what kubectl answers."""
        program = self._folder / "kubectl"
        program.write_text(KUBECTL.format(ran=self._folder / "ran", answer=answer, status=status))
        program.chmod(0o755)

    @property
    def ran(self) -> list[str]:
        """The commands that kubectl was given."""
        file = self._folder / "ran"
        return file.read_text().splitlines() if file.exists() else []

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        if resource != PODS:
            return await super().list(resource, namespace, **options)
        self.asked = [options["label_selector"], options["field_selector"]]
        return Listing(self.agents, "1")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)

    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[Cluster]:
        yield cluster

    monkeypatch.setattr(command, "connected", connected)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return cluster


def ask(client: str, target: Target = Target(), **more: Any) -> bool:  # noqa: B008 - immutable
    return asyncio.run(command.trace(target, command.TraceOptions(client, "10.96.0.10:80", **more)))


def test_a_trace_runs_in_the_agents_pod_of_the_clients_node(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not ask("shop/checkout", send=True, output=Format.JSON, seconds=9)
    assert cluster.asked == [
        "app.kubernetes.io/component=agent,app.kubernetes.io/name=kube-nftlb",
        "spec.nodeName=n1,status.phase=Running",
    ]
    (words,) = cluster.ran
    execute, _, there = words.partition(" -- ")
    assert execute == "--namespace system exec --stdin kube-nftlb-agent-x7k2p --container agent"
    # What it is asked there, it understands: the pod's address, and to end with the connection.
    assert there == (
        "kube-nftlb trace 10.244.1.9 10.96.0.10:80 --local --node n1 --until-closed "
        "--protocol TCP --seconds 9 --output json --send"
    )
    assert capfd.readouterr() == ("Served", "waiting\n")
    done = CliRunner().invoke(app, [*there.split()[1:], "--help"])
    assert done.exit_code == 0, done.output


def test_what_came_of_a_trace_elsewhere_is_this_commands_status(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.kubectl("Unseen (NoPacket)", status=1)
    assert ask("shop/checkout")
    assert capfd.readouterr() == ("Unseen (NoPacket)", "waiting\n")
    cluster.kubectl("", status=1)
    with pytest.raises(errors.UnavailableError, match="the trace on n1 ended without a result, with exit status 1"):
        ask("shop/checkout")


def test_the_users_own_command_needs_no_pod_of_an_agent(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    cluster.agents = []
    assert not ask("shop/checkout", node_command="echo {node}")
    assert capfd.readouterr().out.startswith("n1 kube-nftlb trace 10.244.1.9 10.96.0.10:80 --local")


def test_the_node_of_a_client_is_found_by_its_address(cluster: Cluster) -> None:
    cluster.agents = [AGENT, {**AGENT, "spec": {"nodeName": "n2"}}]
    ask("192.0.2.12")
    assert "spec.nodeName=n2,status.phase=Running" in cluster.asked
    ask("10.244.1.200")
    assert "spec.nodeName=n1,status.phase=Running" in cluster.asked
    ask("198.51.100.7", node="n2")
    assert "spec.nodeName=n2,status.phase=Running" in cluster.asked


@pytest.mark.parametrize(
    ("client", "more", "sentence"),
    [
        ("198.51.100.7", {}, "say with --node where it connects"),
        ("198.51.100.7", {"node": "n3"}, "there is no node n3; there are n1, n2"),
        ("fd00::1", {"node": "n1"}, "are of different families"),
        ("shop/nobody", {}, "there is no pod nobody in the namespace shop"),
        ("nobody", {"target": Target(namespace="shop")}, "there is no pod nobody in the namespace shop"),
        ("fd00::1", {"local": True}, "are of different families"),
        ("198.51.100.7", {"local": True, "send": True}, "cannot send from 198.51.100.7: it is neither an address"),
    ],
)
def test_what_cannot_be_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, client: str, more: dict[str, Any], sentence: str
) -> None:
    monkeypatch.setattr("kube_nftlb.netfilter.namespaces.other_networks", dict)
    with pytest.raises(errors.UsageError, match=re.escape(sentence)):
        ask(client, **more)
    assert cluster.ran == []


def test_who_may_not_read_nodes_names_the_one_of_the_client(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(resource: Resource, *_: Any, **__: Any) -> Any:
        raise errors.KubeError(403, "Forbidden", f"{resource.plural} are not yours")

    asked = cluster.list

    async def listed(resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        return await (refuse(resource) if resource == NODES else asked(resource, namespace, **options))

    monkeypatch.setattr(cluster, "get", refuse)
    monkeypatch.setattr(cluster, "list", listed)
    with pytest.raises(errors.UnavailableError, match="may not list Nodes: say with --node where 198"):
        ask("198.51.100.7")
    ask("198.51.100.7", node="n1")
    assert "--local --node n1" in cluster.ran[0]


def test_a_node_without_an_agent(cluster: Cluster) -> None:
    cluster.agents = []
    with pytest.raises(errors.UnavailableError, match="node n1: the agent has no pod there; --node-command says how"):
        ask("shop/checkout")


NODE_PORT = [{"type": "NodePort", "ports": "80"}]


@pytest.mark.parametrize(
    ("reason", "addresses", "farm"),
    [
        ("NoReadyBackends", [{"ip": "10.96.0.10", "ports": "80"}], "web--http"),
        ("NoReadyBackends", [{"ip": "10.96.0.10", "ports": "81"}], ""),
        ("NoReadyBackends", [{"ip": "10.96.0.11", "ports": "80"}], ""),
        ("NoReadyBackends", NODE_PORT, "web--http"),
        ("NoSuchService", NODE_PORT, ""),
    ],
)
async def test_a_farm_that_the_rules_do_not_name_is_named(
    reason: Reason, addresses: list[dict[str, str]], farm: str
) -> None:
    kube, made = FakeKube(), TraceResult(outcome=Outcome("Refused", reason, ""))
    kube.put(FARMS, raw_farm(addresses=addresses))
    await trace_names.name(kube, made, Flow("10.244.1.9", "10.96.0.10", "TCP", 80))
    assert made.farm == farm


async def test_backends_are_named() -> None:
    kube, made = FakeKube(), TraceResult(farm="web--http", backend="10.244.1.2:8080")
    kube.put(FARMS, raw_farm())
    await trace_names.name(kube, made, Flow("10.244.1.9", "10.96.0.10", "TCP", 80))
    assert (made.backend_name, made.engine) == ("pod-a", "nftlb")
