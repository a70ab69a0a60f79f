"""``kube-nftlb trace``: on this node, on another one through its agent's pod, or from the objects alone."""

import asyncio
import contextlib
import io
import ipaddress
import json
import os
import re
import sys
from typing import Final, NamedTuple

from kube_nftlb import errors
from kube_nftlb.api.values import Protocol
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.asking import Target, connected, namespace_of
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.trace import forecast, objects, on_node, output, probe
from kube_nftlb.kube import exec as remote
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import PODS
from kube_nftlb.netfilter.tracing.table import Flow

_DESTINATION = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<v4>[0-9.]+)):(?P<port>\d{1,5})")
_PORT_MAX: Final = 65535
_AGENTS: Final = "app.kubernetes.io/component=agent,app.kubernetes.io/name=kube-nftlb"
_CONTAINER: Final = "agent"
_USER_AGENT: Final = "kube-nftlb-trace"
_UNREAD_S: Final = 5
"""Maximum time in seconds for the API server to name things: a trace does not need it."""


class Question(NamedTuple):
    """The arguments of the command."""

    client: str
    destination: str
    protocol: Protocol = "TCP"
    node: str = ""
    send: bool = False
    local: bool = False
    dry_run: bool = False
    seconds: float = 30
    format: Format = Format.TEXT
    until_closed: bool = False
    """End when standard input is closed, as when the connection to this container breaks."""
    target: Target = Target()


def run(question: Question) -> int:
    """Answer a question on standard output. Return the exit status: 1 if no packet was seen. Raises KubeNftlbError."""
    return asyncio.run(_run(question))


async def _run(question: Question) -> int:
    ip, port = destination(question.destination)
    if question.local and _is_address(question.client):
        return await _here(question, Flow(_address(question.client), ip, question.protocol, port), question.node)
    async with connected(question.target, _USER_AGENT) as kube:
        client = await objects.client(kube, _client(question), ipaddress.ip_address(ip).version)
        flow = Flow(client.ip, ip, question.protocol, port)
        if question.local:
            return await _here(question, flow, question.node or client.node)
        if not (node := question.node or client.node):
            raise errors.UsageError(f"{client.ip} is no node's or pod's address: say with --node where it connects")
        there = await objects.node_addresses(kube, node)
        if question.dry_run:
            made = forecast.forecast(flow, question.protocol, await objects.gathered(kube, node, flow))
            return _print(question, on_node.Traced(made), node)
        if os.geteuid() == 0 and there & probe.addresses():
            return await _here(question, flow, node)
        return await _there(kube, question, flow, node)


async def _here(question: Question, flow: Flow, node: str) -> int:
    if ipaddress.ip_address(flow.client).version != ipaddress.ip_address(flow.ip).version:
        raise errors.UsageError(f"{flow.client} and {flow.ip} are of different families")
    sender = probe.prober(flow.client) if question.send else None

    def ready() -> None:
        if sender is None:
            told = f"waiting {question.seconds:.0f} s for {flow.client} to connect to {flow.ip} port {flow.port}"
            print(told, file=sys.stderr, flush=True)

    tracing = asyncio.create_task(on_node.trace(flow, question.seconds, sender, ready))
    closed = asyncio.create_task(_closed()) if question.until_closed else None
    await asyncio.wait([tracing, *([closed] if closed else [])], return_when=asyncio.FIRST_COMPLETED)
    if not tracing.done():
        tracing.cancel()
        await asyncio.gather(tracing, return_exceptions=True)
        return 1
    traced = await tracing
    with contextlib.suppress(errors.KubeNftlbError, TimeoutError):
        async with asyncio.timeout(_UNREAD_S), connected(question.target, _USER_AGENT) as kube:
            await objects.name(kube, traced.passage, flow)
    return _print(question, traced, node)


async def _there(kube: Kube, question: Question, flow: Flow, node: str) -> int:
    pods = (
        await kube.list(PODS, label_selector=_AGENTS, field_selector=f"spec.nodeName={node},status.phase=Running")
    ).items
    if not pods:
        raise errors.UnavailableError(
            f"the node {node} has no pod of an agent to trace in; on the node itself, as root, use --local"
        )
    metadata = pods[0]["metadata"]
    command = ["kube-nftlb", "trace", flow.client, question.destination, "--local", "--node", node, "--until-closed"]
    # Programs of other versions know these names, and no output but text and json.
    as_text = Format.TEXT if question.format is Format.TEXT else Format.JSON
    command += ["--protocol", flow.protocol, "--seconds", str(question.seconds), "--output", as_text]
    command += ["--send"] if question.send else []

    answer = io.BytesIO()

    def show(data: bytes, to_error: bool) -> None:
        stream = sys.stderr if to_error else sys.stdout
        if question.format is Format.YAML and not to_error:
            answer.write(data)
            return
        stream.buffer.write(data)
        stream.flush()

    pod = (metadata["namespace"], metadata["name"])
    status = await remote.run(kube.configuration, pod, _CONTAINER, command, show)
    if answer.getvalue():
        terminal.show_data(json.loads(answer.getvalue()), question.format)
    return status


async def _closed() -> None:
    """Return when standard input is closed."""
    loop, closed = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 1 << 10):
            closed.set()

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        await closed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())


def _print(question: Question, traced: on_node.Traced, node: str) -> int:
    made = traced.passage
    if question.format is Format.TEXT:
        print(output.text(made, node))
    else:
        terminal.show_data(json.loads(output.document(made, node, traced.events, traced.rules)), question.format)
    return int(made.outcome is None or made.outcome.verdict == "Unseen")


def destination(text: str) -> tuple[str, int]:
    """Return the address and port of VIP:PORT. Raises UsageError."""
    found = _DESTINATION.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= _PORT_MAX or not _is_address(found["v4"] or found["v6"]):
        raise errors.UsageError(f"{text!r} is not an address with a port, such as 10.96.0.10:80 or [fd00::10]:80")
    return _address(found["v4"] or found["v6"]), int(found["port"])


def _client(question: Question) -> str:
    """Return an address in its usual form, or NAMESPACE/POD; a pod alone is in the namespace that is meant."""
    text = question.client
    if _is_address(text):
        return _address(text)
    return text if "/" in text else f"{namespace_of(question.target)}/{text}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))
