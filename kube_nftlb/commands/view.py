"""What a cluster's objects say of its farms on each node, decided by the functions of the agents. Pure: no I/O."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import ValidationError

from kube_nftlb import errors, names
from kube_nftlb.agent.farm_objects import parse
from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.node.info import NodeFacts, gather
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.api.base import first_error
from kube_nftlb.api.conflicts import Conflict, Conflicts, FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.api.listeners import Listener, node_ports
from kube_nftlb.endpointslices.backends import resolved_spec, services
from kube_nftlb.endpointslices.slices import ServiceKey, Slice, parse_slice
from kube_nftlb.kube.resources import JsonObject

_Identity = tuple[Any, ...]
_Parsed = tuple[_Identity, Farm | str]
"""A farm, or why agents cannot read it."""


class Failure(NamedTuple):
    """The failure of a farm on a node."""

    node: str
    reason: str
    message: str


@dataclass(frozen=True)
class ClusterView:
    """The objects of a cluster, as much of them as a command has asked for, and what follows from them.

    ``rivals`` are farms that only matter because they may have listeners of the others. ``reports`` are the NftlbNodes,
    ``pods``, ``daemon_sets`` and ``leases`` those of operator and agents; None if the user may not see them.
    ``services`` are those that lack an address of a pool, ``holders`` the Leases of addresses. ``unserved`` are
    Services of which something is not served, ``events`` the Warnings about them.
    """

    farms: Sequence[JsonObject] = ()
    nodes: Sequence[JsonObject] = ()
    reports: Sequence[JsonObject] | None = ()
    slices: Sequence[JsonObject] = ()
    policies: Sequence[JsonObject] = ()
    rivals: Sequence[JsonObject] = ()
    services: Sequence[JsonObject] = ()
    pools: Sequence[JsonObject] = ()
    holders: Sequence[JsonObject] = ()
    unserved: Sequence[JsonObject] = ()
    events: Sequence[JsonObject] = ()
    leases: Sequence[JsonObject] | None = None
    pods: Sequence[JsonObject] | None = None
    daemon_sets: Sequence[JsonObject] | None = None
    _known: Mapping[FarmKey, _Parsed] = field(default_factory=dict, repr=False)
    """Farms that were parsed before."""

    def with_farms(self, farms: Iterable[JsonObject]) -> "ClusterView":
        """Return the same with other farms; those with the same spec as before are not parsed again."""
        return replace(self, farms=tuple(farms), _known=self._parsed)

    @property
    def nftlb_nodes(self) -> Sequence[JsonObject]:
        """The NftlbNodes; none if the user may not see them."""
        return self.reports or ()

    @property
    def lease(self) -> JsonObject | None:
        """The Lease of the operator; None if there is none, or the user may not see it."""
        return self.leases[0] if self.leases else None

    @cached_property
    def _parsed(self) -> Mapping[FarmKey, _Parsed]:
        parsed: dict[FarmKey, _Parsed] = {}
        for raw in (*self.farms, *self.rivals):
            metadata, key = raw["metadata"], FarmKey.of(raw)
            identity = (metadata.get("uid"), metadata.get("generation"), metadata.get("ownerReferences"))
            if (known := self._known.get(key)) is not None and known[0] == identity:
                parsed[key] = known
            else:
                farm = parse(raw)
                parsed[key] = identity, farm if isinstance(farm, Farm) else farm.message
        return parsed

    @cached_property
    def raw_farms(self) -> Mapping[FarmKey, JsonObject]:
        """The farms as they are written, without rivals."""
        return {FarmKey.of(raw): raw for raw in self.farms}

    @cached_property
    def facts(self) -> Mapping[str, NodeFacts]:
        """What agents know of their nodes, by name. Raises UsageError for a Node that cannot be read."""
        try:
            return {
                raw["metadata"]["name"]: gather(raw["metadata"]["name"], CoreNode.model_validate(raw))
                for raw in self.nodes
            }
        except ValidationError as error:
            raise errors.UsageError(f"cannot read the Nodes: {first_error(error)}") from error

    @cached_property
    def failures(self) -> Mapping[FarmKey, Sequence[Failure]]:
        """The farms that failed, with the nodes on which they did."""
        failures = defaultdict[FarmKey, list[Failure]](list)
        for report in sorted(self.nftlb_nodes, key=lambda raw: str(raw["metadata"]["name"])):
            for entry in (report.get("status") or {}).get("failedFarms") or ():
                failure = Failure(report["metadata"]["name"], entry["reason"], entry.get("message", ""))
                failures[FarmKey(entry["namespace"], entry["name"])].append(failure)
        return failures

    @cached_property
    def _slices(self) -> Mapping[ServiceKey, Sequence[Slice]]:
        by_service = defaultdict[ServiceKey, list[Slice]](list)
        for raw in self.slices:
            try:
                parsed = parse_slice(raw)
            except ValidationError:
                # Agents ignore it too.
                continue
            if parsed is not None:
                by_service[ServiceKey(parsed.namespace, parsed.service)].append(parsed)
        return by_service

    @cached_property
    def _conflicts(self) -> Conflicts:
        conflicts = Conflicts()
        conflicts.set_nodes(self._node_ips)
        for _, farm in self._parsed.values():
            if isinstance(farm, Farm):
                conflicts.put(farm)
        return conflicts

    @cached_property
    def _node_ips(self) -> Sequence[str]:
        return [ip for facts in self.facts.values() for ip in facts.all_port_ips]

    def valid_farms(self) -> Iterator[Farm]:
        """Yield the farms that agents can read, as they are written, without rivals."""
        return (farm for key in self.raw_farms if isinstance(farm := self._parsed[key][1], Farm))

    def slices_of(self, service: ServiceKey) -> Sequence[Slice]:
        """Return the EndpointSlices of a Service."""
        return self._slices.get(service, ())

    def slices_for(self, farm: Farm) -> Sequence[Slice]:
        """Return the EndpointSlices of all Services that a farm refers to."""
        of = services(farm.spec.backends_from, farm.metadata.namespace)
        return [each for service in of for each in self.slices_of(service)]

    def farm(self, key: FarmKey) -> Farm | str:
        """Return a farm with the backends that it refers to, or why agents cannot read it."""
        farm = self._parsed[key][1]
        if isinstance(farm, str) or not farm.spec.backends_from:
            return farm
        return farm.model_copy(update={"spec": resolved_spec(farm.spec, key.namespace, self.slices_for(farm))})

    def conflicts(self, farm: Farm, node: str) -> Sequence[Conflict]:
        """Return the conflicts that a farm loses on a node."""
        if not all(each.ip for each in farm.spec.addresses):
            # Which addresses a node port has differs from node to node.
            self._conflicts.set_nodes(self._node_ips, self.facts_of(node).all_port_ips)
        loss = self._conflicts.get(FarmKey(farm.metadata.namespace, farm.metadata.name))
        return loss.conflicts if loss is not None else ()

    def on_node(self, farm: Farm, node: str) -> NodeFarm:
        """Return a farm as the agent of a node serves it; the node's bridges, for the mode dsr, are unknown."""
        lost = frozenset(each.lost for each in self.conflicts(farm, node))
        return node_farm(farm, self.facts_of(node), None, lost)

    def without_conflicts(self, farm: Farm) -> NodeFarm | None:
        """Return a farm as some node would serve it if it lost nothing there; None without nodes."""
        return next((node_farm(farm, facts, None) for facts in self.facts.values()), None)

    def facts_of(self, node: str) -> NodeFacts:
        """Return what the agent of a node knows of it; of an unknown node, that it has nothing."""
        return self.facts.get(node, NodeFacts())

    def owner(self, listener: Listener) -> FarmKey | None:
        """Return the farm that has a listener; on an address of which nothing is known, one with that node port."""
        at_nodes = listener._replace(ip=node_ports("ipv6" if ":" in listener.ip else "ipv4"))
        return self._conflicts.owner(listener) or self._conflicts.owner(at_nodes)

    def may_conflict(self, farms: Iterable[JsonObject]) -> Callable[[JsonObject], bool]:
        """Return what returns True for a farm that may want an address of these farms."""
        ips = {ip for raw in farms for ip in _ips(raw)}
        if "" in ips:
            ips.update(self._node_ips)
        # Node ports are on the addresses of nodes.
        ips.add("")
        return lambda raw: any(ip in ips for ip in _ips(raw))


