"""``kubectl nftlb drain`` and ``undrain``: ask, write, and wait for open connections to end."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from kube_nftlb import errors
from kube_nftlb.commands.cluster import drain_count, drain_plan, node_addresses, terminal
from kube_nftlb.commands.cluster.drain_count import Look
from kube_nftlb.commands.cluster.drain_plan import ANNOTATION, DRAIN, Member, Plan, PodRef
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.queries import (
    Target,
    connected,
    get_or_none,
    list_if_allowed,
    namespace_of,
    slices_for,
)
from kube_nftlb.commands.view import ClusterView, referred
from kube_nftlb.endpointslices.slices import SERVED_SLICES
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NODES, PODS, JsonObject


class DrainOptions(NamedTuple):
    """The options of ``drain``."""

    force: bool = False
    wait: bool = True
    timeout_s: float | None = None
    output: Format = Format.TEXT


class _Found(NamedTuple):
    what: str
    plan: Plan
    states: Mapping[PodRef, str | None]
    """The state that the annotation of each Pod says."""
    open_node: str
    """The node that is meant if it takes new Pods, which do not drain; else empty."""
    announcing: str
    """The node that is meant if it may announce addresses; else empty."""
    is_node: bool
    look: Look
    """Returns the backends among which these were found, as they are now."""


async def drain(target: Target, name: str, options: DrainOptions) -> bool:
    """Drain a backend or a node. Return True if connections are, or may be, still open when the time is up.

    Raises UsageError if there is no such backend, or if it is the last one of a farm.
    """
    async with connected(target) as kube:
        found = await _find(kube, target, name)
        plan = _drainable(found, options)
        if plan.emptied and not options.force:
            farms = ", ".join("/".join(each) for each in plan.emptied)
            raise errors.UsageError(
                f"{found.what} is the last backend of {farms}, which would refuse new connections: --force drains it"
            )
        if not plan.members and not found.announcing:
            return False
        # Before anything is written, of which the rest may be refused.
        _note(options, f"undo: kubectl nftlb undrain {name}")
        if found.announcing:
            # Before its backends: clients of the addresses come to it.
            _note(options, await node_addresses.hand_over(kube, found.announcing))
        if not plan.members:
            return False
        await _write_annotations(kube, [pod for pod in plan.pods if pod in found.states], DRAIN)
        for edit in plan.edits:
            await _apply(kube, edit, edit.entry)
        _note(options, f"{found.what} drains: no new connections of {_counted(plan.members)}")
        if found.open_node:
            note = f"node {found.open_node} still takes new Pods: kubectl cordon {found.open_node} keeps them off"
            _note(options, note)
        if not options.wait:
            return False
        since = await drain_count.taken_over(kube, plan)
        shows = options.output is Format.TEXT
        count = await drain_count.count_down(kube, plan, since, found.look, timeout_s=options.timeout_s, shows=shows)
    if count is None:
        terminal.note("open connections are not counted: you may not list NftlbNodes, which tell")
        return False
    if options.output is not Format.TEXT:
        uncounted = sorted((*count.uncounted, *count.silent))
        unknown = {"silentNodes": uncounted, "untoldNodes": list(count.partial)}
        terminal.show_data({"connections": count.total, "byNode": dict(count.by_node), **unknown}, options.output)
    return not count.done or bool(count.silent)


def _drainable(found: _Found, options: DrainOptions) -> Plan:
    """Return the plan without backends in another state, which are out as they are and keep no node from being drained.

    Raises UsageError for one that was asked for by itself.
    """
    others = drain_plan.others(found.plan.members, found.states)
    if others and not found.is_node:
        raise errors.UsageError(str(next(iter(others.values()))))
    out = {drained: other for drained, other in others.items() if other.is_out}
    for other in out.values():
        _note(options, f"{other}: it gets no new connections as it is")
    return found.plan.without(out)


async def undrain(target: Target, name: str) -> None:
    """Give a backend, or the backends of a node, connections again. Raises UsageError if there is no such."""
    async with connected(target) as kube:
        found = await _find(kube, target, name)
        if found.announcing:
            await node_addresses.take_back(kube, found.announcing)
        await _write_annotations(kube, [pod for pod, state in found.states.items() if state == DRAIN], None)
        written = {edit.farm: await _apply(kube, edit, None) for edit in found.plan.edits}
    others = drain_plan.others(found.plan.members, found.states, written)
    if served := [each for each in found.plan.members if each.drained not in others]:
        terminal.note(f"{found.what} gets connections of {_counted(served)} again")
    for other in others.values():
        terminal.note(f"{other}, which undrain leaves")


async def _referring(kube: Kube, namespace: str) -> list[JsonObject]:
    """Return the farms of other namespaces with backends in this one, as far as the user may see them."""

    def refers(raw: JsonObject) -> JsonObject | None:
        elsewhere = raw["metadata"]["namespace"] != namespace
        return raw if elsewhere and any(each.namespace == namespace for each in referred(raw)) else None

    return await list_if_allowed(kube, FARMS, transform=refers) or []


async def _find(kube: Kube, target: Target, name: str) -> _Found:
    """Return what a name means: ``pod/NAME``, ``node/NAME``, or the one of them that there is."""
    kind, _, plain = name.rpartition("/")
    if kind not in ("", "pod", "node"):
        raise errors.UsageError(f"{name!r} must be a pod, a backend, an address, or a node: pod/NAME or node/NAME")
    namespace = namespace_of(target)
    async with terminal.progress("asking the API server"):
        node = await get_or_none(kube, NODES, plain) if kind != "pod" else None
        # Who drains a backend need not see other namespaces.
        look = partial(_members, kube, namespace, everywhere=node is not None)
        everything = await look()
    backends = [] if kind == "node" else drain_plan.of_backend(plain, namespace, everything)
    if node is not None:
        if backends:
            raise errors.UsageError(f"{plain!r} is a backend and a node: say pod/{plain} or node/{plain}")
        chosen, what = drain_plan.of_node(plain, everything), f"node {plain}"
        open_node = plain if not (node.get("spec") or {}).get("unschedulable") else ""
    else:
        chosen, what, open_node = backends, f"backend {namespace}/{plain}", ""
    announcing = plain if node is not None and await node_addresses.in_use(kube) else ""
    if not chosen and not announcing:
        hint = "no farm has a backend there" if node is not None else f"namespace {namespace}"
        raise errors.UsageError(f"no backend or node {plain!r} ({hint})")
    plan, problems = drain_plan.plan(chosen, everything)
    for problem in problems:
        terminal.note(problem)
    if not plan.members and not announcing:
        raise errors.UsageError(f"nothing of {what} can be drained")
    pods = await asyncio.gather(*(drain_count.pod_or_none(kube, pod) for pod in plan.pods))
    states = {pod: drain_plan.state_of(raw) for pod, raw in zip(plan.pods, pods, strict=True) if raw is not None}
    return _Found(what, plan, states, open_node, announcing, node is not None, look)


async def _members(kube: Kube, namespace: str, *, everywhere: bool) -> list[Member]:
    """Return the backends of the farms of all namespaces, or of those with backends in this one."""
    where = None if everywhere else namespace
    farms, slices = await asyncio.gather(
        kube.list(FARMS, where, not_older_than="0"),
        kube.list(ENDPOINT_SLICES, where, label_selector=SERVED_SLICES, not_older_than="0"),
    )
    foreign = [] if everywhere else await _referring(kube, namespace)
    more = await slices_for(kube, foreign)
    return drain_plan.members(ClusterView([*farms.items, *foreign], slices=[*slices.items, *more]))


async def _write_annotations(kube: Kube, pods: Iterable[PodRef], state: str | None) -> None:
    for pod in pods:
        with contextlib.suppress(errors.NotFoundError):
            await kube.patch(PODS, pod.name, {"metadata": {"annotations": {ANNOTATION: state}}}, pod.namespace)


async def _apply(kube: Kube, edit: drain_plan.FarmEdit, entry: JsonObject | None) -> JsonObject:
    """Write the entry of a backend, or take it back. Return the farm with it."""
    body: JsonObject = {"metadata": {"namespace": edit.farm.namespace, "name": edit.farm.name}}
    if entry is not None:
        body["spec"] = entry
    return await kube.apply(FARMS, body, field_manager=edit.manager)


def _counted(members: Iterable[Member]) -> str:
    farms = sorted({"/".join(each.farm) for each in members})
    return farms[0] if len(farms) == 1 else f"{len(farms)} farms"


def _note(options: DrainOptions, note: str) -> None:
    if options.output is Format.TEXT:
        terminal.note(note)
