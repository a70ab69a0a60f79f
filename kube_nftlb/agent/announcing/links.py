"""The network interfaces of this node, with their addresses."""

from kube_nftlb.announce.ownership.interfaces import Interface
from kube_nftlb.netfilter import rtnetlink

_ETHERNET = 1
"""ARPHRD_ETHER (linux/if_arp.h)."""
_RUNNING = 0x40
"""IFF_RUNNING (linux/if.h): up, and with a carrier."""


def interfaces() -> tuple[Interface, ...]:
    """Return the interfaces that are up, have a carrier and addresses, by name. Raises OSError."""
    with rtnetlink.connected() as ip:
        links = {link["index"]: link for link in ip.get_links()}
        addresses: dict[int, list[str]] = {}
        for entry in ip.get_addr():
            addresses.setdefault(entry["index"], []).append(f"{entry.get_attr('IFA_ADDRESS')}/{entry['prefixlen']}")
    found = []
    for index, own in addresses.items():
        link = links.get(index)
        if link is None or link["ifi_type"] != _ETHERNET or not link["flags"] & _RUNNING:
            continue
        found.append(Interface(link.get_attr("IFLA_IFNAME"), link.get_attr("IFLA_ADDRESS") or "", tuple(sorted(own))))
    return tuple(sorted(found))
