"""The network interfaces of this node, with their addresses."""

from ipaddress import ip_address, ip_interface
from typing import Any

from kube_nftlb.announce.ownership.interfaces import Interface
from kube_nftlb.netfilter import rtnetlink

_ETHERNET = 1
"""ARPHRD_ETHER (linux/if_arp.h)."""
_RUNNING = 0x40
"""IFF_RUNNING (linux/if.h): up, and with a carrier."""


def interfaces() -> tuple[Interface, ...]:
    """Return the interfaces that have addresses, by name. Raises OSError."""
    with rtnetlink.connected() as ip:
        links = {link["index"]: link for link in ip.get_links()}
        addresses: dict[int, list[str]] = {}
        for entry in ip.get_addr():
            addresses.setdefault(entry["index"], []).append(_with_prefix(entry))
    found = []
    for index, own in addresses.items():
        if (link := links.get(index)) is not None:
            # The node answers for addresses of all the others, too: it has them whatever becomes of the interface.
            able = link["ifi_type"] == _ETHERNET and link["flags"] & _RUNNING
            mac = (able and link.get_attr("IFLA_ADDRESS")) or ""
            found.append(Interface(link.get_attr("IFLA_IFNAME"), mac, tuple(sorted(own))))
    return tuple(sorted(found))


def _with_prefix(entry: Any) -> str:
    """Return the host's own address in a message about one, with the length of its prefix if that is its subnet's."""
    own = ip_interface(f"{rtnetlink.own_address(entry)}/{entry['prefixlen']}")
    has_subnet = ip_address(entry.get_attr("IFA_ADDRESS")) in own.network
    return str(own if has_subnet else ip_interface(own.ip))
