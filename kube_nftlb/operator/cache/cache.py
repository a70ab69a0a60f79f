"""The objects that the operator has seen, with the indexes that decisions need, and the budgets of namespaces. No I/O.

``ingest.Ingest`` changes it, with ``service_changes``, ``farm_changes`` and ``node_changes``.
"""

import sys
from collections.abc import Callable, Iterable, Iterator

from kube_nftlb.api.budgets import ENTRIES_PER_SHARE, Budget
from kube_nftlb.api.conflicts import Conflicts, FarmKey
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.endpointslices.index import ENDPOINTS_OF_NAMESPACE_MAX
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.multimap import Multimap
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.cache.affected import Affected
from kube_nftlb.operator.cache.debounced_nodes import DebouncedNodes
from kube_nftlb.operator.cache.farm_index import FarmIndex
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.cache.gates import Gates
from kube_nftlb.operator.cache.node_record import CoreNode, Heartbeats, NodeRecord
from kube_nftlb.operator.cache.policy_record import PolicyRecord
from kube_nftlb.operator.cache.progress import Progress
from kube_nftlb.operator.cache.reserved import Reserved
from kube_nftlb.operator.cache.service_index import ServiceIndex
from kube_nftlb.operator.cache.slice_cache import SliceCache
from kube_nftlb.operator.cache.versioned_map import VersionedMap
from kube_nftlb.operator.farms.naming import Contender
from kube_nftlb.operator.farms.ports import PortKey
from kube_nftlb.operator.model.annotation_options import Given
from kube_nftlb.operator.model.pods import PodKey, PodRecord, selects
from kube_nftlb.operator.model.rejections import Rejection


class Budgets:
    """The budgets of namespaces, by kind. The methods return why an object does not fit, or None if it does."""

    def __init__(self, limits: NamespaceLimits) -> None:
        self.limits = limits
        self.services: Budget[ServiceKey] = Budget(sys.maxsize, limits.farms)
        """The Services, by the number of farms that they need: one that does not fit gets none."""
        self.overrides_max = limits.farms * ENTRIES_PER_SHARE
        self.overrides: Budget[ServiceKey] = Budget(sys.maxsize, self.overrides_max)
        """The Services, by the number of overrides in all of their farms: of one that does not fit, these have none."""
        self.farms: Budget[FarmKey] = Budget(sys.maxsize, limits.farms)
        self.policies: Budget[PolicyKey] = Budget(limits.policies, limits.policy_ranges)

    def refusal_of_farm(self, key: FarmKey) -> str | None:
        """Return why a farm is not accepted, for its condition, or None if it fits the budget."""
        if not self.farms.refuses(key):
            return None
        message = f"the namespace has more farms than the {self.limits.farms} that the administrator allows"
        large = f"one counts once for each {ENTRIES_PER_SHARE} of its ports and backends"
        return f"{message}; those of Services come first, then older ones, and {large}; delete some"

    def refusal_of_service(self, key: ServiceKey) -> str | None:
        """Return why a Service gets no farms, or None if they fit the budget."""
        if not self.services.refuses(key):
            return None
        message = f"the Services of the namespace need more farms than the {self.limits.farms}"
        return f"{message} that the administrator allows: it is not served, older ones are; each port is a farm or more"

    def refusal_of_overrides(self, key: ServiceKey) -> str | None:
        """Return why annotations of Pods have no effect in the farms of a Service, or None if they fit the budget."""
        if not self.overrides.refuses(key):
            return None
        message = f"the annotations of its Pods are ignored: farms of a namespace have {self.overrides_max} overrides"
        return f"{message} at most, one for each annotated Pod in each farm, and older Services come first"

    def refusal_of_policy(self, key: PolicyKey) -> str | None:
        """Return why a policy is not accepted, or None if it fits the budget."""
        if not self.policies.refuses(key):
            return None
        limits = f"{self.limits.policies} policies with {self.limits.policy_ranges} address ranges"
        message = f"the namespace has more than the {limits} that the administrator allows"
        return f"{message}; older policies come first; farms that refer to this one admit nobody"


