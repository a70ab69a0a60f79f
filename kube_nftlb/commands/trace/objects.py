"""The facts that a trace needs from the API server: the client's address, the node, the names of farms and backends."""

import ipaddress
from collections.abc import Iterable
from typing import Final, NamedTuple

from kube_nftlb import addresses, errors, names
from kube_nftlb.agent.informers import parse, parsed_slice
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import ALL_PORTS, is_node_port, listeners_of
from kube_nftlb.commands.trace.forecast import Objects
from kube_nftlb.commands.trace.passage import Passage, object_name
from kube_nftlb.endpointslices.backends import resolved_spec
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import (
    ENDPOINT_SLICES,
    FARMS,
    NFTLB_NODES,
    NODES,
    PODS,
    POLICIES,
    SERVICE_CIDRS,
    JsonObject,
)
from kube_nftlb.netfilter.tracing.table import Flow

_NO_FARM: Final = ("NoSuchService", "NoListener", "NoPacket")
"""Reasons of outcomes that are no farm's, though one may have the port at the addresses of nodes."""


class Client(NamedTuple):
    """A client's address, and the node that its connections come to first; empty if that is unknown."""

    ip: str
    node: str = ""


async def client(kube: Kube, text: str, version: int) -> Client:
    """Return a client given as an address or as NAMESPACE/POD, with an address of this IP version.

    Raises UsageError if a pod has none.
    """
    namespace, _, name = text.rpartition("/")
    if not namespace:
        return Client(text, await _node_of(kube, text))
    try:
        pod = await kube.get(PODS, name, namespace)
    except errors.NotFoundError:
        raise errors.UsageError(f"there is no pod {name} in the namespace {namespace}") from None
    ips = [str(each["ip"]) for each in pod.get("status", {}).get("podIPs", ())]
    for ip in ips:
        if ipaddress.ip_address(ip).version == version:
            return Client(ip, pod["spec"].get("nodeName", ""))
    raise errors.UsageError(f"the pod {text} has no IPv{version} address")


async def _node_of(kube: Kube, ip: str) -> str:
    """Return the node whose address, or whose pod's address, this is; the only node, if there is one; or nothing."""
    nodes = (await kube.list(NODES)).items
    address = ipaddress.ip_address(ip)
    for node in nodes:
        own = {each["address"] for each in node.get("status", {}).get("addresses", ())}
        cidrs = [ipaddress.ip_network(text) for text in node["spec"].get("podCIDRs", ())]
        if ip in own or any(address in cidr for cidr in cidrs) or len(nodes) == 1:
            return str(node["metadata"]["name"])
    return ""


async def node_addresses(kube: Kube, node: str) -> set[str]:
    """Return the addresses of a node. Raises UsageError if there is no such node."""
    try:
        found = await kube.get(NODES, node)
    except errors.NotFoundError:
        there = ", ".join(sorted(each["metadata"]["name"] for each in (await kube.list(NODES)).items))
        raise errors.UsageError(f"there is no node {node}; there are {there}") from None
    return {str(each["address"]) for each in found.get("status", {}).get("addresses", ())}


async def gathered(kube: Kube, node: str, flow: Flow) -> Objects:
    """Return the objects that a forecast needs."""
    reports = {each["metadata"]["name"]: each for each in (await kube.list(NFTLB_NODES)).items}
    farms = await _farms_at(kube, flow.ip)
    namespaces = {raw["metadata"]["namespace"] for raw in farms}
    slices = [each for raw in farms for each in await _slices(kube, raw)]
    policies = [each for namespace in namespaces for each in (await kube.list(POLICIES, namespace)).items]
    return Objects(
        await kube.get(NODES, node),
        reports.get(node),
        tuple(farms),
        tuple({each["metadata"]["uid"]: each for each in slices}.values()),
        tuple(policies),
        tuple(await _service_ranges(kube)),
    )


async def name(kube: Kube, made: Passage, flow: Flow) -> None:
    """Name the farm of a passage, if its rules did not, and its backend. What cannot be read stays without a name."""
    if made.outcome is not None and made.outcome.reason in _NO_FARM:
        return
    raws = await _named(kube, made) if made.farm else await _farms_at(kube, flow.ip)
    for raw in raws:
        farm = parse(raw)
        if not isinstance(farm, Farm) or (not made.farm and not _listens(farm, flow)):
            continue
        made.serve(names.node_farm_name(farm.metadata.namespace, farm.metadata.name), farm.spec.engine)
        made.engine = made.engine or farm.spec.engine
        slices = [found for each in await _slices(kube, raw) if (found := parsed_slice(each)) is not None]
        for backend in resolved_spec(farm.spec, slices).backends:
            if addresses.with_port(backend.ip, backend.port or flow.port) == made.backend:
                made.backend_name = backend.name
        return


def _listens(farm: Farm, flow: Flow) -> bool:
    """Return True if a farm has the destination, or its port at the addresses of nodes."""
    return any(
        each.port in (flow.port, ALL_PORTS)
        and each.protocol in (flow.protocol, "All")
        and (each.ip == flow.ip or is_node_port(each))
        for _, each in listeners_of(farm)
    )


async def _named(kube: Kube, made: Passage) -> list[JsonObject]:
    """Return the farm of a passage; none if it is gone, or its name on the node is shortened."""
    namespace, _, farm = object_name(made.farm).partition("/")
    # An agent may list farms, but not get one.
    return (await kube.list(FARMS, namespace, field_selector=f"metadata.name={farm}")).items


async def _farms_at(kube: Kube, ip: str) -> list[JsonObject]:
    """Return the farms that have an address, and those with node ports."""

    def kept(raw: JsonObject) -> JsonObject | None:
        spec = raw.get("spec") or {}
        there = any(each.get("ip", "") in ("", ip) for each in spec.get("addresses") or ())
        return raw if there else None

    return (await kube.list(FARMS, transform=kept)).items


async def _slices(kube: Kube, raw: JsonObject) -> list[JsonObject]:
    service = ((raw.get("spec") or {}).get("backendsFrom") or {}).get("service")
    if not service:
        return []
    selector = f"{names.LABEL_SLICE_SERVICE}={service}"
    return (await kube.list(ENDPOINT_SLICES, raw["metadata"]["namespace"], label_selector=selector)).items


async def _service_ranges(kube: Kube) -> Iterable[str]:
    try:
        listed = await kube.list(SERVICE_CIDRS)
    except errors.NotFoundError:
        # Before Kubernetes 1.33 there are none.
        return ()
    return [str(cidr) for raw in listed.items for cidr in raw["spec"].get("cidrs", ())]
