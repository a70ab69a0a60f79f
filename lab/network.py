"""Links, addresses and routes. All functions act on the network namespace of the calling thread."""

import os
from collections.abc import Iterable
from pathlib import Path

from pyroute2 import IPRoute

from lab import addresses
from lab.addresses import Interfaces, NodePlan
from lab.routing.plan import CLIENT_OUTSIDE, OUTSIDE, SWITCH_OUTSIDE, RouterPlan

_LOOPBACK = 1
_NO_DAD = 0x02  # IFA_F_NODAD: the IPv6 address is usable at once
_HAIRPIN = 1
_BY_CONNECTION = {"net/ipv4/fib_multipath_hash_policy": 1, "net/ipv6/fib_multipath_hash_policy": 1}
"""Packets of a connection have one path of several."""

CLUSTER_BRIDGE = "br0"
OUTSIDE_BRIDGE = "br1"
POD_BRIDGE = "cni0"


def set_up_root(nodes: Iterable[NodePlan]) -> None:
    """Set up the control plane's namespace: a bridge between the nodes, without forwarding."""
    _sysctls({"net/ipv4/ip_forward": 0, "net/ipv6/conf/all/forwarding": 0})
    with IPRoute() as ip:
        _up(ip, _LOOPBACK)
        _add_bridge(ip, CLUSTER_BRIDGE, addresses.GATEWAY)
        # For the API server's replies to pods.
        for node in nodes:
            _add_pod_routes(ip, node)


def attach(namespace: Path, port: str, bridge: str, end: str = "eth0") -> None:
    """Connect another network namespace to a bridge of this one: ``port`` is the local end, ``end`` the other."""
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        with IPRoute() as ip:
            ip.link("add", ifname=port, kind="veth", peer={"ifname": end, "net_ns_fd": descriptor})
            ours = _index(ip, port)
            ip.link("set", index=ours, master=_index(ip, bridge), state="up")
            # For a pod that is its own backend, the bridge sends a frame back through the port it came from.
            ip.brport("set", index=ours, mode=_HAIRPIN)
    finally:
        os.close(descriptor)


def detach(port: str) -> None:
    """Remove a link made by attach, if it exists."""
    with IPRoute() as ip:
        for index in ip.link_lookup(ifname=port):
            ip.link("delete", index=index)


def set_up_node(node: NodePlan, connected: Iterable[NodePlan]) -> None:
    """Set up a node: eth0, the pod bridge, and routes to the pods of the other ``connected`` nodes."""
    _sysctls(
        {
            "net/ipv4/ip_forward": 1,
            "net/ipv6/conf/all/forwarding": 1,
            "net/bridge/bridge-nf-call-iptables": 1,
            "net/bridge/bridge-nf-call-ip6tables": 1,
        }
    )
    with IPRoute() as ip:
        _up(ip, _LOOPBACK)
        eth0 = _index(ip, "eth0")
        _add_addresses(ip, eth0, node.addresses)
        _add_bridge(ip, POD_BRIDGE, node.gateway)
        # Nothing is forwarded through it: a connection to a VIP needs a route before it can be redirected.
        _add_default_routes(ip, addresses.GATEWAY)
        for other in connected:
            if other.number != node.number:
                _add_pod_routes(ip, other)


def add_outside() -> None:
    """Add the bridge behind the routers."""
    with IPRoute() as ip:
        _add_bridge(ip, OUTSIDE_BRIDGE, SWITCH_OUTSIDE)


def set_up_router(router: RouterPlan) -> None:
    """Set up a router: ``eth0`` to the nodes, ``eth1`` to the client. Routes to addresses of Services come by BGP."""
    _sysctls({"net/ipv4/ip_forward": 1, "net/ipv6/conf/all/forwarding": 1, **_BY_CONNECTION})
    with IPRoute() as ip:
        _up(ip, _LOOPBACK)
        _add_addresses(ip, _index(ip, "eth0"), router.inside)
        _add_addresses(ip, _index(ip, "eth1"), router.outside)


