"""Read what several commands say of a cluster: farms, nodes, programs and Services."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.announce.ownership import records
from kube_nftlb.commands.cluster import installation, service_findings
from kube_nftlb.commands.cluster.queries import (
    AGENTS,
    OPERATOR_LEASE,
    PROGRAMS,
    Target,
    list_if_allowed,
    list_nodes,
    pools_or_none,
)
from kube_nftlb.commands.view import ClusterView, lacking_address
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import DAEMON_SETS, EVENTS, FARMS, LEASES, NFTLB_NODES, PODS, SERVICES, JsonObject


async def farms_and_reports(kube: Kube, target: Target, namespace: str | None) -> ClusterView:
    """Return the farms of one namespace, or of all; nodes' reports, programs and Services as far as the user may."""
    view, reports = await asyncio.gather(_farms(kube, target, namespace), list_if_allowed(kube, NFTLB_NODES))
    return replace(view, reports=reports)


async def overview(kube: Kube, target: Target, namespace: str | None) -> ClusterView:
    """Return the state of the cluster, with the farms of one namespace, or of all.

    Raises UsageError if nobody tells which of several operators and agents are real.
    """
    view, reports = await asyncio.gather(_farms(kube, target, namespace), kube.list(NFTLB_NODES))
    nodes = await list_nodes(kube, metadata_only=True)
    return replace(view, nodes=nodes, reports=reports.items)


async def _farms(kube: Kube, target: Target, namespace: str | None) -> ClusterView:
    """Return what both have: farms, and programs and Services as far as the user may see them."""
    farms, programs = await asyncio.gather(kube.list(FARMS, namespace, not_older_than="0"), _programs(kube, target))
    services = await _services(kube, namespace, farms.items)
    return ClusterView(farms.items, **services._asdict(), **programs._asdict())


class _Programs(NamedTuple):
    leases: Sequence[JsonObject] | None
    pods: Sequence[JsonObject] | None
    daemon_sets: Sequence[JsonObject] | None
    holders: Sequence[JsonObject]


async def _programs(kube: Kube, target: Target) -> _Programs:
    """Return what operator and agents have in their namespace, as far as the user may see it."""
    namespace = await installation.namespace_of_programs(kube, target)
    leases, pods, daemon_sets, holders = await asyncio.gather(
        list_if_allowed(kube, LEASES, namespace, field_selector=f"metadata.name={OPERATOR_LEASE}"),
        list_if_allowed(kube, PODS, namespace, label_selector=PROGRAMS),
        list_if_allowed(kube, DAEMON_SETS, namespace, field_selector=AGENTS),
        list_if_allowed(kube, LEASES, namespace, label_selector=f"{records.LABEL}=true"),
    )
    installation.check_one_namespace(leases, pods, daemon_sets, holders)
    return _Programs(leases, pods, daemon_sets, holders or ())


class _Services(NamedTuple):
    services: Sequence[JsonObject]
    unserved: Sequence[JsonObject]
    events: Sequence[JsonObject]
    pools: Sequence[JsonObject]


async def _services(kube: Kube, namespace: str | None, farms: Sequence[JsonObject]) -> _Services:
    """Return the Services that lack something, and the pools of addresses, as far as the user may know."""
    services, pools = await asyncio.gather(list_if_allowed(kube, SERVICES, namespace), pools_or_none(kube))
    unserved = service_findings.unserved(services or (), farms)
    events = await warnings(kube, namespace) if unserved else ()
    lacking = [raw for raw in services or () if lacking_address(raw) is not None]
    return _Services(lacking, unserved, events, pools or ())


async def warnings(kube: Kube, namespace: str | None, service: str | None = None) -> Sequence[JsonObject]:
    """Return the operator's Warnings about Services, or about one, as far as the user may see them."""
    fields = "involvedObject.kind=Service,type=Warning" + (f",involvedObject.name={service}" if service else "")
    found = await list_if_allowed(kube, EVENTS, namespace, field_selector=fields) or ()
    # Cloud controllers warn of the same Services.
    return [each for each in found if each.get("reportingComponent") == names.OPERATOR_COMPONENT]
