"""Specs of farms as plain JSON objects, and their digests.

The cache keeps digests: the specs of thousands of farms with dozens of backends do not fit into memory.
"""

import hashlib
from operator import itemgetter
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kube_nftlb.api.backend import Backend
from kube_nftlb.api.farm import Address, BackendsFrom, FarmSpec, Override
from kube_nftlb.api.limits import Limits

Spec = dict[str, Any]


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: _default(field) for name, field in model.model_fields.items()}


def _default(field: FieldInfo) -> Any:
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return list(default) if isinstance(default, tuple) else default


_NESTED = ("addresses", "backends", "backendsFrom", "limits", "policies", "sessions")
_SPEC = sorted((key, default) for key, default in _defaults(FarmSpec).items() if key not in _NESTED)
_LIMITS = sorted(_defaults(Limits).items())
_ADDRESS = sorted(_defaults(Address).items())
_BACKEND = sorted(_defaults(Backend).items())
_OVERRIDE = sorted(_defaults(Override).items())
_REFERENCE = sorted((key, default) for key, default in _defaults(BackendsFrom).items() if key != "overrides")


def complete(fields: Spec) -> Spec:
    """Return a spec with these fields, and all defaults.

    So the operator owns every field, and reverts edits of any.
    """
    limits = {**_written(_LIMITS), **fields.get("limits", {})}
    return {**_written(_SPEC), "sessions": [], "policies": [], "backends": [], **fields, "limits": limits}


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
        _values(_BACKEND, spec.get("backends"), "name"),
        [
            ([each.get(key, default) for key, default in _REFERENCE], _values(_OVERRIDE, each.get("overrides"), "pod"))
            for each in spec.get("backendsFrom") or ()
        ],
    )
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def digest_as_decided(spec: Spec) -> bytes:
    """Return the digest of a spec with the groups as they are decided, without what follows from their Pods."""
    groups = [{**each, "overrides": [], "gatedIPs": []} for each in spec.get("backendsFrom") or ()]
    return digest({**spec, "backendsFrom": groups})


def _values(defaults: list[tuple[str, Any]], entries: Any, name: str) -> list[list[Any]]:
    return [
        [entry.get(key, default) for key, default in defaults] for entry in sorted(entries or (), key=itemgetter(name))
    ]


def count_backends(spec: Spec) -> tuple[int, int]:
    """Return the number of backends that are ready and in the state up, and that of all."""
    backends = spec.get("backends") or ()
    taking = [each for each in backends if each.get("ready", True) and each.get("state", "up") == "up"]
    return len(taking), len(backends)
