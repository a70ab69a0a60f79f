"""The policies that farms refer to. Pure: no I/O."""

from collections.abc import Collection, Mapping
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
    """By IP address and port; those at a node port, which is on several addresses, by an empty text and the port."""
    somewhere: frozenset[frozenset[str]] = frozenset()
    """The policies of each of its addresses."""
    unread: bool = False
    """True if the farm cannot be parsed, but has source ranges or limits, which cannot be applied then."""
    earlier: Mapping[tuple[str, int], frozenset[frozenset[str]]] = {}
    """As ``at`` for what an earlier spec had, and an engine may still have: all that applied there, or several sets."""
    may_be_sent: bool = True
    """False if no engine has been asked for what the spec says."""

    def of(self, listener: Listener, node_ips: Collection[str] = ()) -> frozenset[frozenset[str]]:
        """Return those for a listener of a node that has these addresses.

        They are several sets, all of which apply, for one that the farm has no more, but an engine may still have, and
        where the farm cannot be parsed.
        """
        places = [(listener.ip, listener.port), *([("", listener.port)] if listener.ip in node_ips else [])]
        for place in places:
            if (own := self.at.get(place)) is not None:
                return frozenset((self.everywhere | own,))
        for place in places:
            if (sets := self.earlier.get(place)) is not None:
                return sets | ({self.everywhere} if self.everywhere else frozenset())
        return frozenset(self.everywhere | each for each in self.somewhere) or frozenset((self.everywhere,))

    def all(self) -> frozenset[str]:
        """Return every policy that the spec refers to."""
        return self.everywhere.union(*self.somewhere)

    def after(self, before: "References") -> "References":
        """Return these with what those ``before`` apply at listeners that the spec has no more, and an engine may."""
        sent = before.at if before.may_be_sent else {}
        had = {place: frozenset((before.everywhere | own,)) for place, own in sent.items()}
        earlier = {place: sets for place, sets in {**before.earlier, **had}.items() if place not in self.at}
        return self._replace(earlier=earlier, may_be_sent=False)

    def settled(self, listeners: Collection[Listener]) -> "References":
        """Return these with what an earlier spec had at listeners that engines have, and nowhere else."""
        places = {(ip, each.port) for each in listeners for ip in (each.ip, "")}
        return self._replace(earlier={place: sets for place, sets in self.earlier.items() if place in places})


def references(farm: Farm) -> References:
    """Return the references of a farm."""
    at = {
        (address.ip, port): frozenset(address.policies)
        for address in farm.spec.addresses
        for port in expand_ports(address.ports) or [0]
    }
    return References(farm.metadata.namespace, frozenset(farm.spec.policies), at, frozenset(at.values()))


def raw_references(raw: Json) -> References:
    """Return the references of a farm that cannot be parsed: every policy in its spec.

    Anything but a list of names counts as a missing policy: nobody is admitted.
    """
    spec = raw.get("spec")
    addresses = spec.get("addresses") if isinstance(spec, dict) else None
    parts = [part for part in (addresses if isinstance(addresses, list) else ()) if isinstance(part, dict)]
    of_all = spec if isinstance(spec, dict) else {}
    somewhere = frozenset(_names(part) for part in parts)
    unread = any(part.get("sourceRanges") or _limited(part.get("limits")) for part in (of_all, *parts))
    return References(raw["metadata"]["namespace"], _names(of_all), {}, somewhere, unread)


def _limited(limits: Any) -> bool:
    """Return True if there are limits; the API server sets some fields in any case."""
    return isinstance(limits, dict) and any(limits.get(key) for key in ("new", "reset", "established", "tcpStrict"))


def _names(part: Json) -> frozenset[str]:
    value = part.get("policies") or []
    return frozenset(map(str, value if isinstance(value, list) else (value,)))
