"""Specs of farms as plain JSON objects, and their digests.

The cache keeps digests: the specs of thousands of farms with dozens of backends do not fit into memory.
"""

import hashlib
import json
from operator import itemgetter
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kube_nftlb.api.backend import Backend
from kube_nftlb.api.farm import Address, FarmSpec
from kube_nftlb.api.limits import Limits

Spec = dict[str, Any]

_STORED_BYTES_MAX = 1_450_000
"""The limit of a farm as JSON: etcd accepts requests of 1.5 MiB (its --max-request-bytes)."""
_SURELY_FITTING = 400
"""This many backends fit, whatever their names."""


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: _default(field) for name, field in model.model_fields.items()}


def _default(field: FieldInfo) -> Any:
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return list(default) if isinstance(default, tuple) else default


_NESTED = ("addresses", "backends", "limits", "policies", "sessions")
_SPEC = sorted((key, default) for key, default in _defaults(FarmSpec).items() if key not in _NESTED)
_LIMITS = sorted(_defaults(Limits).items())
_ADDRESS = sorted(_defaults(Address).items())
_BACKEND_DEFAULTS = _defaults(Backend)
_BACKEND_VALUES = itemgetter(*sorted(_BACKEND_DEFAULTS))


def complete(fields: Spec) -> Spec:
    """Return a spec with these fields, and all defaults.

    So the operator owns every field, and reverts edits of any.
    """
    limits = {**_written(_LIMITS), **fields.get("limits", {})}
    return {**_written(_SPEC), "sessions": [], "policies": [], **fields, "limits": limits}


def fitting_backends(spec: Spec) -> int:
    """Return the number of a spec's backends that fit into etcd, together with metadata.managedFields."""
    backends = spec["backends"]
    if len(backends) <= _SURELY_FITTING:
        return len(backends)
    room = max(0, _STORED_BYTES_MAX - 3 * _bytes({**spec, "backends": []}))
    written = _written(list(_BACKEND_DEFAULTS.items()))
    bytes_ = sum(_bytes({**written, **backend}) + _managed_bytes(backend) for backend in backends)
    return len(backends) if bytes_ <= room else len(backends) * room // bytes_


def _managed_bytes(backend: Spec) -> int:
    # For each, metadata.managedFields has "k:{\"name\":\"...\"}":{".":{},"f:ip":{},...} (KEP-555).
    return len(backend["name"]) + 30 + sum(len(key) + 8 for key in backend)


def _bytes(value: Spec) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def merge_patch(spec: Spec) -> Spec:
    """Return the spec as a merge patch that removes all other fields."""
    limits = {**dict.fromkeys(key for key, _ in _LIMITS), **spec["limits"]}
    return {**dict.fromkeys(key for key, _ in _SPEC), **spec, "limits": limits}


def _written(defaults: list[tuple[str, Any]]) -> Spec:
    return {key: default for key, default in defaults if default is not None}


def _unordered(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, list | tuple) else value


def digest(spec: Spec) -> bytes:
    """Return a digest, equal for equal specs: in any order, with or without defaults.

    Unknown fields are ignored: they are from a newer version.
    """
    parts = (
        [spec.get(key, default) for key, default in _SPEC],
        [(spec.get("limits") or {}).get(key, default) for key, default in _LIMITS],
        sorted(
            [_unordered(address.get(key, default)) for key, default in _ADDRESS]
            for address in spec.get("addresses") or ()
        ),
        sorted(str(policy) for policy in spec.get("policies") or ()),
        sorted((str(session.get("client")), str(session.get("backend"))) for session in spec.get("sessions") or ()),
        [
            _BACKEND_VALUES({**_BACKEND_DEFAULTS, **backend})
            for backend in sorted(spec.get("backends") or (), key=itemgetter("name"))
        ],
    )
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def count_backends(spec: Spec) -> tuple[int, int]:
    """Return the numbers of ready and of all backends."""
    backends = spec.get("backends") or ()
    return sum(1 for backend in backends if backend.get("ready", True)), len(backends)
