"""Decide which objects of a namespace fit its budget. Pure: the operator and all agents reach the same verdict.

Objects come in the order of their rank, so that a new one never takes the place of an old one; the first that does not
fit is refused, and with it all later ones.
"""

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, Protocol, Self, TypeVar

from kube_nftlb.api.base import is_route

Rank = tuple[bool, float]
"""Those of Services first, then older ones."""

ENTRIES_PER_SHARE = 50
"""A farm counts once for each so many ports, backends and other entries of its spec."""
_NUMBER = re.compile(r"[0-9]{1,5}")
_SPEC_LISTS = ("backends", "sessions", "addresses")


class Key(Protocol):
    """The identity of an object: a tuple that begins with the namespace."""

    @property
    def namespace(self) -> str: ...  # noqa: D102 (the class says it)

    def __lt__(self, other: Self, /) -> bool: ...

    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Key)


class Budget(Generic[K]):
    """The objects of one kind. Namespaces have nothing to do with each other, unless all want too much together."""

    def __init__(self, count_max: int, size_max: int | None = None, total_max: int | None = None) -> None:
        """Allow each namespace ``count_max`` objects, whose sizes add up to ``size_max`` at most; None: to anything.

        Where those of all namespaces add up to more than ``total_max``, each has a ``fair_share`` of it.
        """
        self._count_max = count_max
        self._size_max = float("inf") if size_max is None else size_max
        self._total_max = float("inf") if total_max is None else total_max
        self._wanted = 0.0
        """What all namespaces want together, each up to ``size_max``."""
        self._share = float("inf")
        self._namespaces: dict[str, _Namespace[K]] = {}
        self._known: dict[K, tuple[Rank, int]] = {}

    def put(self, key: K, rank: Rank, size: int = 1) -> set[K]:
        """Add or replace an object. Return the objects that are refused since, or no more; itself if it is new."""
        if self._known.get(key) == (rank, size):
            return set()
        new = key not in self._known
        was_refused = self.refuses(key)
        changed = self.remove(key)
        self._known[key] = rank, size
        # One that is too large alone does not shut out the others.
        if size <= self._size_max:
            namespace = self._namespaces.setdefault(key.namespace, _Namespace())
            self._wanted -= self._wants(namespace)
            changed ^= namespace.insert(key, rank, size)
            self._wanted += self._wants(namespace)
            changed ^= self._settle(namespace)
            changed ^= self._share_out()
        changed.discard(key)
        return changed | {key} if new or self.refuses(key) != was_refused else changed

    def remove(self, key: K) -> set[K]:
        """Remove an object. Return the others that are no longer refused."""
        rank, _ = self._known.pop(key, ((False, 0.0), 0))
        if (namespace := self._namespaces.get(key.namespace)) is None:
            return set()
        before = self._wants(namespace)
        if not namespace.drop(key, rank):
            return set()
        self._wanted += self._wants(namespace) - before
        if not namespace.entries:
            del self._namespaces[key.namespace]
        return self._settle(namespace) ^ self._share_out()

    def _wants(self, namespace: "_Namespace[K]") -> float:
        return min(namespace.wanted, self._size_max)

    def _settle(self, namespace: "_Namespace[K]") -> set[K]:
        return namespace.settle(self._count_max, min(self._size_max, self._share))

    def _share_out(self) -> set[K]:
        """Give each namespace its share. Return the objects that are refused since, or no more."""
        before, self._share = self._share, float("inf")
        if self._wanted > self._total_max:
            self._share = fair_share(map(self._wants, self._namespaces.values()), self._total_max)
        if self._share == before:
            return set()
        lower = min(self._share, before)
        changed: set[K] = set()
        for namespace in self._namespaces.values():
            if namespace.wanted > lower:
                changed ^= self._settle(namespace)
        return changed

    def refuses(self, key: K) -> bool:
        """Return True if an object is known and does not fit."""
        namespace = self._namespaces.get(key.namespace)
        return key in self._known and (namespace is None or key not in namespace.fitting)

    def __iter__(self) -> Iterator[K]:
        """Iterate over all objects."""
        return iter(self._known)


def fair_share(wanted: Iterable[float], total: float) -> float:
    """Return the most that one may have, if ``total`` is less than all want: who wants less gets what it wants.

    What is left is divided evenly among the others (max-min fairness).
    """
    remaining = total
    ascending = sorted(wanted)
    for position, each in enumerate(ascending):
        share = remaining / (len(ascending) - position)
        if each > share:
            return share
        remaining -= each
    return float("inf")


