"""Wait until backends drain everywhere, and count down their open connections."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kube_nftlb import errors
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.commands.cluster import drain_plan, terminal
from kube_nftlb.commands.cluster.drain_connections import Open, open_connections
from kube_nftlb.commands.cluster.drain_plan import DRAIN, Plan
from kube_nftlb.commands.cluster.drain_states import says_drain, state_of
from kube_nftlb.commands.cluster.queries import get_if_present, list_if_allowed
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import FARMS, NFTLB_NODES, PODS, JsonObject
from kube_nftlb.prose import counted, some_of

_LOOK_EVERY_S: Final = 1.0
_COUNTED_S: Final = 15.0
"""Maximum time in seconds for nodes to count. They do every five seconds."""
_GONE_EVERY_S: Final = 5.0
"""Time in seconds between two looks at whether the backends are there, while nodes have not counted."""
_TAKEN_OVER_S: Final = 30.0
"""Maximum time in seconds for the operator to tell the nodes what an annotation says."""

Look = Callable[[], Awaitable[ClusterView]]
"""Returns the farms that are concerned, as they are now."""


async def taken_over(kube: Kube, plan: Plan) -> int:
    """Wait until farms say that the backends drain; return the resourceVersion since which they do.

    Farms never say it of a Pod that has gone, or was replaced, since it was annotated. Raises UnavailableError if the
    operator does not take the annotations over.
    """
    deadline = time.monotonic() + _TAKEN_OVER_S
    wanted = {(each.farm, each.entry): each.annotated_pod for each in plan.members}
    while True:
        farms = await _farms(kube, plan)
        late = {key: pod for key, pod in wanted.items() if not says_drain(farms.get(key[0]), key[1])}
        for key, pod in late.items():
            if pod is not None and state_of(await get_if_present(kube, PODS, pod.name, pod.namespace)) != DRAIN:
                del wanted[key]
        if not wanted.keys() & late.keys():
            return max((_version(farms[farm]) for farm, _ in wanted if farm in farms), default=0)
        if time.monotonic() > deadline:
            raise errors.UnavailableError("the operator does not take the annotation over: see kubectl nftlb status")
        await asyncio.sleep(_LOOK_EVERY_S)


async def _farms(kube: Kube, plan: Plan) -> Mapping[FarmKey, JsonObject]:
    namespaces = sorted({each.farm.namespace for each in plan.members})
    listings = await asyncio.gather(*(kube.list(FARMS, namespace) for namespace in namespaces))
    return {FarmKey.of(raw): raw for listing in listings for raw in listing.items}


def _version(raw: JsonObject) -> int:
    """Return the resourceVersion from which on a node has a farm as it is now."""
    status, metadata = raw.get("status") or {}, raw["metadata"]
    if status.get("observedGeneration") == metadata["generation"] and status.get("resourceVersion"):
        return int(status["resourceVersion"])
    return int(metadata["resourceVersion"])


async def count_down(
    kube: Kube, plan: Plan, since: int, look: Look, *, timeout_s: float | None, shows: bool
) -> Open | None:
    """Show how many connections are open until there are none, or the time is up; None if the user may not know.

    Raises UnavailableError if the backends no longer drain.
    """
    deadline = time.monotonic() + timeout_s if timeout_s is not None else None
    before, gone = "", False
    began = looked = time.monotonic()
    async with terminal.ticker() as show:
        while True:
            if (reports := await list_if_allowed(kube, NFTLB_NODES)) is None:
                return None
            now = time.monotonic()
            count = open_connections(plan.addresses, since, reports, gone=gone)
            if count.uncounted and not gone and now - looked >= _GONE_EVERY_S:
                # Where nothing drains any more, agents do not count.
                gone = await _are_gone(plan, look)
                # It takes seconds in a large cluster.
                looked = time.monotonic()
                count = open_connections(plan.addresses, since, reports, gone=gone)
            message = _message(count)
            if count.done or (deadline is not None and now > deadline):
                break
            if shows and message != before and not (count.uncounted and now - began < _COUNTED_S):
                show(message)
                before = message
            await asyncio.sleep(_LOOK_EVERY_S)
    if shows:
        # What changed on a terminal is gone from there.
        terminal.note(message if count.done else f"the time is up: {message}")
    return count


async def _are_gone(plan: Plan, look: Look) -> bool:
    """Return True if no backend of a plan is there any more. Raises UnavailableError if one no longer drains."""
    present = drain_plan.remaining(plan, drain_plan.members(await look()))
    if undone := sorted({each.backend.name for each in present if each.backend.state != DRAIN}):
        raise errors.UnavailableError(f"{some_of(undone)} no longer drains: its state was changed meanwhile")
    return not present


def _message(count: Open) -> str:
    silent = f"; unknown on {some_of(count.silent)}, where the agent is silent" if count.silent else ""
    return _message_of_others(count) + silent


def _message_of_others(count: Open) -> str:
    """Return what nodes tell whose agents are not silent."""
    if count.uncounted:
        return f"waiting for the count of {some_of(count.uncounted)}"
    if count.partial:
        text = f"at least {_open(count.total)}: not all are known of {some_of(count.partial)}"
        return f"{text}, where more backends drain than the NftlbNode lists"
    if not count.total:
        return _open(0)
    return f"{_open(count.total)}, through {', '.join(sorted(count.by_node))}"


def _open(number: int) -> str:
    return f"{counted(number, 'connection')} {'is' if number == 1 else 'are'} open"
