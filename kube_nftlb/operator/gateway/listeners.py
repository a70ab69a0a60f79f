"""The listeners of a Gateway: its own, then those of its ListenerSets, from the oldest on; which of them are valid."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.budgets import fair_share
from kube_nftlb.api.gateway.gateway import Gateway, GatewayListener, ListenerSet
from kube_nftlb.api.gateway.route import PROTOCOLS, RouteKindName
from kube_nftlb.api.gateway.selectors import AdmittedNamespaces
from kube_nftlb.api.values import expand_ports
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.reasons import GatewayReason

_KINDS: Final[Mapping[str, RouteKindName]] = {protocol: kind for kind, protocol in PROTOCOLS.items()}

LISTENERS_MAX: Final = 256
"""The number of listeners of a Gateway and its ListenerSets."""

_RANGE_TEXT_MAX: Final = 11
_BY_DEFAULT: Final = AdmittedNamespaces()


class ListenerKey(NamedTuple):
    """The identity of a listener within a Gateway."""

    listener_set: ObjectKey | None
    """None: it is the Gateway's own."""
    name: str


class Problem(NamedTuple):
    """Why something is not as its object asks, or that it is."""

    reason: GatewayReason
    message: str


_TOO_MANY: Final = Problem(
    "TooManyListeners",
    f"the namespace already has its share of the {LISTENERS_MAX} listeners of a Gateway with its ListenerSets",
)


