"""Connect as kubectl would, and read the objects that several commands need."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from kube_nftlb import errors, names
from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.view import referred
from kube_nftlb.kube import kubeconfig
from kube_nftlb.kube.client import Kube, Transform
from kube_nftlb.kube.impersonation import NOBODY, Impersonation
from kube_nftlb.kube.resources import (
    ADDRESS_POOLS,
    ENDPOINT_SLICES,
    NAMESPACES,
    NFTLB_NODES,
    NODES,
    JsonObject,
    Resource,
)

_USER_AGENT = "kubectl-nftlb"
OPERATOR_LEASE = "kube-nftlb-operator"
PROGRAMS = "app.kubernetes.io/name=kube-nftlb"
"""The label selector of the pods of operator and agents."""
COMPONENT = "app.kubernetes.io/component"
AGENT_PODS = f"{COMPONENT}=agent,{PROGRAMS}"
AGENT = "kube-nftlb-agent"
"""The name of the agents' DaemonSet, and of their service account and its ClusterRoleBinding."""
AGENTS = f"metadata.name={AGENT}"
"""The field selector of the agents' DaemonSet."""
_ENDED = ("Succeeded", "Failed")


class Target(NamedTuple):
    """The cluster and namespace that the options name. Without any: those of the current context."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    system_namespace: str | None = None
    """The namespace of operator and agents; None: it is looked for."""
    impersonate: Impersonation = NOBODY
    timeout_s: float | None = None
    """How long to wait for an answer of the API server; 0: as long as it takes, None: as long as is usual."""


def component_of(pod: JsonObject) -> str:
    """Return ``operator`` or ``agent`` of a pod of theirs that has not ended; empty for others, such as a test's."""
    component = (pod["metadata"].get("labels") or {}).get(COMPONENT, "")
    ended = (pod.get("status") or {}).get("phase") in _ENDED
    return component if component in ("operator", "agent") and not ended else ""


@asynccontextmanager
async def connected(target: Target, user_agent: str = _USER_AGENT) -> AsyncIterator[Kube]:
    """Connect to the cluster that is meant. Raises UnavailableError if none is known."""
    async with await Kube.connect(
        target.kubeconfig,
        user_agent,
        context=target.context,
        impersonate=target.impersonate,
        timeout_s=target.timeout_s,
    ) as kube:
        yield kube


def namespace_of(target: Target) -> str:
    """Return the namespace that is meant: that of the option, of the context, or ``default``."""
    return target.namespace or kubeconfig.namespace(target.kubeconfig, target.context)


async def check_namespace(kube: Kube, namespace: str) -> None:
    """Raise UsageError if there is no such namespace, as far as the user may know: lists of it are just empty."""
    try:
        await kube.get(NAMESPACES, namespace)
    except errors.NotFoundError:
        raise errors.UsageError(f"there is no namespace {namespace}") from None
    except errors.KubeError as error:
        if not error.is_refusal:
            raise


async def pools_or_none(kube: Kube) -> list[JsonObject] | None:
    """Return the pools; None if the user may not see them, or if there are none of this kind."""
    try:
        return await list_if_allowed(kube, ADDRESS_POOLS)
    except errors.NotFoundError:
        return None


async def list_nodes(kube: Kube, *, metadata_only: bool = False) -> list[JsonObject]:
    """Return the Nodes; if the user may not see them, the names alone, of the NftlbNodes.

    A note says then what is missing. List everything else first: the note is no help to a user who may not see that.
    """
    if (nodes := await list_if_allowed(kube, NODES, metadata_only=metadata_only)) is not None:
        return nodes
    reports = (await kube.list(NFTLB_NODES)).items
    _note_once("you may not list Nodes: those without an NftlbNode are missing here, zones and addresses are unknown")
    return [{"metadata": {"name": raw["metadata"]["name"]}} for raw in reports]


@functools.cache
def _note_once(message: str) -> None:
    """Print a message beside the result, though it is asked for again and again."""
    terminal.note(message)


async def slices_for(kube: Kube, farms: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the EndpointSlices of all Services that farms refer to, as far as the user may see them."""
    of: dict[str, set[str]] = {}
    for service in (each for raw in farms for each in referred(raw)):
        of.setdefault(service.namespace, set()).add(service.name)
    listed = await asyncio.gather(
        *(
            list_if_allowed(
                kube,
                ENDPOINT_SLICES,
                namespace,
                label_selector=f"{names.LABEL_SLICE_SERVICE} in ({','.join(sorted(services))})",
            )
            for namespace, services in of.items()
        )
    )
    return [raw for items in listed for raw in items or ()]


async def get_if_present(kube: Kube, resource: Resource, name: str, namespace: str | None = None) -> JsonObject | None:
    """Return an object, or None if there is none."""
    try:
        return await kube.get(resource, name, namespace)
    except errors.NotFoundError:
        return None


async def get_or_none(kube: Kube, resource: Resource, name: str, namespace: str | None = None) -> JsonObject | None:
    """Return an object, or None if there is none, or if the user may not know."""
    try:
        return await get_if_present(kube, resource, name, namespace)
    except errors.KubeError as error:
        if not error.is_refusal:
            raise
        return None


async def list_if_allowed(
    kube: Kube,
    resource: Resource,
    namespace: str | None = None,
    *,
    label_selector: str | None = None,
    field_selector: str | None = None,
    metadata_only: bool = False,
    transform: Transform = lambda item: item,
) -> list[JsonObject] | None:
    """List objects of one namespace, or of all, or return None if the user may not: they are not needed."""
    try:
        listing = await kube.list(
            resource,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            metadata_only=metadata_only,
            transform=transform,
        )
    except errors.KubeError as error:
        if not error.is_refusal:
            raise
        return None
    return listing.items
