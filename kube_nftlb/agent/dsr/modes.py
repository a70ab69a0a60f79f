"""What a farm in the mode dsr, stlsdnat or local needs on this node, and what nftlb is sent for it. No I/O.

In the mode dsr nftlb sends a packet on as it is, to the MAC address of a backend: from a netdev chain at the ingress of
each interface that clients' packets come in by. It finds that interface by the address, and a backend's MAC address in
the table of neighbours; it is told both instead. So the address need not be on the node, where the kernel would take
the backends' answers for forged ones, and neighbours need not be resolved.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.values import expand_ports
from kube_nftlb.nftlb import objects
from kube_nftlb.reasons import FailureReason

_NAMED_MAX = 3
_BY_CONNECTION = "srcip srcport"


class PodLink(NamedTuple):
    """How a pod hangs on this node: its namespace's inode, its interface and MAC address, and the bridge it is on."""

    namespace: int
    interface: str
    mac: str
    bridge: str


@dataclass(frozen=True)
class Links:
    """The node's interfaces as far as they matter here."""

    pods: Mapping[str, PodLink]
    """The pods on this node's bridges, by IP address."""
    inlets: Mapping[str, str]
    """Interfaces by which clients' packets may come in, with their MAC addresses."""
    addresses: frozenset[str]
    """The node's own addresses."""


NO_LINKS = Links({}, {}, frozenset())


class PodVip(NamedTuple):
    """A farm's address that a pod is to have on its loopback."""

    pod_ip: str
    vip: str


class Hindrance(NamedTuple):
    """Why a farm does not work on this node: a word for machines, a sentence for people."""

    reason: FailureReason
    message: str


def is_stateless(farm: Farm) -> bool:
    """Whether the farm's mode keeps no connections."""
    return farm.spec.mode in ("dsr", "stlsdnat")


def pod_vips(farm: Farm, links: Links) -> frozenset[PodVip]:
    """The addresses that pods on this node need, for them to take the farm's packets."""
    if farm.spec.mode != "dsr" or _hindrance(farm.spec, links):
        return frozenset()
    return frozenset(
        PodVip(ip, address.ip) for ip in _on_one_bridge(farm.spec, links) for address in farm.spec.addresses
    )


def refused_by_nftlb(farm: Farm) -> str:
    """In a sentence, why nftlb would take a farm out of the kernel; else empty."""
    if not farm.spec.flow_offload or is_stateless(farm):
        return ""
    return (
        "with flowOffload nftlb 1.0.7 takes a farm out of the kernel whose addresses no interface of the node has, as "
        "it is with Services (docs/nftlb-defects.md); leave it out"
    )


def shaped(farm: Farm, seen: objects.Farm, links: Links) -> tuple[objects.Farm, Hindrance | None]:
    """What nftlb shall have of a farm, given what ``view`` makes of it; and what is in the way, if anything.

    A farm that cannot work here has no backend in nftlb, so that its connections are refused. Raises ValueError for one
    that nftlb would take out of the kernel.
    """
    if refused := refused_by_nftlb(farm):
        raise ValueError(refused)
    if farm.spec.mode == "local":
        if farm.spec.state != "up":
            return _idle(seen), None
        # With backends, or for the node's own connections, nftlb asks nft for a chain that there is not.
        return replace(seen, options={**seen.options, "intra-connect": "off"}, backends={}), None
    if not is_stateless(farm):
        return seen, None
    if hindrance := _hindrance(farm.spec, links):
        return _idle(seen), hindrance
    pods = _on_one_bridge(farm.spec, links)
    bridge = next(iter(pods.values())).bridge if pods else ""
    backends = {
        name: replace(backend, options={**backend.options, "ether-addr": pods[backend.options["ip-addr"]].mac})
        for name, backend in seen.backends.items()
        if backend.options["ip-addr"] in pods and backend.state == "up"
    }
    if not backends:
        return _idle(seen), None
    options = {**seen.options, **_scheduling(farm.spec), "oface": bridge}
    addresses = {address.name: address for address in _addresses(seen, links)}
    return replace(seen, options=options, addresses=addresses, backends=backends, sessions={}), None


KEEPER = "Keeper"
"""The name of a farm of our own in nftlb; those of users never begin with a capital."""

_KEPT_IP = "192.0.2.1"
"""An address for documentation (RFC 5737), which nobody has."""


def keeper(links: Links) -> objects.Farm:
    """A farm without backends that must be in nftlb before any in the mode dsr, and stays when they go.

    When the last listener leaves the ingress, nftlb goes on to use what it frees then (docs/nftlb-defects.md). With a
    listener of ours there is no last one.
    """
    plain = objects.Farm(KEEPER, {}, {KEEPER: objects.Address(KEEPER, "ipv4", _KEPT_IP, "1", "tcp")})
    addresses = {address.name: address for address in _addresses(plain, links)}
    return objects.Farm(KEEPER, {"mode": "dsr", "scheduler": "rr", "state": "up"}, addresses)


