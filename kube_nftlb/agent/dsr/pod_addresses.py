"""Give pods the addresses of dsr farms on their loopbacks.

A pod's namespace is changed only if it is the other end of a port of one of this node's bridges, and has the address of
a farm's backend. Changes are recorded in the run folder, so that a restarted agent can undo them.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog
from pyroute2 import IPRoute

from kube_nftlb.agent.dsr.modes import NO_LINKS, Links, PodLink, PodVip
from kube_nftlb.agent.dsr.record import Entry, Record
from kube_nftlb.agent.dsr.survey import ARP, Link, read_links, set_arp, survey
from kube_nftlb.netfilter import namespaces, rtnetlink

_log = structlog.get_logger()

_LOOPBACK = 1
_NO_DAD = 0x02

_Vips = Mapping[str, frozenset[str]]
"""Addresses for a pod, each with the names of the farms that it is for."""


class PodLinks(Protocol):
    """Knows the node's interfaces, and gives pods addresses."""

    links: Links
    incomplete: bool
    """True once a pod could not be given an address, until all are looked for again."""

    async def look(self) -> bool:
        """Read the interfaces anew. Return True if any has changed since the last look."""

    async def provide(self, vips: Mapping[str, frozenset[PodVip]]) -> None:
        """Give pods the addresses that these farms need; pods for which that fails are removed from ``links``."""

    async def tidy(
        self, may_be_served: Callable[[str], bool], is_as_before: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Remove addresses from pods that no farm needs any more.

        Those that an earlier agent has given to pods stay while ``provide`` has not been called for their farm, and it
        may still be served; those that a farm has had before the last call, while its engine may have it so.
        """


class PodAddresses:
    """See ``PodLinks``. ``provide`` adds addresses, ``tidy`` takes them away."""

    def __init__(self, file: Path) -> None:
        """Record the addresses given to pods in ``file``."""
        self._wanted: dict[str, frozenset[PodVip]] = {}
        self._record = Record(file)
        self._earlier = self._record.farms()
        """What an earlier agent has given to pods, for farms that this one has not provided for yet."""
        self._before: dict[str, frozenset[PodVip]] = {}
        """What was wanted for farms before, until their engine has them as they are wanted now."""
        self._confirmed: dict[str, tuple[PodLink, frozenset[str]]] = {}
        """The addresses that this process has found in pods, or added there: the record has also those that failed."""
        self._failures: dict[str, str] = {}
        """Why addresses could not be taken from pods when that was last tried, by IP address."""
        self.links = self._found = NO_LINKS
        self.incomplete = False

    async def look(self) -> bool:
        """See ``PodLinks``."""
        before, self._found = self._found, await asyncio.to_thread(survey)
        self.links = self._found
        self._confirmed = {ip: each for ip, each in self._confirmed.items() if self.links.pods.get(ip) == each[0]}
        return self.links != before

    async def provide(self, vips: Mapping[str, frozenset[PodVip]]) -> None:
        """See ``PodLinks``."""
        for farm, its_vips in vips.items():
            if gone := self._wanted.get(farm, frozenset()) - its_vips:
                self._before[farm] = self._before.get(farm, frozenset()) | gone
        self._wanted.update(vips)
        self._wanted = {farm: wanted for farm, wanted in self._wanted.items() if wanted}
        self._earlier = {farm: earlier for farm, earlier in self._earlier.items() if farm not in vips}
        for ip, wanted in _by_pod(self._wanted).items():
            pod = self.links.pods.get(ip)
            if pod is None or not (missing := wanted.keys() - (present := self._vips_of(ip, pod))):
                continue
            try:
                await asyncio.to_thread(self._give, ip, pod, {vip: wanted[vip] for vip in missing})
                self._confirmed[ip] = pod, present | missing
            except Exception as error:
                # Of the pod, whose tenant may do there what he likes: no other pod is to suffer from it.
                _log.warning("cannot give a pod the address of a dsr farm", pod_ip=ip, error=str(error) or repr(error))
                self.links = replace(self.links, pods={k: v for k, v in self.links.pods.items() if k != ip})
                self.incomplete = True
        if self._record.name_farms(_by_pod(self._earlier, self._wanted)):
            await asyncio.to_thread(self._save)

    async def tidy(
        self, may_be_served: Callable[[str], bool], is_as_before: Callable[[str], bool] = lambda _: False
    ) -> None:
        """See ``PodLinks``."""
        self._earlier = {farm: vips for farm, vips in self._earlier.items() if may_be_served(farm)}
        self._before = {farm: vips for farm, vips in self._before.items() if is_as_before(farm)}
        needed = _by_pod(self._earlier, self._before, self._wanted)
        for ip, entry in list(self._record.entries.items()):
            if surplus := entry.vips.keys() - needed.get(ip, {}).keys():
                await asyncio.to_thread(self._take, ip, entry, surplus)

    def _vips_of(self, ip: str, pod: PodLink) -> frozenset[str]:
        known, vips = self._confirmed.get(ip, (pod, frozenset()))
        return vips if known == pod else frozenset()

    def _give(self, ip: str, pod: PodLink, vips: _Vips) -> None:
        def configure() -> None:
            with rtnetlink.connected() as netlink:
                if (link := _link(netlink, pod.interface, ip)) is None:
                    raise FileNotFoundError(f"the pod has no interface {pod.interface} with its address any more")
                present = set(map(rtnetlink.own_address, netlink.get_addr()))
                known = self._record.entries.get(ip)
                if known is None or known.namespace != pod.namespace:
                    # For IPv6 the kernel answers for the addresses of the interface alone.
                    known = Entry(pod.namespace, pod.interface, {} if ":" in ip else link.arp, {})
                # What is there already is somebody else's. On record before it is done, so that none is forgotten.
                added = {vip: farms for vip, farms in vips.items() if vip not in present}
                self._record.entries[ip] = replace(known, vips={**known.vips, **added})
                self._record.write()
                set_arp(netlink, link.index, {name: max(ARP[name], link.arp[name]) for name in known.arp})
                for vip in sorted(added):
                    six = ":" in vip
                    extra = {"flags": _NO_DAD} if six else {}
                    netlink.addr("add", index=_LOOPBACK, address=vip, prefixlen=128 if six else 32, **extra)

        _enter(pod.namespace, configure)
        _log.info("pod has the addresses of dsr farms", pod_ip=ip, addresses=sorted(vips))

    def _take(self, ip: str, entry: Entry, vips: Collection[str]) -> None:
        remaining = {vip: farms for vip, farms in entry.vips.items() if vip not in vips}
        self._confirmed.pop(ip, None)

        def restore() -> None:
            with rtnetlink.connected() as netlink:
                link = _link(netlink, entry.interface, ip)
                # The number of a namespace that has gone may be another's now.
                if link is None:
                    return
                for address in netlink.get_addr(index=_LOOPBACK):
                    vip = rtnetlink.own_address(address)
                    if vip in vips:
                        netlink.addr("delete", index=_LOOPBACK, address=vip, prefixlen=address["prefixlen"])
                if not remaining:
                    set_arp(netlink, link.index, entry.arp)
                _log.info("pod has lost the addresses of dsr farms", pod_ip=ip, addresses=sorted(vips))

        try:
            _enter(entry.namespace, restore)
        except _GoneError:
            _log.info("pod with addresses of dsr farms has gone", pod_ip=ip)
        except Exception as error:
            # As above. It is tried again each time.
            message = str(error) or repr(error)
            if self._failures.get(ip) != message:
                _log.warning("cannot take an address from a pod", pod_ip=ip, error=message)
            self._failures[ip] = message
            return
        self._failures.pop(ip, None)
        if remaining:
            self._record.entries[ip] = replace(entry, vips=remaining)
        else:
            del self._record.entries[ip]
        self._save()

    def _save(self) -> None:
        try:
            self._record.write()
        except OSError as error:
            _log.warning("cannot record which addresses pods were given", error=str(error))


def _by_pod(*given: Mapping[str, frozenset[PodVip]]) -> dict[str, _Vips]:
    """Return the addresses of farms by the IP addresses of pods."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for farms in given:
        for farm, wanted in farms.items():
            for ip, vip in wanted:
                vips = found.setdefault(ip, {})
                vips[vip] = vips.get(vip, frozenset()) | {farm}
    return dict(found)


def _link(netlink: IPRoute, name: str, ip: str) -> Link | None:
    """Return the interface with a name and an address, None if there is none (any more)."""
    return next((link for link in read_links(netlink) if link.name == name and ip in link.ips), None)


class _GoneError(Exception):
    """A network namespace does not exist any more."""


def _enter(namespace: int, function: Callable[[], None]) -> None:
    """Run a function in the namespace with this inode. Raises _GoneError if it is gone, OSError if that is not sure."""
    networks = namespaces.other_networks()
    if not networks:
        raise PermissionError("the agent sees no network namespaces of pods, as with dsr.enabled: false")
    try:
        descriptor = os.open(networks[namespace], os.O_RDONLY | os.O_CLOEXEC)
    except (LookupError, FileNotFoundError) as error:
        raise _GoneError(f"the network namespace {namespace} has gone") from error
    try:
        if os.fstat(descriptor).st_ino != namespace:
            raise _GoneError(f"the network namespace {namespace} has gone")
        namespaces.in_namespace(descriptor, function)
    finally:
        os.close(descriptor)
