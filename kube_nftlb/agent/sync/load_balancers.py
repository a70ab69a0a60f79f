"""Farms of Services and routes with load balancer addresses: what they want, and what the kernel has of them. No I/O.

It is what nodes announce addresses by, so that nobody is told of an address before it is served.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.endpoints.topology import last_resort
from kube_nftlb.agent.model import NodeFarm, Version
from kube_nftlb.api.conflicts import FarmKey, Rank, rank
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.multimap import Multimap


class Wanted(NamedTuple):
    """A farm as it was last planned. All nodes see ``ips`` and ``nodes`` alike."""

    ips: frozenset[str]
    """Its load balancer addresses."""
    nodes: frozenset[str] | None
    """With trafficPolicy Local: the nodes with endpoints for clients; None if any node reaches them."""
    rank: Rank
    """Older farms come first."""
    served: bool = True
    """False if this node is not going to serve it: other farms have its listeners, or it is too large."""
    stays: bool = False
    """True for a route's farm that this node leaves as it is for now: it was refused, or the kernel lacks a feature."""


class InKernel(NamedTuple):
    """A farm as the kernel has it."""

    version: Version
    ips: frozenset[str]
    """The load balancer addresses that it listens on."""
    reached: int
    """Endpoints that get new connections of clients from outside, or drain: those that are open go on."""
    serving: int
    """The same on all nodes."""
    refuses: bool = False
    """True if this node cannot serve it, so that no endpoint is reached."""


class LoadBalancers:
    """The farms of this node that have load balancer addresses."""

    def __init__(self) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change."""
        self.farms: Multimap[str, FarmKey] = Multimap()
        """The farms that have each address."""
        self.wanted: dict[FarmKey, Wanted] = {}
        """What each of these farms wants."""
        self.in_kernel: dict[FarmKey, InKernel] = {}
        """What the kernel has of farms for sure."""
        self.successors: dict[FarmKey, InKernel] = {}
        """Farms that are to have addresses of farms which go in the same batch, with what they have of these then.

        The kernel never is without them, though it is not known yet whether it has them of this farm.
        """

    @property
    def ips(self) -> Collection[str]:
        """All addresses."""
        return self.farms.keys()

    def planned(self, key: FarmKey, farm: Farm | None, *, served: bool = True, stays: bool = False) -> None:
        """Take a farm that is planned, with the backends that it refers to; None if it is gone."""
        before, after = self.wanted.get(key), wanted(farm)
        if farm is not None and after is not None:
            after = after._replace(served=served, stays=stays and farm.metadata.route is not None)
        if before == after:
            return
        for ip in before.ips if before is not None else ():
            self.farms.discard(ip, key)
        for ip in after.ips if after is not None else ():
            self.farms.add(ip, key)
        if after is not None:
            self.wanted[key] = after
        else:
            del self.wanted[key]
        self.on_change()

    def changes(self, batch: Mapping[FarmKey, InKernel | None]) -> None:
        """Take changes that are not verified yet: what they take away does not count any more. None withdraws it all.

        A port of a Service that gets another name is another farm: its address stays in the kernel all the same.
        """
        before = {key: self._ips(key) for key in batch}
        given_up = {ip for key, now in batch.items() for ip in before[key] if now is None or ip not in now.ips}
        for key, now in batch.items():
            was, _ = self.in_kernel.pop(key, None), self.successors.pop(key, None)
            if now is None:
                continue
            ips = now.ips & (given_up | before[key])
            if was is not None:
                reached = min(was.reached, now.reached)
                self.in_kernel[key] = now._replace(version=was.version, ips=was.ips & now.ips, reached=reached)
                ips -= was.ips
            if ips:
                self.successors[key] = now._replace(ips=ips)
        if any(before.values()):
            self.on_change()

    def refused(self, key: FarmKey) -> None:
        """Take note that a farm stays as it is, so it has no address of others."""
        if self.successors.pop(key, None) is not None:
            self.on_change()

    def _ips(self, key: FarmKey) -> frozenset[str]:
        known = (self.in_kernel.get(key), self.successors.get(key))
        return frozenset(ip for each in known if each is not None for ip in each.ips)

    def verified(self, key: FarmKey, now: InKernel | None) -> None:
        """Take a farm that was compared with the kernel; None if it has no load balancer address."""
        self.successors.pop(key, None)
        if now == self.in_kernel.get(key):
            return
        if now is not None:
            self.in_kernel[key] = now
        else:
            del self.in_kernel[key]
        self.on_change()

    def keep(self, is_programmed: Callable[[FarmKey], bool]) -> None:
        """Forget the farms that no engine has any more."""
        gone = {*self.in_kernel, *self.successors}
        self.changes({key: None for key in gone if not is_programmed(key)})


def wanted(farm: Farm | None) -> Wanted | None:
    """Return what a farm wants; None if it is of no Service and no route, or has no load balancer address."""
    # Whoever may write farms, but no Services, gets no address of a pool.
    if farm is None or not farm.metadata.has_source:
        return None
    ips = frozenset(address.ip for address in farm.spec.addresses if address.type == "LoadBalancer")
    return Wanted(ips, _nodes(farm.spec), rank(farm)) if ips else None


def in_kernel(farm: NodeFarm) -> InKernel | None:
    """Return what the kernel has once a farm is programmed; None if it has no load balancer address."""
    ips = frozenset(address.ip for address in farm.addresses if address.type == "LoadBalancer")
    if not ips:
        return None
    if farm.spec.mode == "local":
        answers = int(not farm.suspended or farm.spec.state == "drain")
        return InKernel(farm.version, ips, answers, answers)
    is_local = farm.spec.traffic_policy == "Local"
    scheduled = 0 if is_local and not farm.candidates.local else sum(each.schedulable for each in farm.endpoints)
    draining = [each.backend for each in farm.endpoints if "drain" in (farm.spec.state, each.backend.state)]
    reached = scheduled + sum(not is_local or each.ip in farm.local_ips for each in draining)
    candidates = max(len(farm.candidates.cluster), len(farm.candidates.local))
    serving = candidates + sum(each.state == "drain" for each in draining)
    return InKernel(farm.version, ips, reached, serving, farm.suspended)


def _nodes(spec: FarmSpec) -> frozenset[str] | None:
    if spec.traffic_policy != "Local" or spec.mode == "local":
        return None
    in_use = selection.in_use(spec)
    serving = [backend for backend in in_use if backend.ready] or last_resort(in_use)
    return frozenset(backend.node_name for backend in serving if backend.node_name)
