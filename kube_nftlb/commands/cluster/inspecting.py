"""``kubectl nftlb status``, ``why`` and ``get``: ask the API server, and print."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from pydantic import ValidationError

from kube_nftlb import errors, names
from kube_nftlb.agent.node.info import NodeFacts, gather
from kube_nftlb.api.base import first_error
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.commands.cluster import service_view, terminal
from kube_nftlb.commands.cluster import status as pages
from kube_nftlb.commands.cluster.asking import (
    Target,
    connected,
    farms_and_reports,
    list_if_allowed,
    namespace_of,
    overview,
)
from kube_nftlb.commands.cluster.findings import failures
from kube_nftlb.commands.cluster.losses import may_take
from kube_nftlb.commands.cluster.options import Format, WideFormat
from kube_nftlb.commands.cluster.service_tree import tree
from kube_nftlb.commands.cluster.views import ServiceView
from kube_nftlb.endpointslices.slices import parse_slice
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, NODES, POLICIES, SERVICES, JsonObject


async def status(target: Target, output: WideFormat) -> bool:
    """Print the status. Return True if something is wrong."""
    async with terminal.progress("asking the API server"), connected(target) as kube:
        seen = await overview(kube, target.namespace)
    now = datetime.now(UTC)
    told = pages.status_json(seen, now)
    if output in (WideFormat.JSON, WideFormat.YAML):
        terminal.show_data(told, output)
    else:
        terminal.show(*pages.status_text(seen, now, wide=output is WideFormat.WIDE))
    return not told["healthy"]


async def why(target: Target, name: str | None, output: Format) -> bool:
    """Print what is wrong with one farm, those of one Service, or all. Return True if anything is.

    Raises UsageError if there is no such farm.
    """
    wanted = target.namespace
    if name is not None:
        wanted = name.rpartition("/")[0] or namespace_of(target)
    async with terminal.progress("asking the API server"), connected(target) as kube:
        seen = await farms_and_reports(kube, wanted)
    farms = seen.farms if name is None else pages.chosen(seen, name, wanted or "")
    if name is not None and not farms:
        raise errors.UsageError(f"no farm {name!r} in the namespace {wanted}, and no Service of that name has farms")
    now = datetime.now(UTC)
    found = pages.why(seen, farms, now)
    if output is not Format.TEXT:
        terminal.show_data([pages.as_json(each) for each in found], output)
    elif found:
        terminal.show(*(pages.line(each, now) for each in found))
    elif name is None:
        terminal.show(f"all {len(farms)} farms are healthy")
    else:
        terminal.show(*(terminal.plain(pages.well(raw)) for raw in farms))
    return bool(found)


async def get(target: Target, name: str, output: Format) -> None:
    """Print a Service as a tree. Raises UsageError if there is none of that name."""
    namespace, _, plain = name.rpartition("/")
    namespace = namespace or namespace_of(target)
    async with terminal.progress("asking the API server"), connected(target) as kube:
        viewed = await _view(kube, namespace, plain)
    if output is not Format.TEXT:
        terminal.show_data(asdict(viewed), output)
    else:
        terminal.show(tree(viewed))


async def _view(kube: Kube, namespace: str, name: str) -> ServiceView:
    try:
        service = await kube.get(SERVICES, name, namespace)
    except errors.NotFoundError as error:
        raise errors.UsageError(f"there is no Service {name!r} in the namespace {namespace}") from error
    selector = f"{names.LABEL_SLICE_SERVICE}={name}"
    slices, farms, nodes, reports, policies = await asyncio.gather(
        kube.list(ENDPOINT_SLICES, namespace, label_selector=selector),
        kube.list(FARMS, namespace),
        kube.list(NODES),
        kube.list(NFTLB_NODES),
        kube.list(POLICIES, namespace),
    )
    try:
        parsed = [each for raw in slices.items if (each := parse_slice(raw)) is not None]
        model = Service.model_validate(service)
    except ValidationError as error:
        raise errors.UsageError(f"cannot read the Service or its EndpointSlices: {first_error(error)}") from error
    facts = tuple(_facts(raw["metadata"]["name"], raw) for raw in nodes.items)
    cluster = service_view.Cluster(
        tuple(parsed),
        facts,
        {raw["metadata"]["name"]: raw for raw in policies.items},
        failures(reports.items),
        await _rivals(kube, namespace, service_view.farms_about(model, farms.items), facts),
    )
    return service_view.view(model, farms.items, cluster)


async def _rivals(
    kube: Kube, namespace: str, farms: Iterable[JsonObject], nodes: Iterable[NodeFacts]
) -> tuple[JsonObject, ...]:
    """Return the farms of other namespaces that may want the same addresses, as far as the user may see them."""
    takes = may_take(farms, nodes)

    def kept(raw: JsonObject) -> JsonObject | None:
        return raw if raw["metadata"]["namespace"] != namespace and takes(raw) else None

    return tuple(await list_if_allowed(kube, FARMS, transform=kept) or ())


def _facts(name: str, raw: dict[str, object]) -> NodeFacts:
    return gather(name, CoreNode.model_validate(raw))
