"""The plan of a drain: the objects to change, and the farms without another backend. Pure: no I/O.

A backend of a Service drains by an annotation of its Pod: it lasts as long as the Pod, and needs no right on farms. A
farm written by hand says it itself, in a field that the command owns, so that ``undrain`` gives it back.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import ENDPOINTS_MAX, BackendsFrom, Farm
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.endpointslices.backends import resolve
from kube_nftlb.kube.resources import JsonObject

ANNOTATION = f"{names.ANNOTATION_PREFIX}state"
DRAIN = "drain"
_MANAGER = "kubectl-nftlb-drain"


class PodRef(NamedTuple):
    """A Pod."""

    namespace: str
    name: str


Drained = PodRef | tuple[FarmKey, str]
"""What says that a backend drains: its Pod, or its entry in a farm written by hand."""


class FarmEdit(NamedTuple):
    """The entry of a farm written by hand that says that a backend drains."""

    farm: FarmKey
    backend: str
    entry: JsonObject
    """The body of a server-side apply to drain it; without the entry it no longer drains."""
    node: str = ""
    """The node that drains, and the backend with it."""

    @property
    def manager(self) -> str:
        """The field manager, one for each backend: an apply removes what the same manager applied before."""
        return f"{_of_node(self.node) if self.node else _MANAGER}-{names.digest(*self.farm, self.backend)}"


def _of_node(node: str) -> str:
    """Return what begins the field managers of a node that drains: the backend may be on another one later."""
    return f"{_MANAGER}-node-{names.digest(node)}"


class Applied(NamedTuple):
    """What a drain has applied to a farm written by hand."""

    farm: FarmKey
    backend: str
    manager: str


class Member(NamedTuple):
    """A backend in a farm."""

    farm: FarmKey
    backend: Backend
    pod: str
    """The Pod that the EndpointSlice names; empty if there is none, or the backend is written by hand."""
    of_service: bool
    """True if the operator made the farm."""
    group: BackendsFrom | None
    """The reference of the farm that it comes from; None if it is written by hand."""

    @property
    def namespace(self) -> str:
        """The namespace of its Pod."""
        return (self.group.namespace if self.group is not None else "") or self.farm.namespace

    @property
    def annotated_pod(self) -> PodRef | None:
        """The Pod whose annotation says that it drains; None if the farm does, because it is written by hand."""
        return PodRef(self.namespace, self.pod) if self.of_service else None

    @property
    def drained(self) -> Drained:
        """What says that it drains."""
        return self.annotated_pod or (self.farm, self.entry)

    @property
    def entry(self) -> str:
        """The name of its entry in the farm: that of an override, or of the backend."""
        return self.pod if self.group is not None else self.backend.name


class Plan(NamedTuple):
    """The changes to write, and the farms that they leave without a backend."""

    pods: tuple[PodRef, ...]
    edits: tuple[FarmEdit, ...]
    members: tuple[Member, ...]
    """The backends that it is about."""
    emptied: tuple[FarmKey, ...]
    """The farms that would have no other backend for new connections."""

    def without(self, out: Container[Drained]) -> "Plan":
        """Return the plan without backends that get no connections as they are, so that they empty no farm."""
        return self._replace(
            pods=tuple(pod for pod in self.pods if pod not in out),
            edits=tuple(edit for edit in self.edits if (edit.farm, edit.backend) not in out),
            members=tuple(each for each in self.members if each.drained not in out),
        )

    @property
    def addresses(self) -> frozenset[tuple[str, int]]:
        """Their addresses; port 0 for all ports."""
        return frozenset((each.backend.ip, each.backend.port or 0) for each in self.members)


def members(view: ClusterView) -> list[Member]:
    """Return all backends of all farms that agents can read; of others no node has programmed the newest state."""
    return [each for farm in view.valid_farms() for each in _members(farm, view)]


def _members(farm: Farm, view: ClusterView) -> Iterator[Member]:
    spec, metadata = farm.spec, farm.metadata
    key = FarmKey(metadata.namespace, metadata.name)
    if not spec.backends_from:
        yield from (Member(key, each, "", of_service=False, group=None) for each in spec.backends)
        return
    of_service = metadata.labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY_OPERATOR
    slices = view.slices_for(farm)
    most = ENDPOINTS_MAX[spec.engine]
    resolved = resolve(spec.backends_from, key.namespace, spec.family, spec.protocol, slices, most)
    for each in resolved.endpoints:
        group = spec.backends_from[each.group]
        yield Member(key, each.backend, each.endpoint.pod, of_service=of_service, group=group)


def of_backend(name: str, namespace: str, everything: Sequence[Member]) -> list[Member]:
    """Return the backends of a namespace with a name, which is the Pod's, or an address."""
    return [
        each
        for each in everything
        if each.namespace == namespace and name and name in (each.backend.name, each.backend.ip, each.pod)
    ]


