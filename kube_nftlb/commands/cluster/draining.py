"""``kubectl nftlb drain`` and ``undrain``: ask, write, and wait for open connections to end."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kube_nftlb import errors
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.commands.cluster import drain_count, drain_plan, drain_states, node_addresses, terminal
from kube_nftlb.commands.cluster.drain_connections import Open
from kube_nftlb.commands.cluster.drain_lookup import Meant, farms_and_slices, look_up
from kube_nftlb.commands.cluster.drain_plan import ANNOTATION, DRAIN, Member, Plan, PodRef
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.queries import Target, connected, get_if_present, get_or_none
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import FARMS, PODS, JsonObject

_NOTHING_OPEN = Open({}, ())
"""The count where nothing drains."""


class DrainOptions(NamedTuple):
    """The options of ``drain``."""

    force: bool = False
    wait: bool = True
    timeout_s: float | None = None
    output: Format = Format.TEXT


async def drain(target: Target, name: str, options: DrainOptions) -> bool:
    """Drain a backend or a node. Return True if connections are, or may be, still open when the time is up.

    Raises UsageError if there is no such backend, or if it is the last one of a farm.
    """
    async with connected(target) as kube:
        meant = await look_up(kube, target, name)
        plan, states = await _drainable(kube, meant, options)
        if plan.emptied and not options.force:
            farms = ", ".join("/".join(each) for each in plan.emptied)
            raise errors.UsageError(
                f"{meant.what} is the last backend of {farms}, which would refuse new connections: --force drains it"
            )
        if not plan.members and not meant.announcing:
            return _ended(_NOTHING_OPEN, options)
        # Before anything is written, of which the rest may be refused.
        _note(options, f"undo: kubectl nftlb undrain {name}")
        if meant.announcing:
            # Before its backends: clients of the addresses come to it.
            _note(options, await node_addresses.hand_over(kube, meant.name))
        if not plan.members:
            return _ended(_NOTHING_OPEN, options)
        await _write_annotations(kube, [pod for pod in plan.pods if pod in states], DRAIN)
        for edit in plan.edits:
            await _apply(kube, edit.farm, edit.manager, edit.entry)
        _note(options, f"{meant.what} is to drain: no new connections of {_counted(plan.members)}")
        if meant.node is not None and not (meant.node.get("spec") or {}).get("unschedulable"):
            _note(options, f"{meant.what} still takes new Pods: kubectl cordon {meant.name} keeps them off")
        if not options.wait:
            return _ended(None, options)
        since = await drain_count.taken_over(kube, plan)
        shows = options.output is Format.TEXT
        look = partial(farms_and_slices, kube, meant.namespace, everywhere=meant.node is not None)
        count = await drain_count.count_down(kube, plan, since, look, timeout_s=options.timeout_s, shows=shows)
    if count is None:
        terminal.note("open connections are not counted: you may not list NftlbNodes, which tell")
    return _ended(count, options)


def _ended(count: Open | None, options: DrainOptions) -> bool:
    """Print for programs what is open in the end. Return True if connections are, or may be, still open.

    The number of connections is null without a count, and where nodes have not counted.
    """
    found = count or _NOTHING_OPEN
    if options.output is not Format.TEXT:
        total = None if count is None or count.uncounted else count.total
        nodes = {"uncountedNodes": found.uncounted, "silentNodes": found.silent, "untoldNodes": found.partial}
        terminal.show_data({"connections": total, "byNode": dict(found.by_node), **nodes}, options.output)
    return not found.done or bool(found.silent)


async def _drainable(kube: Kube, meant: Meant, options: DrainOptions) -> tuple[Plan, Mapping[PodRef, str | None]]:
    """Return the plan, and the states of its Pods. Backends in another state are out as they are.

    Raises UsageError if nothing can be drained, or for a backend in another state that was asked for by itself.
    """
    if not meant.chosen and not meant.announcing:
        raise meant.nothing()
    plan, problems = drain_plan.plan(meant.chosen, meant.everything, meant.node_name)
    for problem in problems:
        terminal.note(problem)
    if not plan.members and not meant.announcing:
        raise errors.UsageError(f"nothing of {meant.what} can be drained")
    states = await _states(kube, plan.pods)
    others = drain_states.others(plan.members, states)
    if others and meant.node is None:
        raise errors.UsageError(str(next(iter(others.values()))))
    out = {drained: other for drained, other in others.items() if other.is_out}
    for other in out.values():
        _note(options, f"{other}: it gets no new connections as it is")
    return plan.without(out), states


async def undrain(target: Target, name: str) -> None:
    """Give a backend, or the backends of a node, connections again, also where they have moved to.

    Raises UsageError if there is nothing of that name.
    """
    async with connected(target) as kube:
        meant = await look_up(kube, target, name)
        plan, _ = drain_plan.plan(meant.chosen, meant.everything, meant.node_name)
        states = await _states(kube, plan.pods)
        if (pod := meant.pod) is not None and (raw := await get_or_none(kube, PODS, pod.name, pod.namespace)):
            # It may have no endpoint any more.
            states[pod] = drain_states.state_of(raw)
        drained = [pod for pod, state in states.items() if state == DRAIN]
        applied = drain_plan.applied(meant.view.farms, plan.edits, meant.node_name, meant.pod)
        if not (plan.members or meant.announcing or drained or applied):
            raise meant.nothing()
        if meant.announcing:
            await node_addresses.take_back(kube, meant.name)
        await _write_annotations(kube, drained, None)
        own = [(edit.farm, edit.manager) for edit in plan.edits]
        managers = dict.fromkeys([*own, *((each.farm, each.manager) for each in applied)])
        written = {farm: await _apply(kube, farm, manager, None) for farm, manager in managers}
    others = drain_states.others(plan.members, states, written)
    if served := [each for each in plan.members if each.drained not in others]:
        terminal.note(f"{meant.what} gets connections of {_counted(served)} again")
    for other in others.values():
        terminal.note(f"{other}, which undrain leaves")
    known = {each.drained for each in plan.members}
    elsewhere = {f"pod {'/'.join(pod)}": False for pod in drained if pod not in known}
    for farm, backend, _ in applied:
        if (farm, backend) not in known:
            still = DRAIN in drain_states.states_in(written[farm], backend)
            elsewhere[f"{backend} of farm {'/'.join(farm)}"] = still
    for what, still in elsewhere.items():
        terminal.note(f"{what} {'still drains, by another drain or the manifest' if still else 'no longer drains'}")


async def _states(kube: Kube, pods: Sequence[PodRef]) -> dict[PodRef, str | None]:
    """Return the states that the annotations of Pods say; a Pod may have gone since its endpoints were listed."""
    raws = await asyncio.gather(*(get_if_present(kube, PODS, pod.name, pod.namespace) for pod in pods))
    return {pod: drain_states.state_of(raw) for pod, raw in zip(pods, raws, strict=True) if raw is not None}


async def _write_annotations(kube: Kube, pods: Iterable[PodRef], state: str | None) -> None:
    for pod in pods:
        with contextlib.suppress(errors.NotFoundError):
            await kube.patch(PODS, pod.name, {"metadata": {"annotations": {ANNOTATION: state}}}, pod.namespace)


async def _apply(kube: Kube, farm: FarmKey, manager: str, entry: JsonObject | None) -> JsonObject:
    """Write the entry of a backend, or take it back. Return the farm with it."""
    body: JsonObject = {"metadata": {"namespace": farm.namespace, "name": farm.name}}
    if entry is not None:
        body["spec"] = entry
    return await kube.apply(FARMS, body, field_manager=manager)


def _counted(members: Iterable[Member]) -> str:
    farms = sorted({"/".join(each.farm) for each in members})
    return farms[0] if len(farms) == 1 else f"{len(farms)} farms"


def _note(options: DrainOptions, note: str) -> None:
    if options.output is Format.TEXT:
        terminal.note(note)
