"""The client of the tests, outside of the nodes' network, as behind a router.

The lab's client has an address of the nodes' network, which a test takes for that of a node that masquerades.
"""

from functools import partial
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

from pyroute2 import IPRoute

from kube_nftlb.netfilter.namespaces import in_namespace
from lab import addresses, components, network
from lab.lab import Lab
from lab.places import CLIENT

ADDRESSES: addresses.Interfaces = (IPv4Interface("192.0.2.10/32"), IPv6Interface("2001:db8:2::10/128"))
_NO_DAD = 0x02
_LINK = "eth0"
_DEFAULT = ("0.0.0.0/0", "::/0")


def move_client(lab: Lab) -> None:
    """Give the client its new addresses, and everybody a way to it. Raises OSError, LabError."""
    lab.inside(CLIENT, partial(_move, lab.nodes[0].addresses))
    for node in lab.nodes:
        lab.inside(node.name, partial(_reach, _LINK))
    # The API server is in the network of the control plane.
    control_plane = Path(f"/proc/{lab.pid(components.API_SERVER)}/ns/net")
    in_namespace(control_plane, partial(_reach, network.CLUSTER_BRIDGE))


def _move(router: addresses.Interfaces) -> None:
    for family in ("ipv4", "ipv6"):
        # Of several ways to a load balancer address, each connection takes one.
        Path("/proc/sys/net", family, "fib_multipath_hash_policy").write_text("1")
    with IPRoute() as ip:
        [link] = ip.link_lookup(ifname=_LINK)
        for number, flags in enumerate((0, _NO_DAD)):
            old, new, gateway = addresses.CLIENT[number], ADDRESSES[number], router[number]
            ip.addr("add", index=link, address=str(new.ip), prefixlen=new.network.prefixlen, flags=flags)
            ip.addr("delete", index=link, address=str(old.ip), prefixlen=old.network.prefixlen)
            ip.route("replace", dst=str(old.network), oif=link, scope="link")
            ip.route("replace", dst=_DEFAULT[number], gateway=str(gateway.ip), oif=link)


def _reach(link: str) -> None:
    with IPRoute() as ip:
        [index] = ip.link_lookup(ifname=link)
        for address in ADDRESSES:
            ip.route("replace", dst=str(address.network), oif=index, scope="link")
