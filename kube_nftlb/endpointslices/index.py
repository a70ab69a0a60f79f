"""EndpointSlices by Service. Pure: no I/O."""

from collections import Counter
from collections.abc import Collection, Iterable

from kube_nftlb.endpointslices.slices import ServiceKey, Slice
from kube_nftlb.multimap import Multimap

SliceKey = tuple[str, str]
"""The namespace and name of an EndpointSlice."""

ENDPOINTS_OF_NAMESPACE_MAX = 500_000
"""The limit of endpoints in the slices of a namespace, so that no namespace takes the memory of all others."""


class SliceIndex:
    """All EndpointSlices that a watch has reported."""

    def __init__(self, endpoints_max: int = ENDPOINTS_OF_NAMESPACE_MAX) -> None:
        """``endpoints_max`` limits the endpoints of each namespace; slices beyond it lose their last ones."""
        self._endpoints_max = endpoints_max
        self._slices: dict[SliceKey, Slice] = {}
        self._of: Multimap[ServiceKey, SliceKey] = Multimap()
        self._endpoints: Counter[str] = Counter()
        self._cut: set[SliceKey] = set()

    def put(self, key: SliceKey, new: Slice | None) -> set[ServiceKey]:
        """Add or replace a slice; None removes it. Return the Services whose endpoints may have changed."""
        old = self._slices.pop(key, None)
        if old is not None:
            self._count(old, -1)
            self._of.discard(ServiceKey(old.namespace, old.service), key)
        self._cut.discard(key)
        if new is not None:
            room = self._endpoints_max - self._endpoints[new.namespace]
            if len(new.endpoints) > room:
                new = new._replace(endpoints=new.endpoints[: max(room, 0)])
                self._cut.add(key)
            self._slices[key] = new
            self._count(new, 1)
            self._of.add(ServiceKey(new.namespace, new.service), key)
        if new == old:
            return set()
        return {ServiceKey(each.namespace, each.service) for each in (old, new) if each is not None}

    def get(self, key: SliceKey) -> Slice | None:
        """Return a slice, or None if it is not known."""
        return self._slices.get(key)

    def missing(self, present: Collection[SliceKey]) -> list[SliceKey]:
        """Return the known slices that are not among those present."""
        return [key for key in self._slices if key not in present]

    def of(self, service: ServiceKey) -> Iterable[Slice]:
        """Return all slices of a Service."""
        return [self._slices[key] for key in self._of.get(service)]

    def is_cut(self, service: ServiceKey) -> bool:
        """Return True if endpoints of a Service are missing because its namespace has too many."""
        return not self._cut.isdisjoint(self._of.get(service))

    def cut_with_room(self) -> list[SliceKey]:
        """Return the slices that lost endpoints, and would get back some if they were put in again."""
        return [key for key in self._cut if self._endpoints[self._slices[key].namespace] < self._endpoints_max]

    def __len__(self) -> int:
        return len(self._slices)

    def _count(self, each: Slice, sign: int) -> None:
        self._endpoints[each.namespace] += sign * len(each.endpoints)
        if not self._endpoints[each.namespace]:
            del self._endpoints[each.namespace]
