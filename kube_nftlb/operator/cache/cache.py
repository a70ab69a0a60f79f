"""The objects that the operator has seen, with the indexes that decisions need. No I/O.

Each change returns what it makes out of date. Only ``ingest.CacheWriter`` makes changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kube_nftlb.api.budgets import rank
from kube_nftlb.api.conflicts import Conflicts, FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.index import ENDPOINTS_OF_NAMESPACE_MAX, SliceKey
from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from kube_nftlb.environment import IpNetwork
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.cache.budgets import Budgets
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.cache.gates import Gates
from kube_nftlb.operator.cache.heartbeats import Heartbeats
from kube_nftlb.operator.cache.newest import Newest
from kube_nftlb.operator.cache.node_record import CoreNode, NodeRecord
from kube_nftlb.operator.cache.policy_record import PolicyRecord
from kube_nftlb.operator.cache.reserved import NodeChange, Reserved
from kube_nftlb.operator.cache.settled_nodes import SettledNodes, turns
from kube_nftlb.operator.cache.slice_cache import SliceCache, SliceChange
from kube_nftlb.operator.cache.version_index import VersionIndex
from kube_nftlb.operator.farms.external_addresses import external_ips
from kube_nftlb.operator.farms.naming import Contender
from kube_nftlb.operator.farms.ports import PortKey, cluster_ips, port_keys, serves
from kube_nftlb.operator.model.annotation_options import Given
from kube_nftlb.operator.model.pods import PodKey, PodRecord
from kube_nftlb.operator.model.rejections import Rejection


class Dirty(NamedTuple):
    """Objects that a change may have outdated: the farms of Services, and the statuses of farms and of policies."""

    services: frozenset[ServiceKey] = frozenset()
    farms: frozenset[FarmKey] = frozenset()
    policies: frozenset[PolicyKey] = frozenset()

    def __or__(self, other: "Dirty") -> "Dirty":
        return Dirty(self.services | other.services, self.farms | other.farms, self.policies | other.policies)


NOTHING = Dirty()
_API_SERVER = ServiceKey("default", "kubernetes")


class Cache:
    """Services, EndpointSlices, farms and nodes, and the Pods with annotations of kube-nftlb."""

    def __init__(
        self,
        reserved: Reserved | None = None,
        endpoints_max: int = ENDPOINTS_OF_NAMESPACE_MAX,
        limits: NamespaceLimits = NamespaceLimits(),  # noqa: B008 - immutable
        clock: Callable[[], float] = lambda: 0.0,
        silent_after_s: float = 180.0,
    ) -> None:
        """``reserved`` has what settings say of the cluster. Agents are silent after ``silent_after_s`` seconds.

        ``endpoints_max`` and ``limits`` are those of each namespace; ``clock`` returns seconds; by default no time
        passes, so that no node settles.
        """
        self.services: Newest[ServiceKey, Service] = Newest(lambda service: int(service.metadata.resource_version))
        self.slices = SliceCache(endpoints_max)
        self.farms: Newest[FarmKey, FarmRecord] = Newest(lambda farm: farm.resource_version)
        self.nodes: Newest[str, NodeRecord] = Newest(lambda node: node.resource_version)
        self.settled_nodes = SettledNodes(clock)
        """The nodes that statuses count: silent ones count as gone."""
        self.heartbeats = Heartbeats(clock, silent_after_s)
        self.pods: Newest[PodKey, PodRecord] = Newest(lambda pod: pod.resource_version)
        self.policies: Newest[PolicyKey, PolicyRecord] = Newest(lambda policy: policy.resource_version)
        self.core_nodes: Newest[str, CoreNode] = Newest(lambda node: node.resource_version)
        """All Nodes, whose addresses are in ``reserved``."""
        self.service_cidrs: Newest[str, int] = Newest(int)
        """The resourceVersions of all ServiceCIDRs, whose ranges are in ``reserved``."""
        self.reserved = reserved or Reserved()
        self.refused_ips: dict[ServiceKey, tuple[Rejection, ...]] = {}
        """The external IPs that Services do not get."""
        self.conflicts = Conflicts()
        self.gates = Gates()
        self.budgets = Budgets(limits)
        self.references: Counter[PolicyKey] = Counter()
        """The number of farms that refer to each policy."""
        self.unfinished: VersionIndex[FarmKey] = VersionIndex()
        """Accepted farms that some node has not programmed: the progress of nodes changes their status."""
        self.endpoints_unfinished: VersionIndex[FarmKey] = VersionIndex()
        """Accepted farms whose endpoints some node has not programmed."""
        self.policies_unfinished: VersionIndex[PolicyKey] = VersionIndex()
        """Policies that some node has not programmed."""
        self.refused: set[FarmKey] = set()
        """Farms that are not accepted."""
        self._referring: Multimap[ServiceKey, FarmKey] = Multimap()
        self._listing: Multimap[ServiceKey, FarmKey] = Multimap()
        self._pods_in: Multimap[str, PodKey] = Multimap()
        self._services_in: Multimap[str, ServiceKey] = Multimap()
        self._farms_of: Multimap[ServiceKey, FarmKey] = Multimap()
        self._contenders: Multimap[FarmKey, Contender] = Multimap()
        self._external_ips: Multimap[str, ServiceKey] = Multimap()
        self._contending: dict[ServiceKey, list[tuple[FarmKey, Contender]]] = {}

    def annotated_pods(self, service: ServiceKey) -> list[str]:
        """Return the Pods with annotations of kube-nftlb that are endpoints of a Service, or will be, sorted by name.

        Those that it selects count before they have an address: their options are there with the first connection.
        """
        known = self.services.get(service)
        selector = known.spec.selector if known is not None else None
        annotated = {key.name: pod for key in self._pods_in.get(service.namespace) if (pod := self.pods.get(key))}
        selected = {name for name, pod in annotated.items() if pod.selected_by(selector)}
        return sorted(selected | (self.slices.pods_of(service) & annotated.keys() if annotated else set()))

    def options_of_pod(self, namespace: str, pod: str) -> Given:
        """Return the options in a Pod's annotations."""
        record = self.pods.get(PodKey(namespace, pod))
        return record.given if record is not None else ()

    def farms_of(self, service: ServiceKey) -> list[FarmRecord]:
        """Return all farms that the operator made from a Service, which may not exist anymore."""
        farms = (self.farms.get(key) for key in self._farms_of.get(service))
        return sorted(farm for farm in farms if farm is not None)

    def listing(self) -> list[ServiceKey]:
        """Return the Services with farms that list IPs of gated Pods."""
        return list(self._listing.keys())

    def is_served(self, service: ServiceKey) -> bool:
        """Return True if a Service has farms, or is to have some."""
        contends = bool(self._contending.get(service)) and not self.budgets.services.refuses(service)
        return contends or service in self._farms_of

    def ports_without_farm(self, service: ServiceKey) -> list[PortKey]:
        """Return the ports of a Service, one for each family, whose farms do not exist yet."""
        contending = self._contending.get(service, ())
        if len(self._farms_of.get(service)) >= len(contending) or self.budgets.services.refuses(service):
            return []
        having = {farm.port._replace(external=False) for farm in self.farms_of(service) if farm.port is not None}
        ports = dict.fromkeys(contender.port._replace(external=False) for _, contender in contending)
        return [port for port in ports if port not in having]

    def contenders(self, port: PortKey) -> Iterable[Contender]:
        """Return all Service ports with the same plain farm name as this one."""
        return self._contenders.get(FarmKey(port.namespace, port.plain_name))

    def everything(self) -> Dirty:
        """Return all policies, farms and Services, including deleted Services that still have farms."""
        services = frozenset(self.services.keys() | self._farms_of.keys())
        return Dirty(services, frozenset(self.farms.keys()), frozenset(self.policies.keys()))

    def put_service(self, service: Service) -> Dirty:
        """Add or replace a Service."""
        key = ServiceKey(service.metadata.namespace, service.metadata.name)
        before = self.services.get(key)
        if not self.services.put(key, service):
            return NOTHING
        self._services_in.add(key.namespace, key)
        self.gates.put_service(key, service if serves(service) else None)
        ports = port_keys(service, self.budgets.limits.service_ports)
        self._contend(key, service, ports)
        created = rank(of_service=True, created=service.metadata.creation_timestamp)
        turned = self.budgets.services.put(key, created, len(ports)) if ports else self.budgets.services.remove(key)
        return Dirty(services=frozenset({key, *turned}) | self._move_ips(key, before, service))

    def remove_service(self, key: ServiceKey, version: int) -> Dirty:
        """Remove a Service."""
        if (before := self.services.remove(key, version)) is None:
            return NOTHING
        self._services_in.discard(key.namespace, key)
        self.gates.put_service(key, None)
        self._contend(key, None, ())
        self.refused_ips.pop(key, None)
        turned = self.budgets.services.remove(key)
        return Dirty(services=frozenset({key, *turned}) | self._move_ips(key, before, None))

    def put_slice(self, key: SliceKey, version: int, new: Slice | None) -> Dirty:
        """Add or replace an EndpointSlice; ``new`` is None if no farm needs it."""
        news = self.slices.versions.is_news(key, version)
        dirty = self._with_endpoints(key, self.slices.put(key, version, new))
        return self._with_api_server(key, new, dirty) if news else dirty

    def remove_slice(self, key: SliceKey, version: int) -> Dirty:
        """Remove an EndpointSlice."""
        dirty = self._with_endpoints(key, self.slices.remove(key, version))
        gone = self.slices.versions.get(key) is None
        return self._with_api_server(key, None, dirty) if gone else dirty

    def put_pod(self, key: PodKey, pod: PodRecord) -> Dirty:
        """Add or replace a Pod."""
        before = self.pods.get(key)
        if not self.pods.put(key, pod):
            return NOTHING
        self._pods_in.add(key.namespace, key)
        if before is not None and (before.given, before.labels) == (pod.given, pod.labels):
            return NOTHING
        return self._with_pod(key, before, pod)

    def remove_pod(self, key: PodKey, version: int) -> Dirty:
        """Remove a Pod, or one that lost its annotations."""
        # Most Pods never had annotations: their deletions are not remembered.
        if self.pods.get(key) is None or (before := self.pods.remove(key, version)) is None:
            return NOTHING
        self._pods_in.discard(key.namespace, key)
        return self._with_pod(key, before)

    def put_farm(self, record: FarmRecord, farm: Farm | None) -> Dirty:
        """Add or replace a farm; ``farm`` is None if its spec has no valid listeners."""
        before = self.farms.get(record.key)
        if not self.farms.put(record.key, record):
            return NOTHING
        turned = self.budgets.farms.put(record.key, record.rank, record.size) - {record.key}
        fits = not self.budgets.farms.refuses(record.key)
        others = self.conflicts.put(farm) if farm is not None and fits else self.conflicts.remove(record.key)
        return self._move_farm(record.key, before, record, others | self._turn(turned))

    def remove_farm(self, key: FarmKey, version: int) -> Dirty:
        """Remove a farm."""
        if (before := self.farms.remove(key, version)) is None:
            return NOTHING
        self.unfinished.discard(key)
        self.endpoints_unfinished.discard(key)
        self.refused.discard(key)
        others = self.conflicts.remove(key) | self._turn(self.budgets.farms.remove(key))
        return self._move_farm(key, before, None, others)

    def put_node(self, node: NodeRecord) -> Dirty:
        """Add or replace a node."""
        before = self.settled_nodes.get(node.name)
        if not self.nodes.put(node.name, node):
            return NOTHING
        self.heartbeats.heard(node.name, node.reported_at)
        self.settled_nodes.put(node.name, None if node.silent else node)
        return self._moved_node(before, self.settled_nodes.get(node.name))

    def settle_nodes(self) -> Dirty:
        """Have those nodes count as gone, or as back, that have been so for a while."""
        dirty = NOTHING
        for name, before in self.settled_nodes.settle():
            dirty |= self._moved_node(before, self.settled_nodes.get(name))
        return dirty

    def _moved_node(self, before: NodeRecord | None, node: NodeRecord | None) -> Dirty:
        if before is node:
            return NOTHING
        if before is None or node is None or turns(before, node):
            return Dirty(farms=frozenset(self.farms.keys()), policies=frozenset(self.policies.keys()))
        farms = set(self.unfinished.within(before.watermark, node.watermark))
        farms.update(self.endpoints_unfinished.within(before.slice_watermark, node.slice_watermark))
        for said, says in ((before.failed, node.failed), (before.warnings, node.warnings)):
            farms.update(key for (key, _), _ in said.items() ^ says.items())
        if turned := before.failed_namespaces ^ node.failed_namespaces:
            farms.update(key for key, _ in self.farms.items() if key.namespace in turned)
        policies = self.policies_unfinished.within(before.policy_watermark, node.policy_watermark)
        return Dirty(farms=frozenset(farms), policies=frozenset(policies))

    def put_policy(self, policy: PolicyRecord) -> Dirty:
        """Add or replace a policy."""
        if not self.policies.put(policy.key, policy):
            return NOTHING
        return Dirty(
            policies=frozenset({policy.key, *self.budgets.policies.put(policy.key, policy.rank, policy.cidrs)})
        )

    def remove_policy(self, key: PolicyKey, version: int) -> Dirty:
        """Remove a policy."""
        if self.policies.remove(key, version) is None:
            return NOTHING
        self.policies_unfinished.discard(key)
        return Dirty(policies=frozenset({key, *self.budgets.policies.remove(key)}))

    def remove_node(self, name: str, version: int) -> Dirty:
        """Remove a node."""
        before = self.settled_nodes.get(name)
        if self.nodes.remove(name, version) is None:
            return NOTHING
        self.heartbeats.forget(name)
        self.settled_nodes.put(name, None)
        return self._moved_node(before, self.settled_nodes.get(name))

    def working_nodes(self) -> list[NodeRecord]:
        """Return the newest state of the nodes that are to keep up: those that report and are ready, as their Nodes."""
        down = {name for name, node in self.core_nodes.items() if not node.ready}
        return [node for node in self.nodes.values() if node.ready and not node.silent and node.name not in down]

    def put_core_node(self, name: str, node: CoreNode, ips: tuple[str, ...], pod_cidrs: tuple[IpNetwork, ...]) -> Dirty:
        """Add or replace a Node."""
        before = self.core_nodes.get(name)
        if not self.core_nodes.put(name, node):
            return NOTHING
        dirty = self._with_node(self.reserved.put_node(name, ips, pod_cidrs))
        if (before is None or before.ready) == node.ready:
            return dirty
        # Its agent has to keep up again, or no longer.
        return dirty | Dirty(farms=frozenset({*self.unfinished, *self.endpoints_unfinished}))

    def remove_core_node(self, name: str, version: int) -> Dirty:
        """Remove a Node."""
        if self.core_nodes.remove(name, version) is None:
            return NOTHING
        return self._with_node(self.reserved.put_node(name))

    def put_service_cidrs(self, name: str, version: int, cidrs: tuple[IpNetwork, ...]) -> Dirty:
        """Add or replace a ServiceCIDR."""
        changed = self.service_cidrs.put(name, version) and self.reserved.put_service_cidrs(name, cidrs)
        return self._with_external_ips() if changed else NOTHING

    def remove_service_cidrs(self, name: str, version: int) -> Dirty:
        """Remove a ServiceCIDR."""
        gone = self.service_cidrs.remove(name, version) is not None and self.reserved.put_service_cidrs(name, ())
        return self._with_external_ips() if gone else NOTHING

    def _with_node(self, change: NodeChange) -> Dirty:
        farms = frozenset(self.conflicts.move_nodes(change.gone, change.come))
        return Dirty(self._with_external_ips().services if change else frozenset(), farms)

    def put_api_host(self, host: str, ips: Iterable[str]) -> Dirty:
        """Replace the addresses of the API server by a name, or by another source that is no EndpointSlice."""
        # No EndpointSlice has a name like this.
        return self._with_external_ips() if self.reserved.put_api_endpoints(f"host {host}", ips) else NOTHING

    def _with_api_server(self, key: SliceKey, new: Slice | None, dirty: Dirty) -> Dirty:
        """Return also what the addresses of the API server in an EndpointSlice make out of date, if it has any."""
        namespace, name = key
        if namespace != _API_SERVER.namespace:
            return dirty
        has = new is not None and new.service == _API_SERVER.name
        ips = [endpoint.ip for endpoint in new.endpoints] if new is not None and has else []
        if not self.reserved.put_api_endpoints(name, ips):
            return dirty
        return dirty._replace(services=dirty.services | self._with_external_ips().services)

    def _with_external_ips(self) -> Dirty:
        """Return the Services that ask for external IPs."""
        every = map(self._external_ips.get, self._external_ips.keys())
        return Dirty(services=frozenset().union(*every))

    def _move_ips(self, key: ServiceKey, before: Service | None, after: Service | None) -> frozenset[ServiceKey]:
        """Return the Services with external IPs that are another's cluster IPs, or were."""
        for service, join in ((before, False), (after, True)):
            for ip in external_ips(service) if service is not None else ():
                (self._external_ips.add if join else self._external_ips.discard)(ip, key)
        had, has = (cluster_ips(each).values() if each is not None else () for each in (before, after))
        moved = self.reserved.put_cluster_ips(key, has, had)
        return frozenset().union(*(self._external_ips.get(ip) for ip in moved))

    def _turn(self, turned: set[FarmKey]) -> set[FarmKey]:
        """Have those of these farms have listeners that fit the budget, and no others. Return all that this affects."""
        affected = set(turned)
        for key in turned:
            record = self.farms.get(key)
            if self.budgets.farms.refuses(key):
                affected |= self.conflicts.remove(key)
            elif record is not None and record.claims:
                affected |= self.conflicts.put(record.farm_with_claims())
        return affected

    def _contend(self, key: ServiceKey, service: Service | None, ports: Iterable[PortKey]) -> None:
        for name, contender in self._contending.pop(key, ()):
            self._contenders.discard(name, contender)
        if service is not None:
            joined = [(FarmKey(port.namespace, port.plain_name), _contender(service, port)) for port in ports]
            for name, contender in joined:
                self._contenders.add(name, contender)
            self._contending[key] = joined

    def _with_pod(self, key: PodKey, *states: PodRecord | None) -> Dirty:
        """Return the Services with a Pod among their endpoints, or that selected it in one of these states."""
        services = set()
        for name in self._services_in.get(key.namespace):
            service = self.services.get(name)
            selector = service.spec.selector if service is not None else None
            selected = any(pod is not None and pod.selected_by(selector) for pod in states)
            # The slices of a Service without a selector are written by hand.
            if selected or (not selector and key.name in self.slices.pods_of(name)):
                services.add(name)
        return Dirty(services=frozenset(services))

    def _with_endpoints(self, key: SliceKey, change: SliceChange) -> Dirty:
        """Return the farms that follow a change of endpoints. Overrides are in farms, all else follows by reference."""
        namespace, _ = key
        annotated = any(self.pods.get(PodKey(namespace, pod)) is not None for pod in change.pods)
        farms = set[FarmKey]().union(*(self._referring.get(service) for service in change.services))
        for service in change.services:
            self._forget_unused(service)
        return Dirty(frozenset(change.services if annotated else ()), frozenset(farms))

    def _move_farm(
        self, key: FarmKey, before: FarmRecord | None, after: FarmRecord | None, others: set[FarmKey]
    ) -> Dirty:
        policies = {*_policies_of(before)} ^ {*_policies_of(after)}
        self.references.update(_policies_of(after))
        for policy in _policies_of(before):
            self.references[policy] -= 1
            if not self.references[policy]:
                del self.references[policy]
        services, referred = set(), set[ServiceKey]()
        for record, join in ((before, False), (after, True)):
            if record is not None and record.reference is not None:
                (self._referring.add if join else self._referring.discard)(record.reference.service, key)
                referred.add(record.reference.service)
            if record is not None and record.port is not None:
                service = ServiceKey(record.port.namespace, record.port.service)
                (self._farms_of.add if join else self._farms_of.discard)(service, key)
                if record.reference is not None and record.reference.backends_from.gated_ips:
                    (self._listing.add if join else self._listing.discard)(service, key)
                services.add(service)
        for service in referred:
            self._forget_unused(service)
        if before is not None and after is not None and before.made_as == after.made_as:
            # Only the status changed, for example, which does not matter to the Service.
            services.clear()
        return Dirty(frozenset(services), frozenset({key, *others}), frozenset(policies))

    def _forget_unused(self, service: ServiceKey) -> None:
        if service not in self._referring:
            self.slices.forget_unused(service)


def _policies_of(farm: FarmRecord | None) -> list[PolicyKey]:
    return [PolicyKey(farm.key.namespace, name) for name in farm.policies] if farm is not None else []


def _contender(service: Service, port: PortKey) -> Contender:
    created = service.metadata.creation_timestamp
    return Contender(created.timestamp() if created is not None else float("inf"), port)
