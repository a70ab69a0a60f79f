"""The node's interfaces and its pods', and the addresses of dsr farms on the loopbacks of pods.

A pod's namespace is entered only where it is the other end of a port of one of this node's bridges, and has the very
address that a farm has for a backend. What was changed in there is on record in the run folder, so that an agent that
was restarted can undo it.
"""

import asyncio
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import structlog
from pyroute2 import IPRoute
from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST, nla, nlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTM_SETLINK
from pyroute2.netlink.rtnl.ifinfmsg import IFF_UP, ifinfmsg

from kube_nftlb.agent.dsr.modes import NO_LINKS, Links, PodLink, PodVip
from kube_nftlb.netfilter import namespaces

_log = structlog.get_logger()

_ETHERNET = 1
_LOOPBACK = 1
_GLOBAL = 0
_NO_DAD = 0x02
_ARP = {"arp_announce": 2, "arp_ignore": 1}
"""ip-sysctl: never name the address of another interface in an ARP request; answer only for those of the interface."""
_INTERFACE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
"""What nft takes for a name without quotes, and nftlb puts none."""


@dataclass(frozen=True)
class _Link:
    index: int
    name: str
    mac: str
    master: int
    peer: int
    peer_namespace: int
    usable: bool
    arp: dict[str, int]
    ips: frozenset[str]


@dataclass(frozen=True)
class _Entry:
    """What was done in a pod's namespace, and how it was before."""

    namespace: int
    interface: str
    arp: Mapping[str, int]
    vips: frozenset[str] = field(default_factory=frozenset)


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


class PodLinks(Protocol):
    """What knows the node's interfaces, and gives pods addresses."""

    links: Links

    async def look(self) -> bool:
        """Read the interfaces anew. Return True if anything has changed."""

    async def provide(self, vips: Mapping[str, frozenset[PodVip]]) -> None:
        """Give pods the addresses that these farms need; a pod that cannot be given one is no longer in ``links``."""

    async def tidy(self) -> None:
        """Take from pods what no farm needs any more."""


