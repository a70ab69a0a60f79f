"""The listeners of a Gateway: its own, then those of its ListenerSets, from the oldest on; which of them are valid."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kube_nftlb import names
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
    "TooManyListeners", f"the Gateway and older ListenerSets have as many listeners as they may, {LISTENERS_MAX}"
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
    def usable(self) -> bool:
        """Return True if routes can be served here."""
        return self.refused is None and self.conflict is None and bool(self.kinds)

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
    own = _without_conflicts(_read(None, namespace, gateway.spec.listeners, gateway.metadata.annotations), ())
    of_sets: dict[ObjectKey, tuple[Section, ...]] = {}
    surplus_sets: dict[ObjectKey, Problem] = {}
    count = len(own)
    # Of the Gateway's own ones that conflict none is served, but nobody else gets their ports meanwhile.
    taken = list(own)
    for key, each in sorted(sets.items(), key=lambda entry: (entry[1].metadata.created_s, entry[0])):
        if count >= LISTENERS_MAX:
            surplus_sets[key] = _TOO_MANY
        else:
            read = _read(key, key.namespace, each.spec.listeners, each.metadata.annotations)
            surplus = [replace(one, refused=_TOO_MANY) for one in read[LISTENERS_MAX - count :]]
            found = _without_conflicts([*read[: LISTENERS_MAX - count], *surplus], taken)
            count += len(found)
            taken.extend(section for section in found if section.refused is None and section.conflict is None)
            of_sets[key] = found
    names_there = {section.key.name for section in own}
    prefix = names.ANNOTATION_PORT_RANGE
    strange = [each for each in gateway.metadata.annotations if each.startswith(prefix)]
    unknown = tuple(sorted(each for each in strange if each.removeprefix(prefix) not in names_there))
    return Sections(own, of_sets, surplus_sets, unknown)


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
            if (each.group or names.GATEWAY_API, each.kind) != (names.GATEWAY_API, supported)
        ]
        kinds = kinds if len(strange) < len(admitted.kinds) else ()
    namespaces = (admitted.namespaces if admitted is not None else None) or AdmittedNamespaces()
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


def _without_conflicts(found: Sequence[Section], taken: Sequence[Section]) -> tuple[Section, ...]:
    """Return the listeners of one object with their conflicts: with each other, and with those of older objects.

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
        if any(each.refused is None and _overlap(section, each) for each in taken):
            conflicts[at] = _conflict(section, "that of a listener of the Gateway or of an older ListenerSet")
    return tuple(replace(each, conflict=conflicts.get(at)) for at, each in enumerate(found))


def _overlap(one: Section, other: Section) -> bool:
    return one.protocol == other.protocol and one.first <= other.last and other.first <= one.last


def _conflict(section: Section, message: str) -> Problem:
    reason: GatewayReason = "ProtocolConflict" if section.key.listener_set is None else "ListenerConflict"
    return Problem(reason, f"{section.protocol} port {section.ports} is {message}")