def of_node(node: str, everything: Sequence[Member]) -> list[Member]:
    """Return all backends on a node."""
    return [each for each in everything if each.backend.node_name == node]


def plan(chosen: Iterable[Member], everything: Iterable[Member], node: str = "") -> tuple[Plan, list[str]]:
    """Return what to write for the chosen backends, and a sentence for each that cannot be drained.

    ``node`` is the one on which they were chosen, if they were by their node.
    """
    pods: dict[PodRef, None] = {}
    entries: dict[tuple[FarmKey, str], list[Member]] = {}
    done, problems = [], []
    for each in chosen:
        farm = each.farm
        if each.group is not None and not each.pod:
            problem = f"{each.backend.name} of farm {'/'.join(farm)} has no Pod that could say that it drains"
            problems.append(f"{problem}: remove its address from the EndpointSlice instead")
            continue
        if each.annotated_pod is not None:
            pods[each.annotated_pod] = None
        else:
            entries.setdefault((farm, each.entry), []).append(each)
        done.append(each)
    edits = tuple(FarmEdit(farm, name, _entry(name, some), node) for (farm, name), some in entries.items())
    return Plan(tuple(pods), edits, tuple(done), _emptied(done, everything)), problems


def applied(farms: Iterable[JsonObject], edits: Iterable[FarmEdit], node: str, pod: PodRef | None) -> list[Applied]:
    """Return what drains have applied to farms: to the backends of ``edits``, by a drain of a node, or for a Pod.

    Without a node or Pod that is meant, ``node`` is empty and ``pod`` None.
    """
    found, chosen = [], {(edit.farm, edit.backend) for edit in edits}
    for raw in farms:
        key, metadata = FarmKey.of(raw), raw["metadata"]
        managers = {str(each.get("manager", "")) for each in metadata.get("managedFields") or ()}
        for manager in sorted(each for each in managers if each.startswith(f"{_MANAGER}-")):
            for namespace, name in sorted(_entries(raw)):
                meant = (key, name) in chosen or (namespace, name) == pod
                meant |= bool(node) and manager.startswith(f"{_of_node(node)}-")
                if meant and manager.endswith(f"-{names.digest(*key, name)}"):
                    found.append(Applied(key, name, manager))
    return found


def _entries(raw: JsonObject) -> set[tuple[str, str]]:
    """Return the names of the entries of a farm that may have a state, with the namespaces of their Pods."""
    own, spec = raw["metadata"]["namespace"], raw.get("spec") or {}
    groups = [(each.get("namespace") or own, each.get("overrides") or ()) for each in spec.get("backendsFrom") or ()]
    overrides = {(where, str(each.get("pod"))) for where, some in groups for each in some}
    return overrides | {(own, str(each.get("name"))) for each in spec.get("backends") or ()}


def _entry(name: str, members: Iterable[Member]) -> JsonObject:
    """Return the entries of a backend in its farm: a pod may be in several of its groups."""
    groups = {
        (each.group.namespace, each.group.service, each.group.port): None for each in members if each.group is not None
    }
    overrides = [{"pod": name, "state": DRAIN}]
    if groups:
        # An entry is found by its keys; the API server fills in those that are left out.
        return {
            "backendsFrom": [
                {**({"namespace": where} if where else {}), "service": of, "port": port, "overrides": overrides}
                for where, of, port in groups
            ]
        }
    return {"backends": [{"name": name, "state": DRAIN}]}


def _emptied(done: Iterable[Member], everything: Iterable[Member]) -> tuple[FarmKey, ...]:
    """Return the farms that lose their last backend for new connections."""
    going = {(each.farm, each.backend.name) for each in done}

    def serves(each: Member) -> bool:
        return each.backend.state == "up" and each.backend.ready

    concerned = {each.farm for each in done if serves(each)}
    remaining = {each.farm for each in everything if serves(each) and (each.farm, each.backend.name) not in going}
    return tuple(sorted(concerned - remaining))


def remaining(of: Plan, everything: Iterable[Member]) -> list[Member]:
    """Return the backends of a plan that are still there, as they are now."""
    planned = {(each.farm, each.entry, each.backend.ip) for each in of.members}
    return [each for each in everything if (each.farm, each.entry, each.backend.ip) in planned]
