"""``kubectl nftlb sysdump``: all that a bug report needs, in one archive, without secrets."""

import asyncio
import io
import json
import secrets
import tarfile
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from kube_nftlb import __version__, errors
from kube_nftlb.commands.cluster import status as pages
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.findings import find
from kube_nftlb.commands.cluster.installation import program_pods
from kube_nftlb.commands.cluster.on_nodes import OnNodes, on_nodes, run
from kube_nftlb.commands.cluster.options import Hide
from kube_nftlb.commands.cluster.overview import overview
from kube_nftlb.commands.cluster.queries import PROGRAMS, Target, connected
from kube_nftlb.commands.cluster.redact import Redactor, cleaned
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.endpointslices.slices import SERVED_SLICES
from kube_nftlb.kube import resources
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import JsonObject, Resource

NODES_MAX = 10
_LOG_LINES = 5000
_FILE_MAX = 64 << 20
_AT_ONCE = 4
_OURS = "kube-nftlb"
_TABLES = ("ip nftlb", "ip6 nftlb", "netdev nftlb", "inet kube-nftlb", "inet kube-nftlb-services")
_ASKED = {
    **{f"nft-{table.replace(' ', '-')}.txt": ("nft", "list", "table", *table.split()) for table in _TABLES},
    "nftlb-farms.json": ("kube-nftlb", "nftlb", "GET", "/farms"),
}
"""The commands on a node, by the name of the file for their output."""
_UNANSWERED = (errors.KubeError, errors.KubeUnreachableError)
"""What one request may end with, though others are answered."""
_ABSENT = "No such file or directory"


class SysdumpOptions(NamedTuple):
    """The options of ``sysdump``."""

    file: Path | None = None
    hide: tuple[Hide, ...] = ()
    nodes: tuple[str, ...] = ()
    node_command: str | None = None


class _Kind(NamedTuple):
    resource: Resource
    namespaced: bool = False
    """True if the option of a namespace limits it."""
    labels: str | None = None
    fields: str | None = None


_KINDS = (
    _Kind(resources.NODES),
    _Kind(resources.NFTLB_NODES),
    _Kind(resources.CRDS),
    _Kind(resources.FARMS, True),
    _Kind(resources.POLICIES, True),
    _Kind(resources.SERVICES, True),
    _Kind(resources.ENDPOINT_SLICES, True, SERVED_SLICES),
    _Kind(resources.ADDRESS_POOLS),
    _Kind(resources.BGP_PEERS),
    _Kind(resources.LEASES),
    _Kind(resources.DAEMON_SETS, labels=PROGRAMS),
    _Kind(resources.DEPLOYMENTS, labels=PROGRAMS),
    _Kind(resources.PODS, labels=PROGRAMS),
    _Kind(resources.EVENTS, True),
)

_OWN = frozenset(kind.resource.plural for kind in _KINDS if kind.resource.custom)
_LIMITED = frozenset(kind.resource.plural for kind in _KINDS if kind.namespaced)


_Objects = tuple[str, list[JsonObject], str]
"""The objects of a kind, by its plural, or why they cannot be read."""


class _Part(NamedTuple):
    """A file of the archive, or why it is missing."""

    name: str
    text: str
    problem: str = ""


async def sysdump(target: Target, options: SysdumpOptions) -> tuple[Path, list[str]]:
    """Write the archive; return its path, and a sentence for each part that is missing.

    Raises UsageError if a node does not exist or the file cannot be written, KubeUnreachableError or KubeError if the
    API server tells nothing at all, and NotFoundError if kube-nftlb is not installed.
    """
    now = datetime.now(UTC)
    path = options.file or Path(f"kube-nftlb-sysdump-{now:%Y%m%d-%H%M%S}.tar.gz")
    async with terminal.progress("collecting objects, logs, and what nodes have"), connected(target) as kube:
        # Logs name farms of all namespaces.
        everywhere = Hide.NAMES in options.hide
        objects = [part async for part in _objects(kube, None if everywhere else target.namespace)]
        seen, failed = await _overview(kube, target, objects)
        date = kube.servers.now
        nodes = _nodes(seen, options.nodes, date) if failed is None or seen.nodes else sorted(options.nodes)
        on_each = on_nodes(target, options.node_command, seen.pods or ())
        parts = [_summary(seen, failed, date), *(_object_part(*each, target.namespace) for each in objects)]
        parts += [part async for part in _logs(kube, seen.pods)]
        parts += await _from_nodes(on_each, nodes)
    known = {name for _, raws, _ in objects for raw in raws for name in _names(raw)}
    missing = [f"{part.name}: {part.problem}" for part in parts if part.problem]
    redactor = Redactor(options.hide, secrets.token_bytes(16), known)
    parts.append(_Part("README.txt", _about(options, now, nodes, missing)))
    try:
        # nobody else may read it before it was looked through
        path.touch(mode=0o600)
        path.write_bytes(_archive(path.name.removesuffix(".tar.gz"), parts, redactor, now))
    except OSError as error:
        raise errors.UsageError(f"cannot write {path}: {errors.why(error)}") from error
    return path, missing


def _nodes(seen: ClusterView, wanted: tuple[str, ...], now: datetime) -> list[str]:
    """Return the nodes to ask: those named, or some, those with problems first."""
    names = {str(raw["metadata"]["name"]) for raw in seen.nodes}
    if unknown := set(wanted) - names:
        raise errors.UsageError(f"no node {', '.join(sorted(unknown))}")
    if wanted:
        return sorted(wanted)
    ill = {each.name for each in find(seen, now) if each.kind == "node"}
    return sorted(names, key=lambda name: (name not in ill, name))[:NODES_MAX]