class PodAddresses:
    """See ``PodLinks``. ``provide`` adds addresses, ``tidy`` takes them away."""

    def __init__(self, file: Path) -> None:
        """``file`` is the record of what pods were given."""
        self._file = file
        self._wanted: dict[str, frozenset[PodVip]] = {}
        self._record = _read(self._file)
        self.links = NO_LINKS

    async def look(self) -> bool:
        """See ``PodLinks``."""
        before, self.links = self.links, await asyncio.to_thread(_survey)
        return self.links != before

    async def provide(self, vips: Mapping[str, frozenset[PodVip]]) -> None:
        """Give pods the addresses that these farms need; a pod that cannot be given one is no longer in ``links``."""
        self._wanted.update(vips)
        self._wanted = {farm: wanted for farm, wanted in self._wanted.items() if wanted}
        for ip, wanted in self._by_pod().items():
            pod = self.links.pods.get(ip)
            if pod is None or not (missing := wanted - self._given(ip, pod)):
                continue
            try:
                await asyncio.to_thread(self._give, ip, pod, missing)
            except (OSError, NetlinkError) as error:
                _log.warning("cannot give a pod the address of a dsr farm", pod_ip=ip, error=str(error))
                self.links = replace(self.links, pods={k: v for k, v in self.links.pods.items() if k != ip})

    async def tidy(self) -> None:
        """Take from pods what no farm needs any more."""
        by_pod = self._by_pod()
        for ip, entry in list(self._record.items()):
            if surplus := entry.vips - by_pod.get(ip, frozenset()):
                await asyncio.to_thread(self._take, ip, entry, surplus)

    def _by_pod(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for wanted in self._wanted.values():
            for ip, vip in wanted:
                found[ip] = found.get(ip, frozenset()) | {vip}
        return found

    def _given(self, ip: str, pod: PodLink) -> frozenset[str]:
        entry = self._record.get(ip)
        return entry.vips if entry is not None and entry.namespace == pod.namespace else frozenset()

    def _give(self, ip: str, pod: PodLink, vips: frozenset[str]) -> None:
        def configure() -> None:
            with IPRoute() as netlink:
                link = next(link for link in _links(netlink) if link.name == pod.interface and ip in link.ips)
                there = {address.get_attr("IFA_ADDRESS") for address in netlink.get_addr()}
                known = self._record.get(ip)
                if known is None or known.namespace != pod.namespace:
                    # For IPv6 the kernel answers for the addresses of the interface alone.
                    known = _Entry(pod.namespace, pod.interface, {} if ":" in ip else link.arp)
                # What is there already is somebody else's. On record before it is done, so that none is forgotten.
                self._record[ip] = replace(known, vips=known.vips | (vips - there))
                self._write()
                _set_arp(netlink, link.index, {name: max(_ARP[name], link.arp[name]) for name in known.arp})
                for vip in sorted(vips - there):
                    six = ":" in vip
                    extra = {"flags": _NO_DAD} if six else {}
                    netlink.addr("add", index=_LOOPBACK, address=vip, prefixlen=128 if six else 32, **extra)

        _enter(pod.namespace, configure)
        _log.info("pod has the addresses of dsr farms", pod_ip=ip, addresses=sorted(vips))

    def _take(self, ip: str, entry: _Entry, vips: frozenset[str]) -> None:
        left = entry.vips - vips

        def restore() -> None:
            with IPRoute() as netlink:
                link = next((link for link in _links(netlink) if link.name == entry.interface and ip in link.ips), None)
                # The number of a namespace that has gone may be another's now.
                if link is None:
                    return
                for address in netlink.get_addr(index=_LOOPBACK):
                    vip = address.get_attr("IFA_ADDRESS")
                    if vip in vips:
                        netlink.addr("delete", index=_LOOPBACK, address=vip, prefixlen=address["prefixlen"])
                if not left:
                    _set_arp(netlink, link.index, entry.arp)
                _log.info("pod has lost the addresses of dsr farms", pod_ip=ip, addresses=sorted(vips))

        try:
            _enter(entry.namespace, restore)
        except FileNotFoundError:
            _log.info("pod with addresses of dsr farms has gone", pod_ip=ip)
        except (OSError, NetlinkError) as error:
            _log.warning("cannot take an address from a pod", pod_ip=ip, error=str(error))
            return
        if left:
            self._record[ip] = replace(entry, vips=left)
        else:
            del self._record[ip]
        self._write()

    def _write(self) -> None:
        content = {ip: {**asdict(entry), "vips": sorted(entry.vips)} for ip, entry in self._record.items()}
        temporary = self._file.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(self._file)


def _read(file: Path) -> dict[str, _Entry]:
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return {ip: _Entry(**{**entry, "vips": frozenset(entry["vips"])}) for ip, entry in content.items()}


def _survey() -> Links:
    with IPRoute() as netlink:
        links = {link.index: link for link in _links(netlink)}
        pods: dict[str, PodLink] = {}
        twice: set[str] = set()
        for ip, pod in _pods(netlink, links):
            twice.update({ip} & pods.keys())
            pods[ip] = pod
    return Links(
        # An address that two namespaces claim is nobody's.
        {ip: pod for ip, pod in pods.items() if ip not in twice},
        {link.name: link.mac for link in links.values() if link.usable and link.ips and not link.master},
        frozenset(ip for link in links.values() for ip in link.ips),
    )


def _pods(netlink: IPRoute, links: Mapping[int, _Link]) -> Iterator[tuple[str, PodLink]]:
    for inode, path in namespaces.other_networks().items():
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            number = netlink.get_netnsid(fd=descriptor)["nsid"]
            inside = namespaces.in_namespace(descriptor, _own_links)
        except (OSError, NetlinkError):
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


def _own_links() -> list[_Link]:
    with IPRoute() as netlink:
        return _links(netlink)


def _links(netlink: IPRoute) -> list[_Link]:
    ips: dict[int, set[str]] = {}
    for address in netlink.get_addr():
        if address["scope"] == _GLOBAL:
            ips.setdefault(address["index"], set()).add(address.get_attr("IFA_ADDRESS"))
    return [_link(raw, frozenset(ips.get(raw["index"], ()))) for raw in netlink.get_links()]


def _link(raw: Any, ips: frozenset[str]) -> _Link:
    name = raw.get_attr("IFLA_IFNAME")
    settings = raw.get_attr("IFLA_AF_SPEC").get_attr("AF_INET") or {}
    return _Link(
        raw["index"],
        name,
        raw.get_attr("IFLA_ADDRESS") or "",
        raw.get_attr("IFLA_MASTER") or 0,
        raw.get_attr("IFLA_LINK") or 0,
        -1 if raw.get_attr("IFLA_LINK_NETNSID") is None else raw.get_attr("IFLA_LINK_NETNSID"),
        raw["ifi_type"] == _ETHERNET and bool(raw["flags"] & IFF_UP) and bool(_INTERFACE_NAME.fullmatch(name)),
        {key: settings.get(key, 0) for key in _ARP},
        ips,
    )


def _set_arp(netlink: IPRoute, index: int, values: Mapping[str, int]) -> None:
    if not values:
        return
    message = _ArpSettings()
    message["header"]["type"], message["header"]["flags"] = RTM_SETLINK, NLM_F_REQUEST | NLM_F_ACK
    message["index"] = index
    message["attrs"] = [("AF_SPEC", {"attrs": [("INET", {"attrs": [("CONF", {"attrs": list(values.items())})]})]})]
    list(netlink.nlm_request_batch([message]))


def _enter(namespace: int, function: Any) -> None:
    """Run a function in the namespace with this inode. Raises OSError where it has gone."""
    path = namespaces.other_networks().get(namespace)
    if path is None:
        raise FileNotFoundError(f"the network namespace {namespace} has gone")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_ino != namespace:
            raise FileNotFoundError(f"the network namespace {namespace} has gone")
        namespaces.in_namespace(descriptor, function)
    finally:
        os.close(descriptor)