@dataclass(frozen=True, slots=True)
class Section:
    """A listener of a Gateway, as it is judged without routes."""

    key: ListenerKey
    namespace: str
    """Of the object that has it: ``from: Same`` means this one."""
    protocol: str
    first: int
    last: int
    """Its ports: one, or those of its range."""
    port: int
    """The port that parentRefs name."""
    kinds: tuple[RouteKindName, ...]
    """The kinds of routes that it admits, and that can be served."""
    namespaces: AdmittedNamespaces
    refused: Problem | None = None
    """Why it is not accepted."""
    conflict: Problem | None = None
    """Why it is not, if that is because of other listeners."""
    strange_kinds: str = ""
    """Kinds in its spec that cannot be served, as text."""

    @property
    def is_served(self) -> bool:
        """Return True if nothing is wrong with it, beside the kinds of routes that it admits."""
        return self.refused is None and self.conflict is None

    @property
    def usable(self) -> bool:
        """Return True if routes can be served here."""
        return self.is_served and bool(self.kinds)

    @property
    def ports(self) -> str:
        """Its ports, as a farm has them."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Sections:
    """All listeners of a Gateway."""

    own: tuple[Section, ...]
    of_sets: Mapping[ObjectKey, tuple[Section, ...]]
    """Of the ListenerSets that it has, in the order of their precedence."""
    surplus_sets: Mapping[ObjectKey, Problem]
    """Those that are too many, and why."""
    strange_ranges: tuple[str, ...]
    """Annotations of the Gateway for listeners that it does not have."""


def admits_sets(gateway: Gateway, namespace: str, labels: Mapping[str, str] | None) -> bool:
    """Return True if a Gateway admits ListenerSets of a namespace with these labels; None: they are unknown."""
    allowed = gateway.spec.allowed_listeners
    namespaces = (allowed.namespaces if allowed is not None else None) or AdmittedNamespaces()
    return namespaces.admits(gateway.metadata.namespace, namespace, labels, "None")


def sections(gateway: Gateway, sets: Mapping[ObjectKey, ListenerSet]) -> Sections:
    """Return the listeners of a Gateway and of the ListenerSets that it admits."""
    namespace = gateway.metadata.namespace
    own = _without_conflicts(_read(None, namespace, gateway.spec.listeners, gateway.metadata.annotations), {})
    of_sets: dict[ObjectKey, tuple[Section, ...]] = {}
    surplus_sets: dict[ObjectKey, Problem] = {}
    # Of the Gateway's own ones that conflict none is served, but nobody else gets their ports meanwhile.
    taken = Counter[str]()
    for section in own:
        if section.refused is None:
            taken[section.protocol] |= _bits(section)
    of_own = dict(taken)
    read: dict[ObjectKey, tuple[Section, ...]] = {}
    counts = Counter[str]()
    for key, each in sorted(sets.items(), key=lambda entry: (entry[1].metadata.created_s, str(entry[0]))):
        if counts[key.namespace] < LISTENERS_MAX:
            listeners = _read(key, key.namespace, each.spec.listeners, each.metadata.annotations)
            counts[key.namespace] += len(listeners)
            read[key] = _without_conflicts(listeners, of_own)
        else:
            surplus_sets[key] = _TOO_MANY
    places = _places(read, LISTENERS_MAX - len(own))
    for key, judged in read.items():
        if places[key.namespace] <= 0 and any(section.is_served for section in judged):
            surplus_sets[key] = _TOO_MANY
            continue
        found = list(_without_conflicts(judged, taken))
        for at, section in enumerate(found):
            if not section.is_served:
                continue
            if places[key.namespace] > 0:
                places[key.namespace] -= 1
                taken[section.protocol] |= _bits(section)
            else:
                found[at] = replace(section, refused=_TOO_MANY)
        of_sets[key] = tuple(found)
    names_there = {section.key.name for section in own}
    prefix = names.ANNOTATION_PORT_RANGE
    strange = [each for each in gateway.metadata.annotations if each.startswith(prefix)]
    unknown = tuple(sorted(each for each in strange if each.removeprefix(prefix) not in names_there))
    return Sections(own, of_sets, surplus_sets, unknown)


def _places(sets: Mapping[ObjectKey, Sequence[Section]], room: int) -> dict[str, int]:
    """Return how many listeners each namespace may have, whoever came first: a ListenerSet can grow."""
    wanted = Counter[str]()
    for key, found in sets.items():
        # Those that only conflict with other sets count: the other ones may be too many.
        wanted[key.namespace] += sum(each.is_served for each in found)
    share = fair_share(wanted.values(), room)
    places = {namespace: int(min(each, share)) for namespace, each in wanted.items()}
    # What cannot be divided goes to those that came first.
    lacking = [namespace for namespace, each in wanted.items() if each > places[namespace]]
    return places | {namespace: places[namespace] + 1 for namespace in lacking[: room - sum(places.values())]}


def _read(
    listener_set: ObjectKey | None,
    namespace: str,
    listeners: Iterable[GatewayListener],
    annotations: Mapping[str, str],
) -> list[Section]:
    return [_section(ListenerKey(listener_set, each.name), namespace, each, annotations) for each in listeners]


def _section(key: ListenerKey, namespace: str, listener: GatewayListener, annotations: Mapping[str, str]) -> Section:
    refused: Problem | None = None
    first = last = listener.port
    admitted = listener.allowed_routes
    supported = _KINDS.get(listener.protocol)
    if supported is None:
        message = f"the protocol {listener.protocol[:63]} is not supported: only TCP and UDP are"
        refused = Problem("UnsupportedProtocol", message)
    elif (text := annotations.get(names.ANNOTATION_PORT_RANGE + key.name)) is not None:
        try:
            first, last = _port_range(text, listener.port)
        except ValueError as error:
            refused = Problem("UnsupportedValue", f"the annotation {names.ANNOTATION_PORT_RANGE}{key.name}: {error}")
    kinds: tuple[RouteKindName, ...] = (supported,) if supported is not None else ()
    strange: list[str] = []
    if admitted is not None and admitted.kinds:
        strange = [
            each.kind
            for each in admitted.kinds
            if (names.GATEWAY_API if each.group is None else each.group, each.kind) != (names.GATEWAY_API, supported)
        ]
        kinds = kinds if len(strange) < len(admitted.kinds) else ()
    namespaces = (admitted.namespaces if admitted is not None else None) or _BY_DEFAULT
    return Section(
        key,
        namespace,
        listener.protocol,
        first,
        last,
        listener.port,
        kinds,
        namespaces,
        refused,
        strange_kinds=", ".join(sorted({kind[:63] for kind in strange})),
    )


def _port_range(text: str, port: int) -> tuple[int, int]:
    """Return the first and last port of a range. Raises ValueError with a sentence."""
    if len(text) > _RANGE_TEXT_MAX or "," in text:
        raise ValueError("it must be one range of ports, such as 30000-30100")
    ports = expand_ports(text)
    if not ports or not ports[0] <= port <= ports[-1]:
        raise ValueError(f"the range must have the listener's port, {port}")
    return ports[0], ports[-1]


def _without_conflicts(found: Sequence[Section], taken: Mapping[str, int]) -> tuple[Section, ...]:
    """Return the listeners of one object with their conflicts: with each other, and with the ports of older objects.

    None of those that conflict with each other is served. Who has the port already is not named: it may be a tenant's
    that the reader of this object cannot read.
    """
    conflicts: dict[int, Problem] = {}
    contending = [at for at, section in enumerate(found) if section.refused is None]
    widest: dict[str, int] = {}
    for at in sorted(contending, key=lambda each: found[each].first):
        section = found[at]
        before = widest.get(section.protocol)
        if before is not None and found[before].last >= section.first:
            for one, other in ((at, before), (before, at)):
                conflicts[one] = _conflict(
                    found[one], f"also that of the listener {found[other].key.name}; neither is served"
                )
        if before is None or found[before].last < section.last:
            widest[section.protocol] = at
    for at in contending:
        section = found[at]
        if taken.get(section.protocol, 0) & _bits(section):
            conflicts[at] = _conflict(section, "that of a listener of the Gateway or of an older ListenerSet")
    return tuple(replace(each, conflict=conflicts[at]) if at in conflicts else each for at, each in enumerate(found))


def _bits(section: Section) -> int:
    """Return the ports of a listener, as bits."""
    return (1 << section.last + 1) - (1 << section.first)


def _conflict(section: Section, message: str) -> Problem:
    reason: GatewayReason = "ProtocolConflict" if section.key.listener_set is None else "ListenerConflict"
    return Problem(reason, f"{section.protocol} port {section.ports} is {message}")
