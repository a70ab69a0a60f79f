"""The policies that farms refer to. Pure: no I/O."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kube_nftlb.agent.table.policy_sets import Json
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.values import expand_ports


class References(NamedTuple):
    """The policies that a farm refers to, by name: for all listeners, and for single ones."""

    namespace: str
    everywhere: frozenset[str] = frozenset()
    at: Mapping[tuple[str, int], frozenset[str]] = {}
    unread: bool = False
    """True if the farm cannot be parsed, but has source ranges or limits, which cannot be applied then."""

    def of(self, listener: Listener) -> frozenset[str]:
        """Return those for a listener. All apply to one that the farm has no more, which an engine may still have."""
        own = self.at.get((listener.ip, listener.port))
        return self.everywhere | (own if own is not None else frozenset().union(*self.at.values()))

    def all(self) -> frozenset[str]:
        """Return every policy that it refers to."""
        return self.everywhere.union(*self.at.values())


def references(farm: Farm) -> References:
    """Return the references of a farm."""
    at = {
        (address.ip, port): frozenset(address.policies)
        for address in farm.spec.addresses
        for port in expand_ports(address.ports) or [0]
    }
    return References(farm.metadata.namespace, frozenset(farm.spec.policies), at)


def raw_references(raw: Json) -> References:
    """Return the references of a farm that cannot be parsed: every policy in its spec, for all listeners.

    Anything but a list of names counts as a missing policy: nobody is admitted.
    """
    spec = raw.get("spec")
    addresses = spec.get("addresses") if isinstance(spec, dict) else None
    parts = [spec, *(addresses if isinstance(addresses, list) else ())]
    found = [part for part in parts if isinstance(part, dict)]
    named = frozenset(name for part in found for name in _names(part.get("policies") or []))
    unread = any(part.get("sourceRanges") or _limited(part.get("limits")) for part in found)
    return References(raw["metadata"]["namespace"], named, unread=unread)


def _limited(limits: Any) -> bool:
    """Return True if there are limits; the API server sets some fields in any case."""
    return isinstance(limits, dict) and any(limits.get(key) for key in ("new", "reset", "established", "tcpStrict"))


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else [str(value)]
