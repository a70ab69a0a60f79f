"""The state of kube-proxy in IPVS: its interface, and the virtual servers at the addresses of this interface.

kube-proxy gives the addresses of all Services to the interface. Its virtual servers for node ports are at the node's
own addresses, where other programs have theirs too: they stay, and get no packets, as the agent's rules come first.
"""

import errno
import socket
from collections.abc import Collection, Iterable
from typing import Any

from pyroute2 import IPVS, IPRoute, IPVSService, NetlinkError

from kube_nftlb import errors
from kube_nftlb.netfilter import rtnetlink
from kube_nftlb.netfilter.destinations import PROTOCOLS, Destination

INTERFACE = "kube-ipvs0"
_NO_IPVS = (errno.ENOENT, errno.EOPNOTSUPP)


class KernelIpvs:
    """Finds and removes it in this network namespace."""

    def found(self) -> bool:
        """See ``Ipvs``."""
        try:
            socket.if_nametoindex(INTERFACE)
        except OSError:
            return False
        return True

    def served(self) -> list[Destination]:
        """See ``Ipvs``."""
        try:
            with rtnetlink.connected() as ip:
                addresses = _addresses(ip, socket.if_nametoindex(INTERFACE))
            return [
                Destination(str(each["addr"]), PROTOCOLS.get(each["protocol"], ""), int(each["port"]), "")
                for each in _servers(addresses)
            ]
        except (NetlinkError, OSError) as error:
            raise errors.KernelError(f"cannot read kube-proxy's IPVS: {error}") from error

    def remove(self) -> str:
        """See ``Ipvs``."""
        try:
            return self._remove()
        except (NetlinkError, OSError) as error:
            raise errors.KernelError(f"cannot remove kube-proxy's IPVS: {error}") from error

    def _remove(self) -> str:
        with rtnetlink.connected() as ip:
            index = socket.if_nametoindex(INTERFACE)
            servers = _servers(_addresses(ip, index))
            if servers:
                with IPVS() as ipvs:
                    for server in servers:
                        ipvs.service("del", service=server)
            ip.link("del", index=index)
        return f"{len(servers)} virtual servers and the interface {INTERFACE}"


def _addresses(ip: IPRoute, index: int) -> set[str]:
    return set(map(rtnetlink.own_address, ip.get_addr(index=index)))


def _servers(addresses: Collection[str]) -> list[IPVSService]:
    try:
        with IPVS() as ipvs:
            return servers_at(addresses, ipvs.service("dump"))
    except NetlinkError as error:
        # Without IPVS in the kernel there are no virtual servers.
        if error.code in _NO_IPVS:
            return []
        raise


def servers_at(addresses: Collection[str], dump: Iterable[Any]) -> list[IPVSService]:
    """Return the virtual servers at these addresses, of the kernel's messages about all."""
    found = []
    for message in dump:
        service = message.get_attr("IPVS_CMD_ATTR_SERVICE")
        address, port, protocol = (service.get_attr(f"IPVS_SVC_ATTR_{name}") for name in ("ADDR", "PORT", "PROTOCOL"))
        if address in addresses:
            found.append(IPVSService(addr=address, port=port, protocol=protocol))
    return found
