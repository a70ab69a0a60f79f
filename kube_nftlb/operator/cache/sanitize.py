"""Replace parts of objects that do not match their definition. No I/O.

The API server admits such objects if its definition is older, or was edited.
"""

from typing import Any

Json = dict[str, Any]

_VERSION_MAX = 20
"""Digits of a resourceVersion; Python does not parse numbers of thousands of digits."""


def sanitized_spec(spec: Any) -> Json:
    """Return the spec of a farm, or an empty one if it is malformed."""
    if not isinstance(spec, dict) or not isinstance(spec.get("limits") or {}, dict):
        return {}
    addresses, backends, sessions = (spec.get(key) or [] for key in ("addresses", "backends", "sessions"))
    references = spec.get("backendsFrom") or []
    listed = isinstance(references, list) and all(isinstance(each, dict) for each in references)
    overrides = [each.get("overrides") or [] for each in references] if listed else []
    fine = (
        listed
        and all(isinstance(entries, list) for entries in (addresses, backends, sessions, *overrides))
        and all(isinstance(entry, dict) for entries in (addresses, backends, sessions, *overrides) for entry in entries)
        and all(isinstance(backend.get("name"), str) for backend in backends)
        and all(isinstance(override.get("pod"), str) for entries in overrides for override in entries)
        and all(_is_text_list(part.get("policies") or []) for part in (spec, *addresses))
    )
    return spec if fine else {}


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


def sanitized_status(status: Any) -> Json:
    """Return a node's status, or that of a node that is not ready if it is malformed."""
    if _is_status(status := status or {}):
        checked: Json = status
        return checked
    return {"conditions": [{"type": "Ready", "status": "False"}]}


def _is_status(status: Any) -> bool:
    if not isinstance(status, dict):
        return False
    lists = [status.get(key) or [] for key in ("failedFarms", "warnings", "conditions")]
    if not all(isinstance(entries, list) for entries in lists):
        return False
    failed = [*lists[0], *lists[1]]
    return (
        all(isinstance(entry, dict) for entries in lists for entry in entries)
        and _is_text_list(status.get("failedNamespaces") or [])
        and all(isinstance(entry.get(key), str) for entry in failed for key in ("namespace", "name"))
        and all(isinstance(entry.get("generation", 0), int) for entry in failed)
        and all(isinstance(entry.get(key) or "", str) for entry in failed for key in ("reason", "message"))
        and all(len(str(status[key])) <= _VERSION_MAX for key in status if key.lower().endswith("watermark"))
    )
