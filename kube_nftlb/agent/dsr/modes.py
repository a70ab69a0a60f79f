"""The requirements of a farm in the mode dsr on this node. Pure: no I/O.

A packet is sent on unchanged to the MAC address of a backend, from the ingress of each interface through which clients'
packets come in. The address must not be on the node: the kernel would drop the backends' answers as spoofed.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kube_nftlb.agent.model import Blocker, DirectRouting
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.values import expand_ports
from kube_nftlb.prose import some_of
from kube_nftlb.reasons import FailureReason


class PodLink(NamedTuple):
    """A pod's link to this node: its namespace's inode, its interface and MAC address, and the bridge it is on."""

    namespace: int
    interface: str
    mac: str
    bridge: str


@dataclass(frozen=True)
class Links:
    """The node's interfaces, as far as they matter here."""

    pods: Mapping[str, PodLink]
    """The pods on this node's bridges, by IP address."""
    inlets: Mapping[str, str]
    """Interfaces by which clients' packets may come in, with their MAC addresses."""
    addresses: frozenset[str]
    """The node's own addresses."""


NO_LINKS = Links({}, {}, frozenset())


class PodVip(NamedTuple):
    """A farm's address that a pod needs on its loopback."""

    pod_ip: str
    vip: str


def is_stateless(spec: FarmSpec) -> bool:
    """Return True if the mode keeps no connections."""
    return spec.mode == "dsr"


def pod_vips(spec: FarmSpec, vips: Iterable[str], links: Links) -> frozenset[PodVip]:
    """Return the addresses that pods on this node need in order to accept the packets to these addresses of a farm."""
    return frozenset(PodVip(ip, vip) for vip in vips for ip in _on_one_bridge(spec, links))


def direct_routing(spec: FarmSpec, links: Links) -> DirectRouting:
    """Return how packets reach the ready backends on this node; without a MAC address if there are none."""
    pods = _on_one_bridge(spec, links)
    bridge = next(iter(pods.values())).bridge if pods else ""
    return DirectRouting(bridge, {ip: pod.mac for ip, pod in pods.items()}, links.inlets)


def _on_one_bridge(spec: FarmSpec, links: Links) -> dict[str, PodLink]:
    """Return the pods on the bridge with the most backends, by IP: nftlb takes one outgoing interface per farm."""
    found = {
        backend.ip: links.pods[backend.ip] for backend in spec.backends if backend.ready and backend.ip in links.pods
    }
    bridges = [pod.bridge for pod in found.values()]
    chosen = max(sorted(set(bridges)), key=bridges.count, default="")
    return {ip: pod for ip, pod in found.items() if pod.bridge == chosen}


def unusable_settings(spec: FarmSpec) -> Blocker | None:
    """Return a blocker if a stateless farm has settings that need connection tracking."""
    if is_stateless(spec) and (unusable := list(_unusable(spec))):
        message = f"mode {spec.mode} keeps no connections and does not support {', '.join(unusable)}"
        return Blocker("Unsupported", message, refuse_clients=True)
    return None


def blocker(spec: FarmSpec, links: Links) -> Blocker | None:
    """Return why a farm in the mode dsr cannot be served on this node, or None if it can."""
    if spec.mode != "dsr":
        return None
    reason, message = _dsr_problem(spec, links) or (None, "")
    return Blocker(reason, message, refuse_clients=True) if reason is not None else None


def _dsr_problem(spec: FarmSpec, links: Links) -> tuple[FailureReason, str] | None:
    if any(address.type == "NodePort" for address in spec.addresses):
        return (
            "AddressInUse",
            (
                "mode dsr needs an address of its own, and node ports are on addresses of the node: use the type "
                "ClusterIP, or LoadBalancer with allocateLoadBalancerNodePorts: false"
            ),
        )
    listened = {port for address in spec.addresses for port in expand_ports(address.ports)}
    if differing := [b for b in spec.backends if b.port is not None and listened != {b.port}]:
        return (
            "PortsDiffer",
            (
                f"mode dsr does not change packets, so backends must listen on the farm's port: {differing[0].name} "
                f"listens on {differing[0].port}, the farm on {', '.join(map(str, sorted(listened)))}"
            ),
        )
    own_ips = links.addresses | links.pods.keys()
    for address in spec.addresses:
        ip = str(ipaddress.ip_address(address.ip))
        if ip in own_ips:
            return "AddressInUse", f"mode dsr needs an address of its own, and {ip} belongs to this node"
    ready = [backend for backend in spec.backends if backend.ready]
    if ready and not any(backend.ip in links.pods for backend in ready):
        serves = "in mode dsr a node serves with the pods on its own bridges, and"
        if not links.pods:
            return "NoLocalBackend", f"{serves} the agent sees none here: dsr.enabled of the chart is off, or none run"
        named = some_of([backend.name for backend in ready])
        remedy = "run one on this node, or use the mode dnat"
        return "NoLocalBackend", f"{serves} none of the backends is one: {named}; {remedy}"
    return None


def _unusable(spec: FarmSpec) -> Iterator[str]:
    """Yield the settings that need connection tracking or nftlb's filter chains; the model rejects others."""
    if spec.protocol == "All":
        yield "the protocol All"
    if spec.sessions:
        yield "sessions"
    if any(address.source_ranges for address in spec.addresses):
        # Packets are forwarded before they reach the rules for source ranges.
        yield "sourceRanges"
    if any(each.established is not None for each in spec.backend_options):
        yield "limits of backends"
    if spec.queue is not None:
        yield "queue"