class Cache:
    """Services, EndpointSlices, farms and nodes, and the Pods with annotations of kube-nftlb."""

    def __init__(
        self,
        reserved: Reserved | None = None,
        endpoints_max: int = ENDPOINTS_OF_NAMESPACE_MAX,
        limits: NamespaceLimits = NamespaceLimits(),  # noqa: B008 - immutable
        clock: Callable[[], float] = lambda: 0.0,
        silent_after_s: float = 180.0,
        addresses: Book | None = None,
    ) -> None:
        """``reserved`` has what settings say of the cluster. Agents are silent after ``silent_after_s`` seconds.

        ``endpoints_max`` and ``limits`` are those of each namespace; ``clock`` returns seconds; by default no time
        passes, so that no node settles. ``addresses`` is None unless Services get theirs from pools.
        """
        self.services: VersionedMap[ServiceKey, Service] = VersionedMap(
            lambda service: int(service.metadata.resource_version)
        )
        self.slices = SliceCache(endpoints_max)
        self.farms: VersionedMap[FarmKey, FarmRecord] = VersionedMap(lambda farm: farm.resource_version)
        self.nodes: VersionedMap[str, NodeRecord] = VersionedMap(lambda node: node.resource_version)
        self.debounced_nodes = DebouncedNodes(clock)
        """The nodes that statuses count: silent ones count as gone."""
        self.heartbeats = Heartbeats(clock, silent_after_s)
        self.pods: VersionedMap[PodKey, PodRecord] = VersionedMap(lambda pod: pod.resource_version)
        self.policies: VersionedMap[PolicyKey, PolicyRecord] = VersionedMap(lambda policy: policy.resource_version)
        self.core_nodes: VersionedMap[str, CoreNode] = VersionedMap(lambda node: node.resource_version)
        """All Nodes, whose addresses are in ``reserved``."""
        self.service_cidrs: VersionedMap[str, int] = VersionedMap(int)
        """The resourceVersions of all ServiceCIDRs, whose ranges are in ``reserved``."""
        self.reserved = reserved or Reserved()
        self.refused_ips: dict[ServiceKey, tuple[Rejection, ...]] = {}
        """The external IPs that Services do not get."""
        self.conflicts = Conflicts()
        self.gates = Gates()
        self.budgets = Budgets(limits)
        self.progress = Progress()
        self.service_index = ServiceIndex()
        self.addresses = addresses
        self.farm_index = FarmIndex()
        self.pods_in: Multimap[str, PodKey] = Multimap()
        """The Pods of each namespace."""

    def annotated_pods(self, service: ServiceKey) -> list[str]:
        """Return the Pods with annotations of kube-nftlb that are endpoints of a Service, or will be, sorted by name.

        Those that it selects count before they have an address: their options are there with the first connection.
        """
        known = self.services.get(service)
        selector = known.spec.selector if known is not None else None
        annotated = {key.name: pod for key in self.pods_in.get(service.namespace) if (pod := self.pods.get(key))}
        selected = {name for name, pod in annotated.items() if selects(selector, pod.labels)}
        return sorted(selected | (self.slices.pods_of(service) & annotated.keys() if annotated else set()))

    def options_of_pod(self, namespace: str, pod: str) -> Given:
        """Return the options in a Pod's annotations."""
        record = self.pods.get(PodKey(namespace, pod))
        return record.given if record is not None else ()

    def farms_of(self, service: ServiceKey) -> list[FarmRecord]:
        """Return all farms that the operator made from a Service, which may not exist anymore."""
        farms = (self.farms.get(key) for key in self.farm_index.made_from.get(service))
        return sorted(farm for farm in farms if farm is not None)

    def farms_of_routes(self, service: ServiceKey) -> Iterator[FarmRecord]:
        """Yield the farms of routes that refer to a Service, except those that are about to go."""
        for key in sorted(self.farm_index.routed.get(service)):
            farm = self.farms.get(key)
            if farm is not None and not farm.terminating:
                yield farm

    def is_served(self, service: ServiceKey) -> bool:
        """Return True if a Service has farms, or is to have some."""
        is_to_have = bool(self.service_index.ports(service)) and not self.budgets.services.refuses(service)
        return is_to_have or bool(self.farm_index.made_from.get(service))

    def ports_without_farm(self, service: ServiceKey) -> list[PortKey]:
        """Return the ports of a Service, one for each family, whose farms do not exist yet."""
        expected = self.service_index.ports(service)
        if len(self.farm_index.made_from.get(service)) >= len(expected) or self.budgets.services.refuses(service):
            return []
        with_farm = {farm.port._replace(external=False) for farm in self.farms_of(service) if farm.port is not None}
        ports = dict.fromkeys(port._replace(external=False) for port in expected)
        return [port for port in ports if port not in with_farm]

    def contenders(self, port: PortKey) -> Iterable[Contender]:
        """Return all Service ports with the same plain farm name as this one."""
        return self.service_index.contenders(port)

    def working_nodes(self) -> list[NodeRecord]:
        """Return the newest state of the nodes that are to keep up: those that report and are ready, as their Nodes."""
        down = {name for name, node in self.core_nodes.items() if not node.ready}
        return [node for node in self.nodes.values() if node.ready and not node.silent and node.name not in down]

    def everything(self) -> Affected:
        """Return all policies, farms and Services, including deleted Services that still have farms."""
        services = frozenset(self.services.keys() | self.farm_index.made_from.keys())
        return Affected(services, frozenset(self.farms.keys()), frozenset(self.policies.keys()))
