"""Collects what is decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kube_nftlb.operator.gateway.objects import ObjectKey, RouteKey
from kube_nftlb.operator.gateway.record import GatewayRecord
from kube_nftlb.operator.gateway.wanted import (
    AddressRequest,
    ClassStatus,
    GatewayPlan,
    GatewayStatus,
    ParentStatus,
    WantedFarm,
)


@dataclass(slots=True)
class Result:
    """A ``GatewayPlan`` in the making."""

    farms: dict[ObjectKey, WantedFarm | None] = field(default_factory=dict)
    requests: dict[ObjectKey, AddressRequest | None] = field(default_factory=dict)
    classes: dict[str, ClassStatus | None] = field(default_factory=dict)
    gateways: dict[ObjectKey, GatewayStatus | None] = field(default_factory=dict)
    listener_sets: dict[ObjectKey, GatewayStatus | None] = field(default_factory=dict)
    routes: dict[RouteKey, tuple[ParentStatus, ...]] = field(default_factory=dict)

    def forget(self, key: ObjectKey, record: GatewayRecord) -> None:
        """Say that nothing is wanted of a Gateway any more, nor of its ListenerSets unless they have another one."""
        self.requests[key] = None
        for each in (*record.sets, *record.refused_sets):
            self.listener_sets.setdefault(each, None)

    def add(self, key: ObjectKey, record: GatewayRecord, sets: Mapping[ObjectKey, GatewayStatus | None]) -> None:
        """Say what is decided about a Gateway and its ListenerSets, and these others; nothing of farms and routes."""
        self.requests[key] = record.request
        self.gateways[key] = record.status
        self.listener_sets.update(record.sets)
        self.listener_sets.update((each, status) for each, status in sets.items() if status is not None)

    def plan(self) -> GatewayPlan:
        """Return all of it."""
        return GatewayPlan(self.farms, self.requests, self.classes, self.gateways, self.listener_sets, self.routes)