def lacking_address(raw: JsonObject) -> JsonObject | None:
    """Return a Service if it lacks an address of a pool, else None."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    assigned = [each for each in status.get("conditions") or () if each["type"] == names.ADDRESS_CONDITION]
    if assigned:
        return raw if assigned[0]["status"] == "False" else None
    ours = spec.get("type") == "LoadBalancer" and spec.get("loadBalancerClass") == names.LOAD_BALANCER_CLASS
    return raw if ours and not (status.get("loadBalancer") or {}).get("ingress") else None


def is_of_service(raw: JsonObject, service: str) -> bool:
    """Return True if a farm is one of a Service of its namespace, by the operator's label."""
    return (raw["metadata"].get("labels") or {}).get(names.LABEL_SERVICE) == service


def referred(raw: JsonObject) -> set[ServiceKey]:
    """Return the Services whose endpoints are backends of a farm, before anything of it is validated."""
    own, groups = raw["metadata"]["namespace"], (raw.get("spec") or {}).get("backendsFrom") or ()
    return {ServiceKey(each.get("namespace") or own, each["service"]) for each in groups if each.get("service")}


def _ips(raw: JsonObject) -> Iterator[str]:
    """Yield the addresses of a farm; that of node ports is empty."""
    return (each.get("ip", "") for each in (raw.get("spec") or {}).get("addresses") or ())
