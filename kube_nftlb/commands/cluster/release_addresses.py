"""Take the addresses of pools from Services, once no operator assigns any: for the end of an installation."""

import asyncio
import contextlib
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from kube_nftlb import errors, names
from kube_nftlb.announce.ownership import records
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.finding import condition
from kube_nftlb.commands.cluster.findings import leads
from kube_nftlb.commands.cluster.installation import namespace_of_programs
from kube_nftlb.commands.cluster.queries import OPERATOR_LEASE, Target, connected, list_if_allowed
from kube_nftlb.kube import leader_election
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import LEASES, SERVICES, JsonObject

_AT_ONCE: Final = 16
_LOOK_AGAIN_S: Final = 5.0
"""An operator that is about to end may write an address until then."""
_LOOKS: Final = 24
_RENEWED_WITHIN_S: Final = 2 * leader_election.RETRY_S + 1
"""The leader renews its Lease as often, also if one try fails."""


async def release(target: Target, *, wait: bool, force: bool = False) -> int:
    """Take away all addresses that the operator has assigned, and their Leases. Return how many Services had one.

    With ``wait``, look again until nobody has assigned any for 5 s. Raises UnavailableError if an operator goes on, and
    UsageError if one runs, unless there is to be a ``wait`` for its end, or by ``force``.
    """
    async with connected(target) as kube:
        namespace = await namespace_of_programs(kube, target)
        if not (wait or force):
            await _refuse_running(kube, namespace)
        had = await _release(kube, namespace)
        for _ in range(_LOOKS if wait else 0):
            await asyncio.sleep(_LOOK_AGAIN_S)
            if not (again := await _release(kube, namespace)):
                return len(had)
            had |= again
    if wait:
        raise errors.UnavailableError("an operator goes on assigning addresses: see that its pods are gone")
    return len(had)


async def _refuse_running(kube: Kube, namespace: str | None) -> None:
    """Raise UsageError if an operator runs, as far as the user may know."""
    held = [each for each in await _operator_leases(kube, namespace) if _is_held(each)]
    running = [each for each in held if leads(each, datetime.now(UTC))]
    if held and not running:
        # By a clock that is ahead of the operator's, its Lease has ended long ago: does it renew it?
        await asyncio.sleep(_RENEWED_WITHIN_S)
        versions = {each["metadata"]["resourceVersion"] for each in held}
        after = await _operator_leases(kube, namespace)
        running = [each for each in after if _is_held(each) and each["metadata"]["resourceVersion"] not in versions]
    if running:
        raise errors.UsageError(
            f"an operator runs in the namespace {running[0]['metadata']['namespace']}, and may assign other addresses"
            " at once: use --force if addresses.enabled is off there"
        )


async def _operator_leases(kube: Kube, namespace: str | None) -> list[JsonObject]:
    return await list_if_allowed(kube, LEASES, namespace, field_selector=f"metadata.name={OPERATOR_LEASE}") or []


def _is_held(lease: JsonObject) -> bool:
    return bool((lease.get("spec") or {}).get("holderIdentity"))


async def _release(kube: Kube, namespace: str | None) -> set[str]:
    """Look once. Return the names of the Services."""
    services = (await kube.list(SERVICES, transform=_assigned)).items
    holders = await list_if_allowed(kube, LEASES, namespace, label_selector=f"{records.LABEL}=true") or ()
    turns = asyncio.Semaphore(_AT_ONCE)

    async def in_turn(change: Coroutine[Any, Any, None]) -> None:
        # One that is gone has no address either, nor has another one that has its name now.
        async with turns:
            with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
                await change

    changes = [*(_clear(kube, each) for each in services), *(_delete(kube, each) for each in holders)]
    await asyncio.gather(*map(in_turn, changes))
    return {_name(each) for each in services}


def _assigned(raw: JsonObject) -> JsonObject | None:
    """Return a Service that the operator has given an address, or has told why it has none; None for others."""
    return raw if condition(raw, names.ADDRESS_CONDITION) is not None else None


async def _clear(kube: Kube, raw: JsonObject) -> None:
    # What the field manager no longer applies goes. Addresses that another program wrote stay.
    metadata = {key: raw["metadata"][key] for key in ("name", "namespace", "uid")}
    await kube.apply(
        SERVICES, {"metadata": metadata}, field_manager=names.FIELD_MANAGER_ADDRESSES, subresource="status"
    )
    terminal.note(f"service {_name(raw)} has no address of a pool any more")


async def _delete(kube: Kube, raw: JsonObject) -> None:
    await kube.delete(LEASES, raw["metadata"]["name"], raw["metadata"]["namespace"])


def _name(raw: JsonObject) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
