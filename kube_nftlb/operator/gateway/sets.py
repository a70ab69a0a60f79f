"""Which ListenerSets are those of a Gateway: that it admits, and that are not too many in their namespace."""

from typing import Final

from kube_nftlb.api.budgets import Budget
from kube_nftlb.api.gateway.gateway import Gateway
from kube_nftlb.operator.gateway.changes import Affected
from kube_nftlb.operator.gateway.index import References
from kube_nftlb.operator.gateway.listeners import Problem, admits_sets
from kube_nftlb.operator.gateway.objects import GatewayObjects, ObjectKey
from kube_nftlb.operator.gateway.status import refused_set
from kube_nftlb.operator.gateway.wanted import GatewayStatus

SETS_MAX: Final = 64
"""The number of ListenerSets of a namespace that a Gateway looks at; older ones come first."""


class ListenerSets:
    """Follows ListenerSets, one at a time, at a cost that hardly depends on how many there are."""

    def __init__(self, objects: GatewayObjects, references: References) -> None:
        self._objects = objects
        self._references = references
        self._budgets: dict[ObjectKey, Budget[ObjectKey]] = {}
        """By Gateway."""

    def follow(self, key: ObjectKey, affected: Affected) -> None:
        """Have its Gateways look at a ListenerSet, and at those that are too many since, or no more."""
        listener_set = self._objects.listener_sets.get(key)
        before = self._references.gateway_of.get(key)
        self._references.put_set(key, listener_set)
        gateway = self._references.gateway_of.get(key)
        if before != gateway:
            for route in self._references.routes_of_set(key):
                affected.add_route(route, (each for each in (before, gateway) if each is not None))
        if before is not None and before != gateway:
            affected.add(before).sets.update({key, *self._budgets[before].remove(key)})
            if not self._references.sets_of.get(before):
                del self._budgets[before]
        if gateway is not None and listener_set is not None:
            budget = self._budgets.setdefault(gateway, Budget(SETS_MAX))
            affected.add(gateway).sets.update({key, *budget.put(key, (False, listener_set.metadata.created_s))})

    def admits(self, gateway: Gateway, key: ObjectKey) -> bool:
        """Return True if a ListenerSet is one of a Gateway."""
        parent = ObjectKey(gateway.metadata.namespace, gateway.metadata.name)
        if self._references.gateway_of.get(key) != parent or self._budgets[parent].refuses(key):
            return False
        return admits_sets(gateway, key.namespace, self._objects.namespaces.get(key.namespace))

    def refused(self, gateway: ObjectKey, key: ObjectKey) -> GatewayStatus | None:
        """Return the status of a ListenerSet that is not one of a Gateway; None if it does not refer to it."""
        listener_set = self._objects.listener_sets.get(key)
        if listener_set is None or self._references.gateway_of.get(key) != gateway:
            return None
        of_namespace = f"ListenerSets of the namespace {key.namespace}"
        problem = Problem("NotAllowed", f"the Gateway does not admit {of_namespace} (spec.allowedListeners)")
        if self._budgets[gateway].refuses(key):
            message = f"{SETS_MAX} older {of_namespace} refer to the Gateway, and it looks at no more"
            problem = Problem("TooManyListeners", message)
        return refused_set(problem, listener_set.metadata.generation)
