"""The addresses that Services cannot choose as external IPs: the cluster's own. No I/O."""

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from kube_nftlb.api.base import Family
from kube_nftlb.endpointslices.slices import ServiceKey, canonical_ip
from kube_nftlb.environment import IpNetwork
from kube_nftlb.multimap import Multimap


class _Ranges:
    """Address ranges with what they are for, found by an address of them."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, int], dict[IpNetwork, str]] = {}

    def add(self, network: IpNetwork, what: str) -> None:
        self._of.setdefault((network.version, network.prefixlen), {})[network] = what

    def find(self, ip: str) -> tuple[IpNetwork, str] | None:
        """Return a range that has an address. There are few lengths of prefixes, and many ranges."""
        address = ipaddress.ip_address(ip)
        for (version, length), networks in self._of.items():
            network = ipaddress.ip_network((ip, length), strict=False) if version == address.version else None
            if network is not None and network in networks:
                return network, networks[network]
        return None


class NodeChange(NamedTuple):
    """The effect of a change of a Node on the addresses of all nodes."""

    ranges: bool = False
    """True if ranges of pods are different."""
    gone: frozenset[str] = frozenset()
    come: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.ranges or bool(self.gone or self.come)


class Reserved:
    """The cluster's own addresses, and the purpose of each."""

    def __init__(self, pod_cidrs: Iterable[IpNetwork] = (), api_hosts: Iterable[str] = ()) -> None:
        """``pod_cidrs`` and ``api_hosts``, the addresses of the API server, are those of the settings."""
        self._pod_cidrs = tuple(pod_cidrs)
        self._api_hosts = frozenset(canonical_ip(host, _family(host)) or host for host in api_hosts)
        self._pod_cidrs_of: dict[str, tuple[IpNetwork, ...]] = {}
        self._ips_of: dict[str, frozenset[str]] = {}
        self._nodes_at: Multimap[str, str] = Multimap()
        self._service_cidrs: dict[str, tuple[IpNetwork, ...]] = {}
        self._assignable: dict[str, tuple[IpNetwork, ...]] = {}
        """Those of them that give addresses."""
        self._api_endpoints: dict[str, frozenset[str]] = {}
        self._cluster_ips: dict[str, ServiceKey] = {}
        self._ranges: _Ranges | None = None
        """None while it must be made anew."""
        self.of_load_balancers: Callable[[str, ServiceKey], str | None] = lambda _, __: None
        """Returns what an address is, if it is for load balancers other than a Service."""
        self.changes = 0
        """Counts what changes ``addresses`` or ``ranges``, other than cluster IPs."""
        self.changed_cluster_ips = 0
        """Counts changed cluster IPs while no ServiceCIDR is known, of whose range they would be."""

    def put_node(self, name: str, ips: Iterable[str] = (), pod_cidrs: tuple[IpNetwork, ...] = ()) -> NodeChange:
        """Add, replace or, without addresses and ranges, remove a Node."""
        before, after = self._ips_of.pop(name, frozenset()), frozenset(ips)
        ranges = self._pod_cidrs_of.pop(name, ()) != pod_cidrs
        if ranges:
            self._ranges = None
        self.changes += ranges or before != after
        if after:
            self._ips_of[name] = after
        if pod_cidrs:
            self._pod_cidrs_of[name] = pod_cidrs
        come = frozenset(ip for ip in after - before if not self._nodes_at.get(ip))
        for ip in after - before:
            self._nodes_at.add(ip, name)
        for ip in before - after:
            self._nodes_at.discard(ip, name)
        return NodeChange(ranges, frozenset(ip for ip in before - after if not self._nodes_at.get(ip)), come)

    def put_service_cidrs(self, name: str, cidrs: tuple[IpNetwork, ...], *, assignable: bool = True) -> bool:
        """Add or replace a ServiceCIDR; without ranges, remove it. Return True if its ranges are different.

        One that is not ``assignable`` is about to go, or not in use yet.
        """
        self._assignable.pop(name, None)
        if assignable and cidrs:
            self._assignable[name] = cidrs
        if self._service_cidrs.get(name, ()) == cidrs:
            return False
        self._service_cidrs[name] = cidrs
        self._ranges = None
        self.changes += 1
        return True

    def put_api_endpoints(self, slice_name: str, ips: Iterable[str]) -> bool:
        """Replace the API server's addresses in an EndpointSlice of it. Return True if anything is different."""
        before, after = self._api_endpoints.pop(slice_name, frozenset()), frozenset(ips)
        if after:
            self._api_endpoints[slice_name] = after
        self.changes += after != before
        return after != before

    def put_cluster_ips(self, service: ServiceKey, ips: Iterable[str], before: Iterable[str]) -> set[str]:
        """Replace the cluster IPs of a Service; return those that are different."""
        had, has = set(before), set(ips)
        for ip in had - has:
            if self._cluster_ips.get(ip) == service:
                del self._cluster_ips[ip]
        self._cluster_ips.update(dict.fromkeys(has, service))
        self.changed_cluster_ips += had != has and not self._service_cidrs
        return had ^ has

    def assignable(self) -> Iterator[IpNetwork]:
        """Yield the ranges of ServiceCIDRs that give addresses."""
        for _, networks in sorted(self._assignable.items()):
            yield from networks

    def service_at(self, ip: str) -> ServiceKey | None:
        """Return the Service that has a cluster IP, as far as it is known."""
        return self._cluster_ips.get(ip)

    @property
    def cluster_ips(self) -> int:
        """The number of cluster IPs of Services."""
        return len(self._cluster_ips)

    def why(self, ip: str, service: ServiceKey) -> str | None:
        """Return what an address is, unless a Service can choose it as an external IP."""
        if nodes := self._nodes_at.get(ip):
            return f"it is an address of the node {min(nodes)}"
        if ip in self._api_hosts or any(ip in ips for ips in self._api_endpoints.values()):
            return "it is an address of the API server"
        if self._ranges is None:
            self._ranges = self._all_ranges()
        if (found := self._ranges.find(ip)) is not None:
            network, what = found
            return f"it is in {network}, the range of {what}"
        if (other := self._cluster_ips.get(ip)) is not None and other != service:
            return f"it is the cluster IP of the Service {'/'.join(other)}"
        return self.of_load_balancers(ip, service)

    def addresses(self) -> Iterator[tuple[str, str]]:
        """Yield single addresses of the cluster, with what each is."""
        for ip in list(self._nodes_at.keys()):
            yield ip, f"an address of the node {min(self._nodes_at.get(ip))}"
        for ips in (self._api_hosts, *self._api_endpoints.values()):
            yield from ((ip, "an address of the API server") for ip in ips)
        if not self._service_cidrs:
            # Otherwise they are in these ranges, and there are many.
            yield from ((ip, f"the cluster IP of the Service {'/'.join(key)}") for ip, key in self._cluster_ips.items())

    def ranges(self) -> Iterator[tuple[IpNetwork, str]]:
        """Yield address ranges of the cluster, with whose they are."""
        for network in self._pod_cidrs:
            yield network, "pods"
        for name, networks in sorted(self._pod_cidrs_of.items()):
            for network in networks:
                yield network, f"the pods of the node {name}"
        for networks in self._service_cidrs.values():
            for network in networks:
                yield network, "cluster IPs"

    def _all_ranges(self) -> _Ranges:
        ranges = _Ranges()
        for network, what in self.ranges():
            ranges.add(network, what)
        return ranges


def _family(host: str) -> Family:
    return "ipv6" if ":" in host else "ipv4"


def ranges_of(texts: Iterable[object]) -> tuple[IpNetwork, ...]:
    """Return address ranges as the API server has them, without those that are not understood."""
    found = []
    for text in texts:
        with suppress(ValueError):
            found.append(ipaddress.ip_network(str(text), strict=False))
    return tuple(found)
