"""Read the interfaces of this node and of its pods over netlink.

A pod's namespace is entered only if it is the other end of a port of one of this node's bridges.
"""

import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST, nla, nlmsg
from pyroute2.netlink.rtnl import RTM_SETLINK
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP, ifinfmsg

from kube_nftlb.agent.dsr.modes import Links, PodLink
from kube_nftlb.netfilter import namespaces, rtnetlink

_log = structlog.get_logger()

_ETHERNET = 1
_GLOBAL = 0
ARP = {"arp_announce": 2, "arp_ignore": 1}
"""ip-sysctl: never name the address of another interface in an ARP request; answer only for those of the interface."""
_INTERFACE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
"""Names that nft accepts without quotes: nftlb writes none."""


@dataclass(frozen=True)
class Link:
    """An interface. ``master``, ``peer`` and ``peer_namespace`` are kernel numbers; ``usable`` if nft can name it.

    The name is empty if it is not text.
    """

    index: int
    name: str
    mac: str
    master: int
    peer: int
    peer_namespace: int
    usable: bool
    arp: dict[str, int]
    ips: frozenset[str]


class _ArpSettings(nlmsg):  # type: ignore[misc]  # pyroute2 has no type hints
    """RTM_SETLINK with IFLA_AF_SPEC, AF_INET, IFLA_INET_CONF: it works where /proc/sys is read-only (if_link.h)."""

    fields = ifinfmsg.fields
    prefix = ""
    nla_map = ((26, "AF_SPEC", "af_spec"),)

    class af_spec(nla):  # type: ignore[misc]  # noqa: N801 - pyroute2 finds it by this name
        prefix = ""
        nla_map = ((socket.AF_INET, "INET", "inet"),)

        class inet(nla):  # type: ignore[misc]  # noqa: N801 - as above
            prefix = ""
            nla_map = ((1, "CONF", "conf"),)

            class conf(nla):  # type: ignore[misc]  # noqa: N801 - as above
                prefix = ""
                nla_map = ((18, "arp_announce", "uint32"), (19, "arp_ignore", "uint32"))


def survey() -> Links:
    """Read the node's interfaces, and the pods on its bridges. Raises OSError."""
    with rtnetlink.connected() as netlink:
        links = {link.index: link for link in read_links(netlink)}
        pods: dict[str, PodLink] = {}
        twice: set[str] = set()
        for ip, pod in _pods(netlink, links):
            twice.update({ip} & pods.keys())
            pods[ip] = pod
    return Links(
        # An address in two namespaces belongs to neither.
        {ip: pod for ip, pod in pods.items() if ip not in twice},
        {link.name: link.mac for link in links.values() if link.usable and link.ips and not link.master},
        frozenset(ip for link in links.values() for ip in link.ips),
    )


def _pods(netlink: IPRoute, links: Mapping[int, Link]) -> Iterator[tuple[str, PodLink]]:
    for inode, path in namespaces.other_networks().items():
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            number = netlink.get_netnsid(fd=descriptor)["nsid"]
            inside = namespaces.in_namespace(descriptor, _own_links)
        except OSError:
            continue
        except Exception as error:
            # What is read there is a tenant's: whatever it is, the other pods are not to suffer from it.
            _log.debug("cannot read the interfaces of a pod", namespace=inode, error=repr(error))
            continue
        finally:
            os.close(descriptor)
        for link in inside:
            port = links.get(link.peer)
            if port is None or (port.peer, port.peer_namespace) != (link.index, number) or not link.usable:
                continue
            bridge = links.get(port.master)
            if bridge is not None and bridge.usable:
                yield from ((ip, PodLink(inode, link.name, link.mac, bridge.name)) for ip in link.ips)


def _own_links() -> list[Link]:
    with rtnetlink.connected() as netlink:
        return read_links(netlink)


def read_links(netlink: IPRoute) -> list[Link]:
    """Read the interfaces of the socket's network namespace, with their global addresses."""
    ips: dict[int, set[str]] = {}
    for address in netlink.get_addr():
        if address["scope"] == _GLOBAL:
            ips.setdefault(address["index"], set()).add(rtnetlink.own_address(address))
    return [_link(raw, frozenset(ips.get(raw["index"], ()))) for raw in netlink.get_links()]


def _link(raw: Any, ips: frozenset[str]) -> Link:
    name = raw.get_attr("IFLA_IFNAME")
    if not isinstance(name, str):
        # pyroute2 leaves a name as bytes that is not UTF-8: whoever is root in a namespace may choose such a one.
        name = ""
    settings = raw.get_attr("IFLA_AF_SPEC").get_attr("AF_INET") or {}
    return Link(
        raw["index"],
        name,
        raw.get_attr("IFLA_ADDRESS") or "",
        raw.get_attr("IFLA_MASTER") or 0,
        raw.get_attr("IFLA_LINK") or 0,
        -1 if raw.get_attr("IFLA_LINK_NETNSID") is None else raw.get_attr("IFLA_LINK_NETNSID"),
        raw["ifi_type"] == _ETHERNET and bool(raw["flags"] & IFF_UP) and bool(_INTERFACE_NAME.fullmatch(name)),
        {key: settings.get(key, 0) for key in ARP},
        ips,
    )


def set_arp(netlink: IPRoute, index: int, values: Mapping[str, int]) -> None:
    """Set ARP settings of an interface."""
    if not values:
        return
    message = _ArpSettings()
    message["header"]["type"], message["header"]["flags"] = RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK
    message["index"] = index
    message["attrs"] = [("AF_SPEC", {"attrs": [("INET", {"attrs": [("CONF", {"attrs": list(values.items())})]})]})]
    list(netlink.nlm_request_batch([message]))
