"""The objects of a cluster, as far as the user may read them."""

import asyncio
from typing import Any, NamedTuple

from kube_nftlb.commands.cluster.asking import get_or_none, list_if_allowed
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import CONFIG_MAPS, DAEMON_SETS, NETWORK_POLICIES, NODES, SERVICES, JsonObject

_SYSTEM = "kube-system"


class Survey(NamedTuple):
    """The objects that show what a cluster uses."""

    version: JsonObject
    """Of the API server: ``major``, ``minor``, ``gitVersion``."""
    nodes: list[JsonObject]
    services: list[JsonObject]
    daemon_sets: list[JsonObject] | None = None
    """None if the user may not list them."""
    kube_proxy: JsonObject | None = None
    """The ConfigMap of kube-proxy; None if there is none, or if the user may not read it."""
    cilium: JsonObject | None = None
    """The ConfigMap of Cilium."""
    network_policies: list[JsonObject] | None = None
    """None if the user may not list them."""


async def survey(kube: Kube) -> Survey:
    """Read the cluster. Raises KubeError if the user may not list Nodes and Services."""
    version: dict[str, Any]
    version, nodes, services, daemon_sets, kube_proxy, cilium = await asyncio.gather(
        kube.request("GET", "/version"),
        kube.list(NODES),
        kube.list(SERVICES),
        list_if_allowed(kube, DAEMON_SETS),
        get_or_none(kube, CONFIG_MAPS, "kube-proxy", _SYSTEM),
        get_or_none(kube, CONFIG_MAPS, "cilium-config", _SYSTEM),
    )
    policies = await list_if_allowed(kube, NETWORK_POLICIES)
    return Survey(version, nodes.items, services.items, daemon_sets, kube_proxy, cilium, policies)
