"""Change nodes: what their agents report, and their addresses. No I/O.

Each change returns what it makes out of date.
"""

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.environment import IpNetwork
from kube_nftlb.operator.cache.affected import NOTHING, Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.debounced_nodes import is_flap
from kube_nftlb.operator.cache.node_record import CoreNode, NodeRecord
from kube_nftlb.operator.cache.reserved import NodeChange


class NodeChanges:
    """Makes changes to a cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def put(self, node: NodeRecord) -> Affected:
        """Add or replace a node."""
        before = self._cache.debounced_nodes.get(node.name)
        if not self._cache.nodes.put(node.name, node):
            return NOTHING
        self._cache.heartbeats.heard(node.name, node.reported_at)
        self._cache.debounced_nodes.put(node.name, None if node.silent else node)
        return self._affected_by_node(before, self._cache.debounced_nodes.get(node.name))

    def remove(self, name: str, version: int) -> Affected:
        """Remove a node."""
        before = self._cache.debounced_nodes.get(name)
        if self._cache.nodes.remove(name, version) is None:
            return NOTHING
        self._cache.heartbeats.forget(name)
        self._cache.debounced_nodes.put(name, None)
        return self._affected_by_node(before, self._cache.debounced_nodes.get(name))

    def flush(self) -> Affected:
        """Have those nodes count as gone, or as back, that have been so for a while."""
        affected = NOTHING
        for name, before in self._cache.debounced_nodes.flush():
            affected |= self._affected_by_node(before, self._cache.debounced_nodes.get(name))
        return affected

    def put_core(self, name: str, node: CoreNode, ips: tuple[str, ...], pod_cidrs: tuple[IpNetwork, ...]) -> Affected:
        """Add or replace a Node."""
        before = self._cache.core_nodes.get(name)
        if not self._cache.core_nodes.put(name, node):
            return NOTHING
        affected = self._affected_by_addresses(self._cache.reserved.put_node(name, ips, pod_cidrs))
        if (before is None or before.ready) == node.ready:
            return affected
        # Its agent has to keep up again, or no longer.
        return affected | self._cache.progress.unfinished()

    def remove_core(self, name: str, version: int) -> Affected:
        """Remove a Node."""
        if self._cache.core_nodes.remove(name, version) is None:
            return NOTHING
        return self._affected_by_addresses(self._cache.reserved.put_node(name))

    def _affected_by_node(self, before: NodeRecord | None, node: NodeRecord | None) -> Affected:
        cache = self._cache
        if before is node:
            return NOTHING
        if before is None or node is None or is_flap(before, node):
            return Affected(farms=frozenset(cache.farms.keys()), policies=frozenset(cache.policies.keys()))
        farms = set[FarmKey]()
        for said, says in ((before.failed, node.failed), (before.warnings, node.warnings)):
            farms.update(key for (key, _), _ in said.items() ^ says.items())
        for ip in before.announced ^ node.announced:
            farms.update(cache.farm_index.balanced.get(ip))
        if namespaces := before.failed_namespaces ^ node.failed_namespaces:
            farms.update(key for key, _ in cache.farms.items() if key.namespace in namespaces)
        return cache.progress.between(before, node) | Affected(farms=frozenset(farms))

    def _affected_by_addresses(self, change: NodeChange) -> Affected:
        farms = frozenset(self._cache.conflicts.move_nodes(change.gone, change.come))
        return Affected(self._cache.service_index.asking() if change else frozenset(), farms)
