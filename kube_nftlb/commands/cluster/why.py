"""``kubectl nftlb why``: ask the API server what is wrong, and print it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from kube_nftlb import errors, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.values import Mode
from kube_nftlb.commands.cluster import address_findings, findings, gateways, service_findings, terminal
from kube_nftlb.commands.cluster import status as pages
from kube_nftlb.commands.cluster.finding import Finding
from kube_nftlb.commands.cluster.name_arguments import NameArgument, parse
from kube_nftlb.commands.cluster.options import Format
from kube_nftlb.commands.cluster.overview import farms_and_reports, warnings
from kube_nftlb.commands.cluster.queries import (
    Target,
    check_namespace,
    connected,
    get_if_present,
    get_or_none,
    list_if_allowed,
    namespace_of,
)
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import (
    FARMS,
    GATEWAY_CLASSES,
    GATEWAYS,
    LISTENER_SETS,
    SERVICES,
    JsonObject,
    Resource,
)


async def why(target: Target, name: str | None, output: Format) -> bool:
    """Print what is wrong with one farm, one Service, one object of Gateway API, or all. Return True if anything is.

    Raises UsageError if there is no such object or namespace, or cannot be.
    """
    kind, _, routed = (name or "").partition("/")
    what = None
    if name is not None:
        # A namespace may be called like a kind.
        what = parse(name, None if kind in gateways.KINDS else target.namespace, namespace_of(target))
    namespace, plain = (what.namespace, what.name) if what is not None else (target.namespace, None)
    async with terminal.progress("asking the API server"), connected(target) as kube:
        if kind in gateways.KINDS and (
            raw := await get_if_present(kube, gateways.KINDS[kind], routed, namespace_of(target))
        ):
            return await _why_of_gateway_api(kube, target, raw, output)
        view = await farms_and_reports(kube, target, namespace)
        routing = await _gateway_api(kube, namespace) if what is None else []
        farms = view.farms if what is None else pages.chosen(view.farms, what)
        if what is None and namespace is not None and not farms:
            await check_namespace(kube, namespace)
        if what is not None and not farms:
            return await _why_without_farm(kube, view, what, output)
        ignored = await _ignored(kube, farms) if what is not None else []
    lacking = [raw for raw in view.services if plain in (None, raw["metadata"]["name"])]
    unserved = [raw for raw in view.unserved if plain in (None, raw["metadata"]["name"])]
    now = kube.servers.now
    of_programs = findings.of_programs(view, now)
    of_all = [*of_programs, *address_findings.of_pools(view.pools, now), *address_findings.of_bgp(view.nftlb_nodes)]
    of_chosen = [*findings.of_farms(view, farms, now), *_of_addresses(view, farms, now)]
    of_chosen += service_findings.find(replace(view, unserved=unserved), now)
    found = [*(of_all if name is None else []), *address_findings.of_services(lacking, now), *of_chosen, *routing]
    well = [pages.all_well(farms, namespace)] if name is None else [pages.well(raw) for raw in farms]
    wrong = _show(found, [terminal.plain(each) for each in well], output, now)
    for each in ignored:
        terminal.note(f"warning: {each}")
    return wrong


async def _ignored(kube: Kube, farms: Sequence[JsonObject]) -> list[str]:
    """Return what of these farms, and of the Services that they are of, has no effect, as far as the user may know."""
    said = [(raw, str((raw.get("status") or {}).get("reason") or "")) for raw in farms]
    found = [f"farm {'/'.join(FarmKey.of(raw))}: {text}" for raw, text in said if text.startswith("NoEffect: ")]
    modes: dict[ServiceKey, Mode] = {
        ServiceKey(raw["metadata"]["namespace"], service): raw["spec"].get("mode") or "snat"
        for raw in farms
        if (service := (raw["metadata"].get("labels") or {}).get(names.LABEL_SERVICE))
    }
    for (namespace, name), mode in modes.items():
        if (raw := await get_or_none(kube, SERVICES, name, namespace)) is not None:
            found += service_findings.ignored(raw, mode)
    return found


def _of_addresses(view: ClusterView, farms: Sequence[JsonObject], now: datetime) -> list[Finding]:
    if note := address_findings.not_judged(view, farms):
        terminal.note(note)
    return address_findings.of_addresses(view, farms, now)


async def _why_without_farm(kube: Kube, view: ClusterView, what: NameArgument, output: Format) -> bool:
    """Say why a Service has no farm. Raises UsageError if there is no such Service."""
    namespace, name, now = what.namespace, what.name, kube.servers.now
    service = await get_if_present(kube, SERVICES, name, namespace) if what.kind != "farm" else None
    if service is None:
        kind = gateways.KINDS.get(namespace)
        also = f", and no {kind.kind} {name!r}" if kind is not None else ""
        missing = {"farm": "farm", "service": "Service"}.get(what.kind, "farm and no Service")
        raise errors.UsageError(f"there is no {missing} {name!r} in the namespace {namespace}{also}{what.hint}")
    if why := service_findings.why_not_served(service):
        return _show([], [terminal.plain(f"service {namespace}/{name} has no farm: {why}")], output, now)
    found = service_findings.no_farm(service, await warnings(kube, namespace, name))
    return _show([*findings.of_programs(view, now), found], [], output, now)


def _show(found: Sequence[Finding], well: Sequence[str], output: Format, now: datetime) -> bool:
    """Print findings, or lines about what is well if there are none. Return True if there are any."""
    if output is not Format.TEXT:
        terminal.show_data([pages.as_json(each) for each in found], output)
    else:
        terminal.show(*([pages.line(each, now) for each in found] or well))
    return bool(found)


async def _why_of_gateway_api(kube: Kube, target: Target, raw: JsonObject, output: Format) -> bool:
    namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
    view, parents = await asyncio.gather(farms_and_reports(kube, target, namespace), _parents(kube))
    # Routes of other namespaces may be served by a Gateway, as far as the user may see their farms.
    farms = gateways.farms_of(raw, await list_if_allowed(kube, FARMS) or view.farms)
    now = kube.servers.now
    of_farms = [*findings.of_farms(view, farms, now), *_of_addresses(view, farms, now)]
    found = [*gateways.of_object(raw, parents), *of_farms]
    state = "of another controller" if gateways.is_of_another(raw, parents) else "healthy"
    well = [
        f"{raw['kind'].lower()} {namespace}/{name} is {state}",
        *gateways.addresses_of(raw),
        *(pages.well(farm) for farm in farms),
    ]
    return _show(found, [terminal.plain(each) for each in well], output, now)


async def _gateway_api(kube: Kube, namespace: str | None) -> list[Finding]:
    """Return what is wrong with objects of Gateway API, as far as the user may see them, if there are any."""
    listed = await asyncio.gather(*(_listed(kube, each, namespace) for each in gateways.KINDS.values()))
    objects = [raw for items in listed for raw in items or ()]
    if not objects:
        return []
    parents = await _parents(kube)
    if note := gateways.not_judged(objects, parents):
        terminal.note(note)
    return gateways.of_all(objects, parents, kube.servers.now)


async def _parents(kube: Kube) -> gateways.Parents:
    kinds = (GATEWAY_CLASSES, GATEWAYS, LISTENER_SETS)
    return gateways.Parents(*await asyncio.gather(*(_listed(kube, each, None) for each in kinds)))


async def _listed(kube: Kube, resource: Resource, namespace: str | None) -> list[JsonObject] | None:
    """Return objects of Gateway API; none if there is no such kind, None if the user may not see them."""
    try:
        items = await list_if_allowed(kube, resource, namespace)
    except errors.NotFoundError:
        return []
    # The items of a list have no kind.
    return [{**raw, "kind": resource.kind} for raw in items] if items is not None else None
