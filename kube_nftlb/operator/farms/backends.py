"""Join the endpoints of a Service port from all of its EndpointSlices into a farm's backends."""

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.backend import BACKEND_NAME_PATTERN
from kube_nftlb.api.farm import BACKENDS_MAX
from kube_nftlb.operator.cache.slices import Peer, Slice
from kube_nftlb.operator.model import annotation_options
from kube_nftlb.operator.model.annotation_options import Fields
from kube_nftlb.operator.model.rejections import Rejection

_NAME_MAX = 253
_HASH_CHARACTERS = 10
_PROBLEMS_MAX = 5
_VALID_NAME = re.compile(BACKEND_NAME_PATTERN)


Served = tuple[Slice, int]
"""A slice, and the number of a Service port in it."""


class Joined(NamedTuple):
    """The backends of a Service port, sorted by name, and their number without a limit."""

    backends: list[dict[str, Any]]
    total: int


def by_port(slices: Iterable[Slice]) -> dict[tuple[str, str], list[Served]]:
    """Group slices by the Service ports that they serve: name (``""`` without one) and protocol."""
    found: dict[tuple[str, str], list[Served]] = {}
    for each in slices:
        for entry in dict.fromkeys(each.ports):
            found.setdefault((entry.name, entry.protocol), []).append((each, entry.port))
    return found


def join(
    served: Iterable[Served],
    *,
    keeps_port: bool = False,
    options: Callable[[str], Fields] = lambda _: {},
    most: int = BACKENDS_MAX,
) -> Joined:
    """Return up to ``most`` backends of a Service port, ready ones first. All slices are of one family.

    An IP and port in several slices (a pod that moves from one to another) is one backend, with the best entry: ready
    before serving before neither, then one with a pod and node. With ``keeps_port`` backends have no port, so each IP
    is one backend. ``options`` returns the fields that a pod's annotations set, by the pod's name.
    """
    found: dict[tuple[str, int], Peer] = {}
    for each, number in served:
        for peer in each.peers:
            key = (peer.ip, 0 if keeps_port else number)
            if (other := found.get(key)) is None or _preference(peer) > _preference(other):
                found[key] = peer
    # Limited first: there may be very many more.
    chosen = sorted(found.items(), key=_choice)[:most] if len(found) > most else found.items()
    taken: set[str] = set()
    backends = []
    for (ip, number), peer in sorted(chosen):
        name = _name(ip, number, peer.pod, taken)
        taken.add(name)
        backends.append({**_backend(name, ip, number, peer), **(options(peer.pod) if peer.pod else {})})
    backends.sort(key=lambda backend: str(backend["name"]))
    return Joined(backends, len(found))


def distinguish(backends: list[dict[str, Any]]) -> list[Rejection]:
    """Remove duplicate marks from all but the first backend: to the kernel, both would be one."""
    having: dict[int, str] = {}
    problems = []
    for backend in backends:
        mark = backend.get("mark")
        if mark is not None and (first := having.setdefault(mark, backend["name"])) != backend["name"]:
            del backend["mark"]
            sentence = f"backends {first} and {backend['name']} both ask for {mark}; {first} gets it"
            problems.append(annotation_options.problem("mark", sentence))
    return problems[:_PROBLEMS_MAX]


def _choice(entry: tuple[tuple[str, int], Peer]) -> tuple[bool, str, tuple[str, int]]:
    # False sorts before True.
    address, peer = entry
    return not peer.ready, peer.pod, address


def _preference(peer: Peer) -> tuple[bool, bool, bool, str, str]:
    return (peer.ready, peer.serving, not peer.terminating, peer.pod, peer.node)


def _name(ip: str, port: int, pod: str, taken: set[str]) -> str:
    """Return the pod's name, or the address; with a hash of the address if a backend has that name already.

    The API server does not validate the pod's name in a slice. One that a backend cannot have is not used.
    """
    # fullmatch: the $ of the pattern would match before a trailing newline.
    usable = pod and len(pod) <= _NAME_MAX and _VALID_NAME.fullmatch(pod)
    plain = pod if usable else re.sub("[.:]", "-", f"{ip}:{port}" if port else ip).strip("-")
    name, text = plain, f"{ip} {port}"
    while name in taken:
        tail = hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARACTERS]
        name, text = f"{names.shorten(plain, _NAME_MAX - _HASH_CHARACTERS - 1)}-{tail}", f"{text} again"
    return name


def _backend(name: str, ip: str, port: int, peer: Peer) -> dict[str, Any]:
    backend: dict[str, Any] = {
        "name": name,
        "ip": ip,
        **({"port": port} if port else {}),
        "weight": 1,
        "ready": peer.ready,
        "serving": peer.serving,
        "terminating": peer.terminating,
    }
    optional = {"nodeName": peer.node, "forZones": list(peer.zones), "forNodes": list(peer.nodes)}
    return {**backend, **{key: value for key, value in optional.items() if value}}