class _Namespace(Generic[K]):
    """The objects of a namespace, sorted; the first ``_count`` of them fit."""

    def __init__(self) -> None:
        self.wanted = 0
        """The size of all of them."""
        self.entries: list[tuple[Rank, K, int]] = []
        self.fitting: set[K] = set()
        self._size = 0

    def insert(self, key: K, rank: Rank, size: int) -> set[K]:
        """Add an object, as one that fits if one of a higher rank does. Return it if so."""
        at = bisect.bisect_left(self.entries, (rank, key))
        self.entries.insert(at, (rank, key, size))
        self.wanted += size
        if at >= len(self.fitting):
            return set()
        self.fitting.add(key)
        self._size += size
        return {key}

    def drop(self, key: K, rank: Rank) -> bool:
        """Remove an object. Return False if it is not there."""
        at = bisect.bisect_left(self.entries, (rank, key))
        if at == len(self.entries) or self.entries[at][1] != key:
            return False
        *_, size = self.entries.pop(at)
        self.wanted -= size
        if key in self.fitting:
            self.fitting.discard(key)
            self._size -= size
        return True

    def settle(self, count_max: int, size_max: float) -> set[K]:
        """Move the end of what fits. Return the objects that it passes."""
        passed: set[K] = set()
        while len(self.fitting) > count_max or self._size > size_max:
            _, key, size = self.entries[len(self.fitting) - 1]
            self.fitting.discard(key)
            self._size -= size
            passed ^= {key}
        while len(self.fitting) < min(count_max, len(self.entries)):
            _, key, size = self.entries[len(self.fitting)]
            if self._size + size > size_max:
                break
            self.fitting.add(key)
            self._size += size
            passed ^= {key}
        return passed


def rank(*, of_service: bool, created: str | datetime | None) -> Rank:
    """Return the rank of an object; one without a creationTimestamp is the youngest."""
    if isinstance(created, str):
        try:
            created = datetime.fromisoformat(created)
        except ValueError:
            created = None
    return not of_service, created.timestamp() if created is not None else float("inf")


def farm_rank(raw: Mapping[str, Any]) -> Rank:
    """Return the rank of a farm object, by its metadata alone."""
    metadata = raw["metadata"]
    controllers = [each for each in metadata.get("ownerReferences") or () if each.get("controller")]
    of_service = any(_is_source(str(each.get("apiVersion")), each.get("kind")) for each in controllers)
    return rank(
        of_service=of_service and "deletionTimestamp" not in metadata, created=metadata.get("creationTimestamp")
    )


def _is_source(version: str, kind: object) -> bool:
    """Return True for the kinds that the operator makes farms of."""
    return (version, kind) == ("v1", "Service") or is_route(version, kind)


def farm_size(raw: Mapping[str, Any]) -> int:
    """Return how often a farm object counts, before anything of it is validated."""
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return 1
    references = spec.get("backendsFrom")
    lists = [spec.get(key) for key in (*_SPEC_LISTS, "backendsFrom")]
    if isinstance(references, list):
        lists += [each.get("overrides") for each in references if isinstance(each, dict)]
    entries = sum(len(each) for each in lists if isinstance(each, list))
    addresses = spec.get("addresses")
    listeners = sum(map(_ports, addresses)) if isinstance(addresses, list) else 0
    return 1 + (entries + listeners) // ENTRIES_PER_SHARE


def _ports(address: object) -> int:
    """Return the number of ports of an address in a farm's spec, before it is validated."""
    text = address.get("ports") if isinstance(address, dict) else None
    if not isinstance(text, str):
        return 0
    ranges = (part.partition("-") for part in text.split(","))
    bounds = [(first, last or first) for first, _, last in ranges]
    return sum(
        int(last) - int(first) + 1
        for first, last in bounds
        if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last) and int(last) >= int(first)
    )


def policy_rank(raw: Mapping[str, Any]) -> Rank:
    """Return the rank of a policy object."""
    return rank(of_service=False, created=raw["metadata"].get("creationTimestamp"))


def policy_size(raw: Mapping[str, Any]) -> int:
    """Return the number of ranges of a policy object, before they are validated."""
    spec = raw.get("spec")
    cidrs = spec.get("cidrs") if isinstance(spec, dict) else None
    return len(cidrs) if isinstance(cidrs, list) else 0