def set_up_client_behind(routers: Iterable[RouterPlan]) -> None:
    """Set up a client that sends its connections by all routers."""
    _sysctls(_BY_CONNECTION)
    with IPRoute() as ip:
        _up(ip, _LOOPBACK)
        _add_addresses(ip, _index(ip, "eth0"), CLIENT_OUTSIDE)
        hops = [_hosts(router.outside) for router in routers]
        for number, dst in enumerate(("0.0.0.0/0", "::/0")):
            ip.route("add", dst=dst, multipath=[{"gateway": hop[number]} for hop in hops])


def add_routes_outside(routers: Iterable[RouterPlan]) -> None:
    """Have a node answer clients behind the routers by all of these."""
    with IPRoute() as ip:
        hops = [_hosts(router.inside) for router in routers]
        for number, network in enumerate(OUTSIDE):
            ip.route("add", dst=str(network), multipath=[{"gateway": hop[number]} for hop in hops])


def prepare_end() -> None:
    """Set up a namespace to which something else will add the link."""
    _sysctls({})
    with IPRoute() as ip:
        _up(ip, _LOOPBACK)


def set_up_end(own: Interfaces, gateway: Interfaces) -> None:
    """Set up a namespace with one link, such as a pod or the client."""
    _sysctls({})
    with IPRoute() as ip:
        _up(ip, _LOOPBACK)
        eth0 = _index(ip, "eth0")
        _add_addresses(ip, eth0, own)
        _add_default_routes(ip, gateway)


def _sysctls(values: dict[str, int]) -> None:
    common = {
        f"net/{key}": value
        for interface in ("all", "default")
        for key, value in {
            f"ipv4/conf/{interface}/rp_filter": 0,
            f"ipv6/conf/{interface}/accept_dad": 0,
            f"ipv6/conf/{interface}/dad_transmits": 0,
            f"ipv6/conf/{interface}/disable_ipv6": 0,
        }.items()
    }
    for key, value in {**common, **values}.items():
        path = Path("/proc/sys", key)
        if path.exists():
            path.write_text(str(value))


def _add_bridge(ip: IPRoute, name: str, interfaces: Interfaces) -> None:
    # Without a MAC address of its own a bridge takes the lowest of its ports', which changes as pods come and go.
    # Neighbors that still have the old one in their cache would send packets into the void.
    own = ":".join(f"{byte:02x}" for byte in (2, 0, *interfaces[0].ip.packed))
    ip.link("add", ifname=name, kind="bridge", address=own)
    _add_addresses(ip, _index(ip, name), interfaces)


def _add_addresses(ip: IPRoute, index: int, interfaces: Interfaces) -> None:
    four, six = interfaces
    ip.addr("add", index=index, address=str(four.ip), prefixlen=four.network.prefixlen)
    ip.addr("add", index=index, address=str(six.ip), prefixlen=six.network.prefixlen, flags=_NO_DAD)
    _up(ip, index)


def _add_default_routes(ip: IPRoute, gateway: Interfaces) -> None:
    four, six = _hosts(gateway)
    ip.route("add", dst="0.0.0.0/0", gateway=four)
    ip.route("add", dst="::/0", gateway=six)


def _add_pod_routes(ip: IPRoute, node: NodePlan) -> None:
    for cidr, gateway in zip(node.pod_cidrs, _hosts(node.addresses), strict=True):
        ip.route("add", dst=str(cidr), gateway=gateway)


def _up(ip: IPRoute, index: int) -> None:
    ip.link("set", index=index, state="up")


def _index(ip: IPRoute, name: str) -> int:
    index: int = ip.link_lookup(ifname=name)[0]
    return index


def _hosts(interfaces: Interfaces) -> tuple[str, str]:
    four, six = interfaces
    return str(four.ip), str(six.ip)
