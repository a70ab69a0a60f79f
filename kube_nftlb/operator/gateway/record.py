"""What is decided about one Gateway: the farms of its listeners, and what the statuses say."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from kube_nftlb.api.gateway.gateway import Gateway, ListenerSet
from kube_nftlb.api.values import TrafficPolicy
from kube_nftlb.operator.gateway.addresses import asked, traffic_policy
from kube_nftlb.operator.gateway.attached import AttachedRoutes, Candidate
from kube_nftlb.operator.gateway.attachment import Attachment, Entrances
from kube_nftlb.operator.gateway.farms import farms
from kube_nftlb.operator.gateway.listeners import ListenerKey, Problem, Section, Sections
from kube_nftlb.operator.gateway.objects import AddressState, FarmState, ObjectKey, Options, RouteKey
from kube_nftlb.operator.gateway.progress import Progress, progress
from kube_nftlb.operator.gateway.status import (
    Facts,
    gateway_status,
    none_usable,
    parent_status,
    refused_set,
    set_status,
)
from kube_nftlb.operator.gateway.wanted import GatewayStatus, ParentStatus, WantedFarm
from kube_nftlb.prose import some_of, until_then


@dataclass(frozen=True, slots=True)
class Subject:
    """A Gateway with what the decision depends on, beside its routes and address."""

    key: ObjectKey
    gateway: Gateway
    sets: Mapping[ObjectKey, ListenerSet]
    """Those that it admits."""
    sections: Sections
    entrances: Entrances
    refused: Problem | None
    """Why it is not accepted whatever it asks for: because of its class, or of others in its namespace."""
    surplus: bool
    """It is one too many in its namespace, and gets nothing."""
    states: Mapping[ObjectKey, FarmState]
    routability: bool
    """Addresses have a routability, by the CustomResourceDefinition of Gateways."""
    options: Options


@dataclass(slots=True)
class _OfListener:
    """The farms of a listener, and what they were built from."""

    inputs: tuple[Any, ...]
    farms: dict[ObjectKey, WantedFarm]


class GatewayRecord:
    """A Gateway of ours, and what is decided about it."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.routes = AttachedRoutes()
        self.status = GatewayStatus((), ())
        self.sets: dict[ObjectKey, GatewayStatus] = {}
        """The statuses of its ListenerSets."""
        self.refused_sets: dict[ObjectKey, GatewayStatus] = {}
        """Those of ListenerSets that refer to it, but are not admitted, or too many."""
        self.farms: dict[ObjectKey, WantedFarm] = {}
        self.parents: dict[RouteKey, dict[int, ParentStatus]] = {}
        """The statuses of its routes, by the position of the parentRef."""
        self._serves = False
        self._usable: Mapping[ListenerKey, Section] = {}
        self._of_listener: dict[ListenerKey, _OfListener] = {}

    def put_subject(self, subject: Subject) -> dict[ObjectKey, GatewayStatus]:
        """Replace what the decision depends on. Return the statuses of ListenerSets that are too many."""
        self.subject = subject
        for key in subject.sections.of_sets:
            self.refused_sets.pop(key, None)
        return {
            key: refused_set(problem, subject.sets[key].metadata.generation)
            for key, problem in subject.sections.surplus_sets.items()
        }

    def put_sets(self, keys: Iterable[ObjectKey], refused: Mapping[ObjectKey, GatewayStatus | None]) -> None:
        """Replace what is said of these ListenerSets if they are refused; None for one that it has no more."""
        for key in keys:
            self.refused_sets.pop(key, None)
        self.refused_sets.update((key, status) for key, status in refused.items() if status is not None)

    def decide(self, address: AddressState | None) -> set[RouteKey]:
        """Decide about the Gateway. Return the routes whose statuses depend on what of it has changed."""
        subject, gateway, found = self.subject, self.subject.gateway, self.subject.sections
        wanted = asked(gateway, None if subject.surplus else subject.refused)
        mistake = None if subject.surplus else wanted.unsupported
        refused = mistake or subject.refused or none_usable(found.own)
        has = address.addresses if address is not None else ()
        ending = until_then(has)
        if wanted.unclear:
            routability = address.routability if address is not None else ()
            address = AddressState(has, "AddressNotAssigned", f"{wanted.unclear}{ending}", routability)
        # A mistake in what it asks for, or its class, takes nothing from clients.
        serves = refused is None or (mistake is not None and bool(has))
        if mistake is not None:
            refused = mistake._replace(message=f"{mistake.message}{ending}")
        usable = {each.key: each for each in _all(found) if each.usable}
        flipped = usable.keys() ^ self._usable.keys()
        outdated = {key for listener in flipped for key in self.routes.at(listener)}
        if serves != self._serves:
            outdated = set(self.routes)
        self._serves, self._usable = serves, usable
        policy, strange = traffic_policy(gateway)
        inside = address.inside if address is not None else frozenset()
        self._build_farms(subject, has if serves else (), inside, policy)

        def progress_of(listeners: Iterable[ListenerKey]) -> Progress:
            built = (self._of_listener[each].farms for each in listeners if each in self._of_listener)
            return progress(
                (name, farm.digest, subject.states.get(name)) for each in built for name, farm in each.items()
            )

        facts = Facts(
            refused,
            _note(found, strange),
            address,
            wanted.request.only_kept,
            subject.routability,
            self.routes.count,
            progress_of,
        )
        self.sets = {
            key: set_status(each, facts, subject.sets[key].metadata.generation) for key, each in found.of_sets.items()
        }
        attached_sets = sum(each.conditions[0].status == "True" for each in self.sets.values())
        self.status = gateway_status(found.own, attached_sets, facts, gateway.metadata.generation)
        return outdated

    def _build_farms(
        self, subject: Subject, addresses: tuple[str, ...], inside: Set[str], policy: TrafficPolicy
    ) -> None:
        """Build the farms that differ from those there are."""
        built: dict[ListenerKey, _OfListener] = {}
        for listener, section in self._usable.items() if addresses else ():
            if (key := self.routes.serving(listener)) is None or (candidate := self.routes.get(key)) is None:
                continue
            route, inputs = candidate.route, (candidate.backends, addresses, inside, subject.options, policy)
            identity = section, key, route.metadata.uid, route.metadata.creation_timestamp
            before = self._of_listener.get(listener)
            if before is not None and before.inputs == (*identity, *inputs):
                built[listener] = before
                continue
            built[listener] = _OfListener((*identity, *inputs), dict(farms(subject.key, section, key, route, *inputs)))
        self._of_listener = built
        self.farms = {name: farm for each in built.values() for name, farm in each.farms.items()}

    def tell(self, key: RouteKey) -> None:
        """Replace what is said of a route."""
        if (candidate := self.routes.get(key)) is None:
            self.parents.pop(key, None)
        else:
            self.parents[key] = {each.index: self._parent(key, candidate, each) for each in candidate.attachments}

    def _parent(self, key: RouteKey, candidate: Candidate, attachment: Attachment) -> ParentStatus:
        return parent_status(candidate.route, attachment, candidate.backends, self._served(key, attachment))

    def _served(self, key: RouteKey, attachment: Attachment) -> str:
        """Return what becomes of a route that is attached, as a sentence. Who else is attached, it does not say."""
        if not self._serves:
            return "attached, but the Gateway is not accepted, and nothing is served"
        serves: list[str] = []
        waits: list[str] = []
        invalid: list[str] = []
        for listener in attachment.listeners:
            usable = listener in self._usable
            found = serves if self.routes.serving(listener) == key else waits
            (found if usable else invalid).append(listener.name)
        parts = (
            ("serves", serves),
            ("an older route serves", waits),
            ("not valid, and not served:", invalid),
        )
        return "; ".join(f"{what} {_named(found)}" for what, found in parts if found)


def _named(listeners: Sequence[str]) -> str:
    return f"the listener{'s' if len(listeners) > 1 else ''} {some_of(listeners)}"


def _note(found: Sections, strange: str) -> str:
    ranges = f"it has no listener for the annotations {some_of(found.strange_ranges)}" if found.strange_ranges else ""
    return "".join(f"; {each}" for each in (ranges, strange) if each)


def _all(found: Sections) -> Iterator[Section]:
    yield from found.own
    for sections in found.of_sets.values():
        yield from sections
