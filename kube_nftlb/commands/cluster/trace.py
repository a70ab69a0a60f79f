"""``kubectl nftlb trace``: on this node, or on another one through its agent's pod or the user's command."""

import asyncio
import contextlib
import ipaddress
import json
import os
import re
import sys
from typing import Final, NamedTuple

from kube_nftlb import errors
from kube_nftlb.api.values import Protocol
from kube_nftlb.commands.cluster import name_arguments, terminal, trace_here, trace_names, trace_probe
from kube_nftlb.commands.cluster.announced import Announced, where
from kube_nftlb.commands.cluster.installation import program_pods
from kube_nftlb.commands.cluster.name_arguments import is_address
from kube_nftlb.commands.cluster.on_nodes import on_nodes
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.queries import AGENT_PODS, Target, connected, list_if_allowed, namespace_of
from kube_nftlb.commands.printable import printable
from kube_nftlb.commands.trace import output
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import NFTLB_NODES
from kube_nftlb.netfilter.tracing.table import Flow

_DESTINATION = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<v4>[0-9.]+)):(?P<port>\d{1,5})")
_PORT_MAX: Final = 65535
_OF_KUBECTL: Final = b"command terminated with exit code"
_UNREAD_S: Final = 5
"""Maximum time in seconds for the API server to name things: a trace does not need it."""


class TraceOptions(NamedTuple):
    """The arguments of the command."""

    client: str
    destination: str
    protocol: Protocol = "TCP"
    node: str = ""
    send: bool = False
    local: bool = False
    seconds: float = 30
    output: Format = Format.TEXT
    until_closed: bool = False
    """End when standard input is closed, as when the connection to this container breaks."""
    node_command: str | None = None


async def trace(target: Target, options: TraceOptions) -> bool:
    """Trace a connection, and print what happened to it. Return True if no packet came.

    Raises UsageError if there is no such client or node, and UnavailableError if nothing can be run on the node.
    """
    ip, port = destination(options.destination)
    if is_address(options.client) and _version(options.client) != _version(ip):
        raise errors.UsageError(f"{options.client} and {ip} are of different families")
    if options.node:
        name_arguments.checked(options.node, "name of a node")
    if options.local and is_address(options.client):
        return await _on_this_node(
            target, options, Flow(_address(options.client), ip, options.protocol, port), options.node
        )
    async with connected(target) as kube:
        client = await trace_names.client(kube, _client(target, options), _version(ip), options.node)
        flow = Flow(client.ip, ip, options.protocol, port)
        if options.local:
            return await _on_this_node(target, options, flow, options.node or client.node)
        if not (node := options.node or client.node):
            raise errors.UsageError(f"{client.ip} is no node's or pod's address: say with --node where it connects")
        ips = await trace_names.node_addresses(kube, node)
        if said := where(ip, Announced(await list_if_allowed(kube, NFTLB_NODES) or ())):
            # Connections of clients on the segment come to that node, whichever is traced.
            terminal.note(f"{ip} is {said}")
        if os.geteuid() == 0 and ips & trace_probe.addresses():
            return await _on_this_node(target, options, flow, node)
        return await _on_another_node(kube, target, options, flow, node)


async def _on_this_node(target: Target, options: TraceOptions, flow: Flow, node: str) -> bool:
    sender = trace_probe.prober(flow.client) if options.send else None

    def ready() -> None:
        if sender is None:
            line = f"waiting {options.seconds:.0f} s for {flow.client} to connect to {flow.ip} port {flow.port}"
            terminal.note(line)

    tracing = asyncio.create_task(trace_here.trace(flow, options.seconds, sender, ready))
    closed = asyncio.create_task(_closed()) if options.until_closed else None
    await asyncio.wait([tracing, *([closed] if closed else [])], return_when=asyncio.FIRST_COMPLETED)
    if not tracing.done():
        tracing.cancel()
        await asyncio.gather(tracing, return_exceptions=True)
        return True
    traced = await tracing
    result = traced.result
    with contextlib.suppress(errors.KubeNftlbError, TimeoutError):
        async with asyncio.timeout(_UNREAD_S), connected(target) as kube:
            await trace_names.name(kube, result, flow)
    if options.output is Format.TEXT:
        print(printable(output.text(result, node)))
    else:
        terminal.show_data(json.loads(output.as_json(result, node, traced.events, traced.rules)), options.output)
    return result.outcome is None or result.outcome.verdict == "Unseen"


async def _on_another_node(kube: Kube, target: Target, options: TraceOptions, flow: Flow, node: str) -> bool:
    """Have the same command run on a node; what it says on standard error comes as it says it."""
    running = f"spec.nodeName={node},status.phase=Running"
    pods = () if options.node_command else await program_pods(kube, target, AGENT_PODS, running)
    try:
        prefix = on_nodes(target, options.node_command, pods).prefix(node, stdin=True)
    except errors.UsageError as error:
        raise errors.UnavailableError(f"node {node}: {error}; on the node itself, as root, use --local") from None
    command = ["kube-nftlb", "trace", flow.client, options.destination, "--local", "--node", node, "--until-closed"]
    # Programs of other versions know these names, and no output but text and json.
    as_text = Format.TEXT if options.output is Format.TEXT else Format.JSON
    command += ["--protocol", flow.protocol, "--seconds", str(options.seconds), "--output", as_text]
    command += ["--send"] if options.send else []
    pipe = asyncio.subprocess.PIPE
    try:
        # Its standard input ends with this program, and with it the trace on the node.
        process = await asyncio.create_subprocess_exec(*prefix, *command, stdin=pipe, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise errors.UnavailableError(f"cannot run {prefix[0]}: {errors.why(error)}") from error
    assert process.stdin  # noqa: S101 (narrows the type)
    assert process.stdout  # noqa: S101 (narrows the type)
    assert process.stderr  # noqa: S101 (narrows the type)
    answer, _ = await asyncio.gather(process.stdout.read(), _show_errors(process.stderr))
    process.stdin.close()
    status = await process.wait()
    if not answer:
        raise errors.UnavailableError(f"the trace on {node} ended without a result, with exit status {status}")
    if options.output is Format.YAML:
        terminal.show_data(json.loads(answer), options.output)
    else:
        sys.stdout.write(printable(answer.decode(errors="replace")))
    return bool(status)


async def _show_errors(stream: asyncio.StreamReader) -> None:
    async for line in stream:
        # The status is this command's own.
        if not line.startswith(_OF_KUBECTL):
            terminal.note(line.decode(errors="replace").removesuffix("\n"))


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


def destination(text: str) -> tuple[str, int]:
    """Return the address and port of VIP:PORT. Raises UsageError."""
    found = _DESTINATION.fullmatch(text)
    if found is None or not 0 < int(found["port"]) <= _PORT_MAX or not is_address(found["v4"] or found["v6"]):
        raise errors.UsageError(f"{text!r} is not an address with a port, such as 10.96.0.10:80 or [fd00::10]:80")
    return _address(found["v4"] or found["v6"]), int(found["port"])


def _client(target: Target, options: TraceOptions) -> str:
    """Return an address in its usual form, or NAMESPACE/POD; a pod alone is in the namespace that is meant."""
    text = options.client
    if is_address(text):
        return _address(text)
    namespace, pod = name_arguments.split(text)
    return f"{namespace or namespace_of(target)}/{pod}"


def _version(text: str) -> int:
    return ipaddress.ip_address(text).version


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))