def _idle(seen: objects.Farm) -> objects.Farm:
    return replace(seen, options={**seen.options, "mode": "dnat", "state": "down"}, backends={}, sessions={})


def _scheduling(spec: FarmSpec) -> dict[str, str]:
    """nftlb schedules each packet anew: only what gives all packets of a connection one backend is of use."""
    if spec.scheduler == "symhash" and spec.persistence == "none":
        return {"persistence": "none"}
    fields = next((chosen for chosen in (spec.persistence, spec.sched_param) if chosen != "none"), _BY_CONNECTION)
    return {"scheduler": "hash", "sched-param": fields, "persistence": "none"}


def _addresses(seen: objects.Farm, links: Links) -> Iterator[objects.Address]:
    for address in seen.addresses.values():
        for interface, mac in sorted(links.inlets.items()):
            # A bridge takes the MAC address of one of its ports, so it may change at any time, and does not matter.
            name = names.address_name(seen.name, address.ip, address.protocol, f"{address.ports} {interface}")
            yield replace(address, name=name, interface=interface, mac=mac)


def _on_one_bridge(spec: FarmSpec, links: Links) -> dict[str, PodLink]:
    """The backends that one interface leads to, by IP: nftlb has one for a farm. The bridge with the most is taken."""
    found = {
        backend.ip: links.pods[backend.ip] for backend in spec.backends if backend.ready and backend.ip in links.pods
    }
    bridges = [pod.bridge for pod in found.values()]
    chosen = max(sorted(set(bridges)), key=bridges.count, default="")
    return {ip: pod for ip, pod in found.items() if pod.bridge == chosen}


def _hindrance(spec: FarmSpec, links: Links) -> Hindrance | None:
    if unusable := list(_unusable(spec)):
        return Hindrance(
            "Unsupported", f"the mode {spec.mode} keeps no connections, so it cannot do {', '.join(unusable)}"
        )
    if spec.mode == "stlsdnat":
        return Hindrance(
            "NftlbDefect",
            "nftlb 1.0.7 cannot load the mode stlsdnat where clients and backends are behind different interfaces, as "
            "pods are (docs/nftlb-defects.md); dnat does the same with connection tracking",
        )
    if spec.family == "ipv6":
        return Hindrance(
            "NftlbDefect",
            "nftlb 1.0.7 drops the chains of all farms in the mode dsr when one of IPv6 is removed, and may die of it "
            "(docs/nftlb-defects.md); the mode dsr is for IPv4",
        )
    if any(address.type == "NodePort" for address in spec.addresses):
        return Hindrance(
            "AddressInUse",
            "the mode dsr needs an address of its own, and node ports are on those of the node: take the type "
            "ClusterIP, or LoadBalancer with allocateLoadBalancerNodePorts: false",
        )
    listened = {port for address in spec.addresses for port in expand_ports(address.ports)}
    if differing := [b for b in spec.backends if b.port is not None and listened != {b.port}]:
        return Hindrance(
            "PortsDiffer",
            f"in the mode dsr packets reach a backend as they are, so it must listen on the port that clients ask for: "
            f"{differing[0].name} has {differing[0].port}, and the farm {', '.join(map(str, sorted(listened)))}",
        )
    taken = links.addresses | links.pods.keys()
    for address in spec.addresses:
        ip = str(ipaddress.ip_address(address.ip))
        if ip in taken:
            return Hindrance("AddressInUse", f"the mode dsr needs an address of its own, and {ip} is one of this node")
    ready = [backend for backend in spec.backends if backend.ready]
    if ready and not any(backend.ip in links.pods for backend in ready):
        named = ", ".join(backend.name for backend in ready[:_NAMED_MAX])
        more = f" and {len(ready) - _NAMED_MAX} more" if len(ready) > _NAMED_MAX else ""
        return Hindrance(
            "NoLocalBackend",
            f"in the mode dsr a node serves with the pods on its own bridges, and none of the backends is one here: "
            f"{named}{more}; run one here, or take the mode dnat",
        )
    return None


def _unusable(spec: FarmSpec) -> Iterator[str]:
    """The settings, by their names, that need connection tracking or nftlb's filter chains; the model refuses more."""
    if spec.protocol == "All":
        yield "the protocol All"
    if spec.sessions:
        yield "sessions"
    if any(address.source_ranges for address in spec.addresses):
        # A packet is sent on before it comes to the rules that look at them.
        yield "sourceRanges"
    if any(backend.established is not None for backend in spec.backends):
        yield "limits of backends"
    if spec.queue is not None:
        yield "queue"
    if spec.flow_offload:
        yield "flowOffload"