async def _overview(kube: Kube, target: Target, objects: Sequence[_Objects]) -> tuple[ClusterView, str | None]:
    """Return the state of the cluster; if a request for it fails, its Nodes and pods alone, and the error.

    Raises that error if nothing else was answered either, or if no kind of kube-nftlb is known.
    """
    try:
        return await overview(kube, target, target.namespace), None
    except _UNANSWERED as error:
        answered = {plural for plural, _, problem in objects if not problem}
        if not answered or (isinstance(error, errors.NotFoundError) and not answered & _OWN):
            raise
        failed = str(error)
    nodes = next(raws for plural, raws, _ in objects if plural == resources.NODES.plural)
    try:
        return ClusterView(nodes=nodes, pods=await program_pods(kube, target, PROGRAMS)), failed
    except _UNANSWERED:
        return ClusterView(nodes=nodes), failed


def _summary(seen: ClusterView, failed: str | None, now: datetime) -> _Part:
    if failed is not None:
        return _Part("status.json", "", failed)
    return _Part("status.json", json.dumps(pages.status_json(seen, find(seen, now), now), indent=1))


async def _objects(kube: Kube, namespace: str | None) -> AsyncIterator[_Objects]:
    """Yield the objects of each kind, or why they cannot be read."""
    try:
        yield "version", [{"metadata": {}, "client": __version__, "server": await kube.request("GET", "/version")}], ""
    except _UNANSWERED as error:
        yield "version", [], str(error)
    for kind in _KINDS:
        where = namespace if kind.namespaced else None
        try:
            listed = await kube.list(kind.resource, where, label_selector=kind.labels, field_selector=kind.fields)
        except _UNANSWERED as error:
            yield kind.resource.plural, [], str(error)
            continue
        yield kind.resource.plural, [raw for raw in listed.items if _concerns(kind.resource, raw)], ""


def _concerns(resource: Resource, raw: JsonObject) -> bool:
    if resource == resources.EVENTS:
        return _OURS in str(raw.get("reportingComponent") or (raw.get("source") or {}).get("component"))
    return resource != resources.CRDS or raw["spec"]["group"] == resources.FARMS.group


def _object_part(plural: str, raws: list[JsonObject], problem: str, namespace: str | None) -> _Part:
    limited = namespace is not None and plural in _LIMITED
    objects = [cleaned(raw) for raw in raws if not limited or raw["metadata"]["namespace"] == namespace]
    return _Part(f"objects/{plural}.json", json.dumps(objects, indent=1), problem)


def _names(raw: JsonObject) -> Iterable[str]:
    """Return the names in an object that belong to its owner."""
    metadata = raw["metadata"]
    if (raw.get("kind"), str((raw.get("spec") or {}).get("group"))) == (resources.CRDS.kind, resources.FARMS.group):
        return
    yield from (str(metadata[key]) for key in ("name", "namespace") if metadata.get(key))
    for endpoint in raw.get("endpoints") or ():
        if name := (endpoint.get("targetRef") or {}).get("name"):
            yield str(name)


async def _logs(kube: Kube, pods: Iterable[JsonObject] | None) -> AsyncIterator[_Part]:
    if pods is None:
        yield _Part("logs", "", "the pods of operator and agents cannot be listed")
    for pod in pods or ():
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        for container in pod["spec"]["containers"]:
            for previous in (False, True):
                query = {"container": container["name"], "tailLines": str(_LOG_LINES)}
                file = f"logs/{name}.{container['name']}{'.previous' if previous else ''}.log"
                try:
                    path = resources.PODS.path(namespace, name, "log")
                    text = await kube.text(path, {**query, "previous": str(previous).lower()})
                except _UNANSWERED as error:
                    # Most containers have never restarted.
                    if not previous:
                        yield _Part(file, "", str(error))
                    continue
                yield _Part(file, text)


async def _ask(nodes: OnNodes, node: str, file: str, command: tuple[str, ...]) -> _Part | None:
    """Return what a node answers; None if it is about a table that no farm needs."""
    ran = await run(nodes, node, *command)
    return None if _ABSENT in ran.problem else _Part(f"nodes/{node}/{file}", ran.output, ran.problem)


async def _from_nodes(on_each: OnNodes, nodes: Iterable[str]) -> list[_Part]:
    """Return what the kernel and nftlb of each node have."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask(node: str) -> list[_Part]:
        async with turns:
            try:
                on_each.prefix(node)
            except errors.UsageError as error:
                return [_Part(f"nodes/{node}", "", str(error))]
            return [part for each in _ASKED.items() if (part := await _ask(on_each, node, *each)) is not None]

    return [part for parts in await asyncio.gather(*map(ask, nodes)) for part in parts]


def _about(options: SysdumpOptions, now: datetime, nodes: Iterable[str], missing: Iterable[str]) -> str:
    hidden = ", ".join(options.hide) or "nothing else"
    lines = [
        f"A dump of kube-nftlb, by kubectl nftlb sysdump {__version__}, {now:%Y-%m-%d %H:%M:%S} UTC.",
        "Left out: Secrets (never read), environment variables, arguments, annotations of others, field managers.",
        f"Hidden: {hidden}. Nodes asked: {', '.join(nodes) or 'none'}.",
        "Look through it before you publish it: logs and nftables name Services, and client addresses of sessions.",
        "",
        *(["Missing:", *missing] if (missing := list(missing)) else ["Nothing is missing."]),
    ]
    return "\n".join(lines) + "\n"


def _archive(folder: str, parts: Iterable[_Part], redactor: Redactor, now: datetime) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for part in parts:
            if part.problem and not part.text:
                continue
            data = redactor.text(part.text).encode()[-_FILE_MAX:]
            info = tarfile.TarInfo(f"{folder}/{redactor.text(part.name)}")
            info.size, info.mtime = len(data), int(now.timestamp())
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
