"""Resolve the backends that a farm refers to: join the endpoints of a Service port from all of its EndpointSlices.

The same function serves agents, which program them, the operator, which shows them, and ``kube-nftlb render``. Pure: no
I/O.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from operator import attrgetter
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.api.backend import BACKEND_NAME_PATTERN, Backend, BackendOptions
from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import ENDPOINTS_MAX, BackendsFrom, FarmSpec
from kube_nftlb.endpointslices.slices import ServiceKey, Slice, SliceEndpoint, SlicePort

_NAME_MAX = 253
_HASH_CHARACTERS = 10
_DEFAULTS = BackendOptions()
_BLANK = Backend.model_construct(name="", ip="")
_FIELDS_SET = set(Backend.model_fields)
_OPTIONS = tuple(BackendOptions.model_fields)
_TO_DASHES = str.maketrans(".:", "--")
_VALID_NAME = re.compile(BACKEND_NAME_PATTERN)

Address = tuple[str, int]
"""The IP and port of an endpoint; port 0 if connections keep their destination port."""


class ResolvedEndpoint(NamedTuple):
    """An endpoint as a backend of a farm: with a unique name, and the options that the farm gives its pod."""

    name: str
    ip: str
    port: int
    """0 if connections keep their destination port."""
    endpoint: SliceEndpoint
    options: BackendOptions
    group: int = 0
    """The position of the reference that it comes from."""

    @property
    def backend(self) -> Backend:
        """The backend, as if it were written by hand."""
        fields: dict[str, object] = {
            **_BLANK.__dict__,
            "name": self.name,
            "ip": self.ip,
            "port": self.port or None,
            "ready": self.endpoint.ready,
            "serving": self.endpoint.serving,
            "terminating": self.endpoint.terminating,
            "node_name": self.endpoint.node or None,
            "for_zones": self.endpoint.zones,
            "for_nodes": self.endpoint.nodes,
        }
        if self.options is not _DEFAULTS:
            fields |= {name: getattr(self.options, name) for name in _OPTIONS}
        # As unpickled. Validated already, by parse_slice, _name and the model of overrides: a fiftieth of the time.
        backend = Backend.__new__(Backend)
        backend.__setstate__(
            {
                "__dict__": fields,
                "__pydantic_fields_set__": _FIELDS_SET,
                "__pydantic_extra__": None,
                "__pydantic_private__": {"_group": self.group},
            }
        )
        return backend


class Resolved(NamedTuple):
    """The endpoints of references, sorted by these and then by name, and their number without a limit."""

    endpoints: tuple[ResolvedEndpoint, ...]
    total: int


def services(references: Iterable[BackendsFrom], namespace: str) -> tuple[ServiceKey, ...]:
    """Return the Services that the references of a farm in a namespace name, each once."""
    return tuple(dict.fromkeys(_service(each, namespace) for each in references if each.service))


def _service(reference: BackendsFrom, namespace: str) -> ServiceKey:
    return ServiceKey(reference.namespace or namespace, reference.service)


def resolve(
    references: Sequence[BackendsFrom],
    namespace: str,
    family: Family,
    protocol: str,
    slices: Iterable[Slice],
    most: int,
) -> Resolved:
    """Return up to ``most`` endpoints, ready ones first. ``slices`` are those of all ``services``, in any order.

    ``namespace`` is that of the farm, in which references without a namespace are.

    An IP and port in several slices of a Service (a pod that moves from one to another) is one endpoint, with the best
    entry: ready before serving before neither, then one with a pod and node. Where there are too many, no reference
    loses endpoints while others have more.
    """
    slices = list(slices)
    found = [_found(each, _service(each, namespace), family, protocol, slices) for each in references]
    used: set[str] = set()
    endpoints: list[ResolvedEndpoint] = []
    for group, (reference, here, allowed) in enumerate(zip(references, found, _fitting(found, most), strict=True)):
        chosen = sorted(here.items(), key=_choice)[:allowed] if len(here) > allowed else here.items()
        overrides: dict[str, BackendOptions] = {override.pod: override for override in reference.overrides}
        of_group = []
        for (ip, number), endpoint in sorted(chosen):
            name = _name(ip, number, endpoint.pod, used)
            used.add(name)
            options = overrides.get(endpoint.pod, _DEFAULTS)
            of_group.append(ResolvedEndpoint(name, ip, number, endpoint, options, group))
        endpoints += sorted(of_group, key=attrgetter("name"))
    marked = any(reference.overrides for reference in references)
    return Resolved(tuple(_distinct_marks(endpoints) if marked else endpoints), sum(map(len, found)))


def _fitting(found: Sequence[Sized], most: int) -> list[int]:
    """Return how many of each may be used, ``most`` of all."""
    sizes = [len(each) for each in found]
    allowed = [0] * len(sizes)
    for done, (size, group) in enumerate(sorted((size, group) for group, size in enumerate(sizes))):
        allowed[group] = min(size, most // (len(sizes) - done))
        most -= allowed[group]
    return allowed


def _found(
    reference: BackendsFrom, service: ServiceKey, family: Family, protocol: str, slices: Iterable[Slice]
) -> dict[Address, SliceEndpoint]:
    found: dict[Address, SliceEndpoint] = {}
    own = [each for each in slices if (each.namespace, each.service) == service]
    for each in _opened(own, frozenset(reference.gated_ips)):
        if each.family != family:
            continue
        for number in _numbers(each.ports, reference, protocol):
            for endpoint in each.endpoints:
                address = (endpoint.ip, number)
                if (other := found.get(address)) is None or _preference(endpoint) > _preference(other):
                    found[address] = endpoint
    return found


def resolved_spec(spec: FarmSpec, namespace: str, slices: Iterable[Slice]) -> FarmSpec:
    """Return a spec with the backends that it refers to; one with backends written by hand is returned as it is.

    ``namespace`` is that of the farm.
    """
    if not spec.backends_from:
        return spec
    most = ENDPOINTS_MAX[spec.engine]
    resolved = resolve(spec.backends_from, namespace, spec.family, spec.protocol, slices, most)
    return spec.model_copy(update={"backends": tuple(each.backend for each in resolved.endpoints)})


def sized_spec(spec: FarmSpec, namespace: str, slices: Iterable[Slice]) -> FarmSpec:
    """Return a spec like ``resolved_spec``, in a tenth of the time: with blank backends, where it has no overrides.

    There are as many of them, which is all that their elements are counted by.
    """
    if not spec.backends_from or any(each.overrides for each in spec.backends_from):
        return resolved_spec(spec, namespace, slices)
    slices = list(slices)
    found = sum(
        len(_found(each, _service(each, namespace), spec.family, spec.protocol, slices)) for each in spec.backends_from
    )
    return spec.model_copy(update={"backends": (_BLANK,) * min(found, ENDPOINTS_MAX[spec.engine])})


def _opened(slices: Iterable[Slice], gated: frozenset[str]) -> Iterable[Slice]:
    """Return slices in which the endpoints of pods that wait for nothing but to be programmed are ready.

    They have no topology hints yet, without which those of all others would not count: they get the hints of all.
    """
    if not gated:
        return slices
    slices = list(slices)
    ready = [endpoint for each in slices for endpoint in each.endpoints if endpoint.ready]
    zones = tuple(sorted({zone for endpoint in ready for zone in endpoint.zones}))
    nodes = tuple(sorted({node for endpoint in ready for node in endpoint.nodes}))

    def opened(endpoint: SliceEndpoint) -> SliceEndpoint:
        if endpoint.ip not in gated or endpoint.ready or endpoint.terminating:
            return endpoint
        return endpoint._replace(ready=True, serving=True, zones=zones, nodes=nodes)

    return [each._replace(endpoints=tuple(map(opened, each.endpoints))) for each in slices]


def _numbers(ports: Iterable[SlicePort], reference: BackendsFrom, protocol: str) -> set[int]:
    """Return the port numbers in a slice that a reference names; 0 if connections keep their destination port."""
    return {
        0 if reference.keep_port else port.port
        for port in ports
        if reference.port in (port.name, port.port) and protocol in ("All", port.protocol)
    }


def _distinct_marks(endpoints: list[ResolvedEndpoint]) -> Iterator[ResolvedEndpoint]:
    """Yield the endpoints, each mark only once: a pod has several while its port changes."""
    marks: set[int] = set()
    for each in endpoints:
        mark = each.options.mark
        if mark is not None and mark in marks:
            yield each._replace(options=each.options.model_copy(update={"mark": None}))
            continue
        if mark is not None:
            marks.add(mark)
        yield each


def _choice(entry: tuple[Address, SliceEndpoint]) -> tuple[bool, str, Address]:
    # False sorts before True.
    address, endpoint = entry
    return not endpoint.ready, endpoint.pod, address


def _preference(endpoint: SliceEndpoint) -> tuple[bool, bool, bool, str, str]:
    return (endpoint.ready, endpoint.serving, not endpoint.terminating, endpoint.pod, endpoint.node)


def _name(ip: str, port: int, pod: str, used: set[str]) -> str:
    """Return the pod's name, or the address; with a hash of the address if a backend has that name already.

    The API server does not validate the pod's name in a slice. One that a backend cannot have is not used.
    """
    # fullmatch: the $ of the pattern would match before a trailing newline.
    usable = pod and len(pod) <= _NAME_MAX and _VALID_NAME.fullmatch(pod)
    plain = pod if usable else (f"{ip}:{port}" if port else ip).translate(_TO_DASHES).strip("-")
    name, text = plain, f"{ip} {port}"
    while name in used:
        tail = hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]
        name, text = f"{names.shorten(plain, _NAME_MAX - _HASH_CHARACTERS - 1)}-{tail}", f"{text} again"
    return name
