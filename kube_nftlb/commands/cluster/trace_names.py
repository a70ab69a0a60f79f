"""What a trace needs from the API server: the client's address, the node, the names of the farm and the backend."""

import ipaddress
from dataclasses import replace
from typing import Final, NamedTuple

from kube_nftlb import addresses, errors, names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.values import Protocol
from kube_nftlb.commands.cluster.queries import list_if_allowed, slices_for
from kube_nftlb.commands.trace.result import TraceResult, object_name
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import FARMS, NODES, PODS, JsonObject
from kube_nftlb.netfilter.tracing.table import Flow

_NO_FARM: Final = ("NoSuchService", "NoListener", "NoPacket")
"""Reasons of outcomes that are no farm's, though one may have the port at the addresses of nodes."""


class Client(NamedTuple):
    """A client's address, and the node that its connections come to first; empty if that is unknown."""

    ip: str
    node: str = ""


async def client(kube: Kube, text: str, version: int, node: str) -> Client:
    """Return a client given as an address or as NAMESPACE/POD, with an address of this IP version.

    ``node`` is where its connections come, if the user says so. Raises UsageError if a pod has no such address,
    UnavailableError if the user has to say the node.
    """
    namespace, _, name = text.rpartition("/")
    if not namespace:
        return Client(text, node or await _node_of(kube, text))
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
    """Return the node that owns the address, the only node, or ''. Raises UnavailableError if the user may not know."""
    if (nodes := await list_if_allowed(kube, NODES)) is None:
        raise errors.UnavailableError(f"you may not list Nodes: say with --node where {ip} connects")
    address = ipaddress.ip_address(ip)
    for node in nodes:
        own = {each["address"] for each in node.get("status", {}).get("addresses", ())}
        cidrs = [ipaddress.ip_network(text) for text in node["spec"].get("podCIDRs", ())]
        if ip in own or any(address in cidr for cidr in cidrs) or len(nodes) == 1:
            return str(node["metadata"]["name"])
    return ""


async def node_addresses(kube: Kube, node: str) -> set[str]:
    """Return the addresses of a node, none if the user may not know. Raises UsageError if there is no such node."""
    try:
        found = await kube.get(NODES, node)
    except errors.NotFoundError:
        known = ", ".join(sorted(each["metadata"]["name"] for each in (await kube.list(NODES)).items))
        raise errors.UsageError(f"there is no node {node}; there are {known}") from None
    except errors.KubeError as error:
        if not error.is_refusal:
            raise
        return set()
    return {str(each["address"]) for each in found.get("status", {}).get("addresses", ())}


async def name(kube: Kube, result: TraceResult, flow: Flow) -> None:
    """Name the farm of a result, if its rules did not, and its backend. What cannot be read stays without a name."""
    if result.outcome is not None and result.outcome.reason in _NO_FARM:
        return
    view = ClusterView(await (_named(kube, result) if result.farm else _farms_at(kube, flow.ip)))
    if (key := next(iter(view.raw_farms), None) if result.farm else _owner(view, flow)) is None:
        return
    view = replace(view, slices=await slices_for(kube, [view.raw_farms[key]]))
    if isinstance(farm := view.farm(key), str):
        return
    result.serve(names.node_farm_name(*key), farm.spec.engine)
    result.engine = result.engine or farm.spec.engine
    for backend in farm.spec.backends:
        if addresses.with_port(backend.ip, backend.port or flow.port) == result.backend:
            group = farm.spec.backends_from[backend.group].full_name if len(farm.spec.backends_from) > 1 else ""
            result.backend_name = backend.name + (f", of the Service {group}" if group else "")


def _owner(view: ClusterView, flow: Flow) -> FarmKey | None:
    """Return the farm that has the destination of a flow, None if none has."""
    protocol: Protocol = "UDP" if flow.protocol == "UDP" else "SCTP" if flow.protocol == "SCTP" else "TCP"
    return view.owner(Listener(flow.ip, protocol, flow.port))


async def _named(kube: Kube, result: TraceResult) -> list[JsonObject]:
    """Return the farm of a result; none if it is gone, or its name on the node is shortened."""
    namespace, _, farm = object_name(result.farm).partition("/")
    # An agent may list farms, but not get one.
    return (await kube.list(FARMS, namespace, field_selector=f"metadata.name={farm}")).items


async def _farms_at(kube: Kube, ip: str) -> list[JsonObject]:
    """Return the farms that have an address, and those with node ports."""

    def at_ip(raw: JsonObject) -> JsonObject | None:
        spec = raw.get("spec") or {}
        return raw if any(each.get("ip", "") in ("", ip) for each in spec.get("addresses") or ()) else None

    return (await kube.list(FARMS, transform=at_ip)).items
