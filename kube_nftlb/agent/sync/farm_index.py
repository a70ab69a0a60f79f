"""The facts about farms: specs, conflicts, failures. Decisions are made in ``decide``."""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from kube_nftlb import names
from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.dsr.modes import Links
from kube_nftlb.agent.model import Version
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.decide import Facts
from kube_nftlb.agent.sync.timing import Timing
from kube_nftlb.agent.table.element_count import elements
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.agent.table.policy_references import References, references
from kube_nftlb.api import budgets
from kube_nftlb.api.budgets import Budget
from kube_nftlb.api.conflicts import Conflicts, FarmKey, Loss, farm_key, rank
from kube_nftlb.api.farm import Farm, FarmSpec
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.endpointslices.backends import resolved_spec, services, sized_spec
from kube_nftlb.endpointslices.index import SliceIndex, SliceKey
from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.multimap import Multimap


class FarmIndex:
    """All farms that the watch has reported."""

    def __init__(
        self,
        policies: Policies,
        features: FeatureProbe,
        limits: NamespaceLimits = NamespaceLimits(),  # noqa: B008 - immutable
    ) -> None:
        self._policies = policies
        self._features = features
        self._farms: dict[FarmKey, Farm] = {}
        self._keys: dict[str, FarmKey] = {}
        self.slices = SliceIndex()
        self._referring: Multimap[ServiceKey, FarmKey] = Multimap()
        self._conflicts = Conflicts()
        self._unreadable: dict[FarmKey, References | None] = {}
        """Farms whose newest spec cannot be parsed, and its references as far as they can be read."""
        self._rules_refused: dict[FarmKey, str] = {}
        self._refused: dict[FarmKey, str] = {}
        """Farms that stay as they were because the engine or the kernel refused a change, and why."""
        self._refusals: Counter[FarmKey] = Counter()
        """How often changes of a farm were refused in a row."""
        self._backing_off_until: dict[FarmKey, float] = {}
        self._look_again_at: dict[FarmKey, float] = {}
        self.unprobed: set[FarmKey] = set()
        """Farms added or changed since the kernel was last probed for what they need."""
        self.node = NodeFacts()
        self._node_ips: Collection[str] = ()
        self._limits = limits
        self._elements: Budget[FarmKey] = Budget(sys.maxsize, limits.elements, limits.node_elements)
        self._sizes: dict[FarmKey, int] = {}
        """The elements of the farms that were measured."""
        self.losers: set[FarmKey] = set()
        """The farms that had lost all of their listeners to others when they were measured."""

    # Events. Each method returns the farms to look at.

    def put(self, farm: Farm) -> set[FarmKey]:
        """Add or replace a farm. Returns nothing if its generation is known."""
        key = farm_key(farm)
        known = self._farms.get(key)
        # A farm's controller decides who wins an address, but does not change the generation.
        # Nor do its labels, which decide if it may refer to other namespaces.
        same = known is not None and known.spec.backends_from == farm.spec.backends_from
        if known is not None and same and Version.of(known) == Version.of(farm) and rank(known) == rank(farm):
            if known.metadata.labels != farm.metadata.labels:
                self._farms[key] = farm
            return set()
        self._refer(known, key, join=False)
        self._farms[key] = farm
        self._refer(farm, key, join=True)
        self.unprobed.add(key)
        self._keys[names.node_farm_name(*key)] = key
        self._unreadable.pop(key, None)
        self._retry(key)
        self._policies.refer(key, references(farm))
        return {key, *self._conflicts.put(farm)}

    def put_slice(self, key: SliceKey, new: Slice | None) -> set[FarmKey]:
        """Add or replace an EndpointSlice; None removes it."""
        affected: set[FarmKey] = set()
        for service in self.slices.put(key, new):
            affected |= self._referring.get(service)
        for each in affected:
            self._retry(each)
        return affected

    def put_unreadable(self, key: FarmKey, refers: References | None) -> None:
        """Note that a farm's newest spec cannot be parsed. ``refers`` counts only if none ever could."""
        if key not in self._farms:
            self._policies.refer(key, refers)
        self._unreadable[key] = refers
        self._keys[names.node_farm_name(*key)] = key

    def remove(self, key: FarmKey) -> set[FarmKey]:
        """Remove a farm; its name stays known until it is withdrawn (``forget``)."""
        self._rules_refused.pop(key, None)
        self._refused.pop(key, None)
        self._look_again_at.pop(key, None)
        self.unprobed.discard(key)
        known = key in self._unreadable
        self._unreadable.pop(key, None)
        self._refer(self._farms.get(key), key, join=False)
        self._sizes.pop(key, None)
        self.losers.discard(key)
        affected = self._elements.remove(key)
        if self._farms.pop(key, None) is None and not known:
            return affected
        return {key, *self._conflicts.remove(key), *affected}

    def is_removed(self, key: FarmKey) -> bool:
        """Return True if the watch has reported that a farm is gone."""
        return key not in self._farms and key not in self._unreadable

    def forget(self, key: FarmKey) -> None:
        """Forget a removed farm that was withdrawn."""
        self._refusals.pop(key, None)
        self._backing_off_until.pop(key, None)
        self._keys.pop(names.node_farm_name(*key), None)
        self._policies.refer(key, None)

    def set_node(self, node: NodeFacts) -> None:
        """Replace the facts about the node, on which all farms depend."""
        self.node = node
        self._policies.node_ips = node.all_port_ips
        self._conflicts.set_nodes(self._node_ips, self.node.all_port_ips)

    def set_node_ips(self, ips: Collection[str]) -> set[FarmKey]:
        """Replace the addresses of all nodes."""
        self._node_ips = ips
        return self._conflicts.set_nodes(ips, self.node.all_port_ips)

    def measure(self, keys: Iterable[FarmKey]) -> set[FarmKey]:
        """Count the elements of farms. Return the others that fit the limit of their namespace no more, or again."""
        affected: set[FarmKey] = set()
        measured = set(keys)
        for key in measured:
            farm = self._farms.get(key)
            loss = self._conflicts.get(key)
            loses = loss is not None and loss.everything
            (self.losers.add if loses else self.losers.discard)(key)
            if farm is None or loses:
                self._sizes.pop(key, None)
                affected |= self._elements.remove(key)
                continue
            spec = sized_spec(farm.spec, key.namespace, self._slices_of(key, farm.spec))
            size = self._sizes[key] = elements(spec, len(self.node.port_ips.get(spec.family, ())))
            fits_alone = size <= self._limits.farm_elements
            metadata = farm.metadata
            place = budgets.rank(of_service=metadata.has_source, created=metadata.creation_timestamp)
            affected |= self._elements.put(key, place, size if fits_alone else 0)
        return affected - measured

    # Queries.

    def __iter__(self) -> Iterator[FarmKey]:
        """Iterate over farms that have ever been valid."""
        return iter(self._farms)

    def __contains__(self, key: FarmKey) -> bool:
        return key in self._farms

    def get(self, key: FarmKey) -> Farm | None:
        """Return a farm as it was last valid, or None; without the backends that it refers to."""
        return self._farms.get(key)

    def resolved(self, key: FarmKey) -> Farm | None:
        """Return a farm as it was last valid, with its backends, or None."""
        farm = self._farms.get(key)
        if farm is None or not farm.spec.backends_from:
            return farm
        spec = resolved_spec(farm.spec, key.namespace, self._slices_of(key, farm.spec))
        return farm.model_copy(update={"spec": spec})

    def _slices_of(self, key: FarmKey, spec: FarmSpec) -> Iterable[Slice]:
        return [each for of in services(spec.backends_from, key.namespace) for each in self.slices.of(of)]

    def of_service(self, service: ServiceKey) -> list[Farm]:
        """Return the farms that the operator has made of a Service."""
        farms = [self._farms[key] for key in self._referring.get(service)]
        return [farm for farm in farms if (of := farm.metadata.service) is not None and of.name == service.name]

    def all(self) -> set[FarmKey]:
        """Return all farms, also those that have never been valid."""
        return self._farms.keys() | self._unreadable.keys()

    def key(self, name: str) -> FarmKey | None:
        """Return the farm with a name on the node; removed farms count until they are withdrawn."""
        return self._keys.get(name)

    async def probe(self) -> None:
        """Probe the kernel for what new and changed farms need, before any decision on them."""
        while self.unprobed:
            await self._features.probe(self._farms[self.unprobed.pop()].spec)

    def stateless(self, keys: Iterable[FarmKey] | None = None) -> list[FarmKey]:
        """Return those of these farms, or of all, whose mode keeps no connections."""
        some = self._farms if keys is None else [key for key in keys if key in self._farms]
        return [key for key in some if modes.is_stateless(self._farms[key].spec)]

    @property
    def is_mostly_nftlb(self) -> bool:
        """True if at least half of the farms are nftlb's."""
        return 2 * sum(farm.spec.engine == "nftlb" for farm in self._farms.values()) >= len(self._farms)

    def owner(self, listener: Listener) -> FarmKey | None:
        """Return the farm that has a listener on this node, None if none has."""
        return self._conflicts.owner(listener)

    def owners(self, listener: Listener) -> set[FarmKey]:
        """Return the farms that have a listener on this node; if it is a whole address, also those with parts of it."""
        if listener.port == ALL_PORTS:
            return self._conflicts.contenders(listener.ip)
        return {key} if (key := self.owner(listener)) is not None else set()

    def is_refused(self, key: FarmKey) -> bool:
        """Return True if a farm stays as it was, because its last change was refused."""
        return key in self._refused

    def facts(self, key: FarmKey, links: Links, now: float) -> Facts:
        """Return the facts about a farm at ``now``, in seconds of the loop's clock."""
        farm, refers = self.resolved(key), self._unreadable.get(key)
        loss = self._conflicts.get(key)
        return Facts(
            farm,
            key not in self._unreadable,
            loss,
            self._too_large(key),
            self._rules_refused.get(key),
            self._refused.get(key),
            self._backing_off_until.get(key, now) > now,
            self._features.missing(farm.spec) if farm is not None else None,
            self.node,
            links,
            refers is not None and refers.unread,
            self._of_same_service(farm, loss),
        )

    def _of_same_service(self, farm: Farm | None, loss: Loss | None) -> frozenset[FarmKey]:
        """Return the farms of the same Service that have listeners of a farm."""
        service = farm.metadata.service if farm is not None else None
        if service is None or loss is None:
            return frozenset()
        winners = {key: self._farms.get(key) for key, _, _ in loss.conflicts}
        return frozenset(key for key, of in winners.items() if of is not None and of.metadata.service == service)

    def _too_large(self, key: FarmKey) -> str | None:
        size, limits = self._sizes.get(key, 0), self._limits
        if size > limits.farm_elements:
            message = f"it would have about {size} elements in nftables, and the administrator allows"
            advice = "give it fewer ports, backends or limits, or equal options of backends"
            return f"{message} {limits.farm_elements}; {advice}"
        if self._elements.refuses(key):
            message = "the farms of its namespace would have more elements in nftables than the"
            everybody = f", or than its share of {limits.node_elements} on a node"
            return f"{message} {limits.elements} that the administrator allows{everybody}; older farms come first"
        return None

    # Failures.

    def refuse_rules(self, key: FarmKey, why: str) -> None:
        """Note that the kernel refused a farm's rules in the agent table."""
        self._rules_refused[key] = why

    def refuse_change(self, key: FarmKey, why_kept: str | None, now: float, timing: Timing) -> None:
        """Note that the engine or the kernel refused a change, and retry it after a while: longer each time.

        Until then the farm stays as it was, for the reason ``why_kept``; with None it is withdrawn.
        """
        delay = min(timing.back_off_first_s * 2.0 ** self._refusals[key], timing.back_off_s)
        self._refusals[key] += 1
        self._refused.pop(key, None)
        if why_kept is not None:
            self._refused[key] = why_kept
        self.back_off(key, now + delay)

    def accept_change(self, key: FarmKey) -> None:
        """Note that the engine and the kernel have taken a farm as it is."""
        self._refusals.pop(key, None)

    def back_off(self, key: FarmKey, until: float) -> None:
        """Do not retry a farm before ``until``, unless it changes."""
        self._backing_off_until[key] = until

    def look_again(self, key: FarmKey, at: float) -> None:
        """Decide on a farm again at that time, even if nothing changes; until then it is served as decided."""
        self._look_again_at[key] = at

    def due(self, now: float) -> list[FarmKey]:
        """Return the farms to decide on again: those whose back-off has ended can be retried."""
        due = [key for key, until in self._backing_off_until.items() if until <= now]
        for key in due:
            del self._backing_off_until[key]
            self._rules_refused.pop(key, None)
            self._refused.pop(key, None)
        again = [key for key, at in self._look_again_at.items() if at <= now]
        for key in again:
            del self._look_again_at[key]
        # The kernel may have by now what it lacked.
        self.unprobed.update(self._farms.keys() & again)
        return [*due, *again]

    def _retry(self, key: FarmKey) -> None:
        """Forget what was found out about a farm before it changed."""
        self._rules_refused.pop(key, None)
        self._refused.pop(key, None)
        self._backing_off_until.pop(key, None)
        self._look_again_at.pop(key, None)

    def _refer(self, farm: Farm | None, key: FarmKey, *, join: bool) -> None:
        for service in services(farm.spec.backends_from, key.namespace) if farm is not None else ():
            self._referring.set(service, key, present=join)
