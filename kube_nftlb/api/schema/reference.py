"""Every field of our objects as a row, for ``kube-nftlb explain`` and docs/reference.md. No I/O.

The rows come from the models, their markers and the CRDs' schemas, so they cannot contradict them.
"""

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, get_args

from pydantic import BaseModel

from kube_nftlb import names
from kube_nftlb.api.address_pool import AddressPoolSpec, AddressPoolStatus
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import annotation_key, nftlb_field
from kube_nftlb.api.bgp_peer import BGPPeerSpec
from kube_nftlb.api.farm import FarmSpec, FarmStatus, Override
from kube_nftlb.api.node import NodeStatus
from kube_nftlb.api.policy import PolicySpec, PolicyStatus
from kube_nftlb.api.schema.structural import structural

Object = Literal["farm", "policy", "node", "pool", "peer"]

_PARTS: Final[tuple[tuple[Object, str, type[BaseModel], str], ...]] = (
    ("farm", "spec", FarmSpec, "The desired state of an NftlbFarm."),
    ("farm", "status", FarmStatus, "The observed state of an NftlbFarm, written by the operator."),
    ("policy", "spec", PolicySpec, "The desired state of an NftlbPolicy."),
    ("policy", "status", PolicyStatus, "The observed state of an NftlbPolicy, written by the operator."),
    ("node", "status", NodeStatus, "The observed state of a node, written by its agent."),
    ("pool", "spec", AddressPoolSpec, "The desired state of an NftlbAddressPool."),
    ("pool", "status", AddressPoolStatus, "The observed state of an NftlbAddressPool, written by the operator."),
    ("peer", "spec", BGPPeerSpec, "The desired state of an NftlbBGPPeer."),
)

_ALIASES: Final[dict[str, Object]] = {
    **dict.fromkeys(("nftlbfarm", "nftlbfarms", "farm", "farms"), "farm"),
    **dict.fromkeys(("nftlbpolicy", "nftlbpolicies", "policy", "farmpolicy"), "policy"),
    **dict.fromkeys(("nftlbnode", "nftlbnodes", "node", "farmnode"), "node"),
    **dict.fromkeys(("nftlbaddresspool", "nftlbaddresspools", "addresspool", "pool", "pools", "farmpool"), "pool"),
    **dict.fromkeys(("nftlbbgppeer", "nftlbbgppeers", "bgppeer", "peer", "peers", "farmpeer"), "peer"),
}
"""The names of our kinds in ``kubectl``, and likely guesses. ``policies`` is a field of a farm."""

_ENUM_SHOWN_MAX = 16
_PATTERN_SHOWN_MAX = 80
"""Longer ones are unreadable; the description has to do."""
_SUGGESTIONS_MAX = 5


class Row(NamedTuple):
    """One field."""

    object: Object
    path: str
    """Within the object, with dots: ``spec.limits.new``; a list stands for its entries."""
    type: str
    values: str
    """The allowed values; empty if the type says it all."""
    default: str
    """As in YAML; empty if there is none."""
    required: bool
    nftlb: str
    """Its name in nftlb; empty if nftlb has no such field."""
    annotation: str
    """The full key of the annotation that sets it; empty if there is none."""
    annotated: Literal["Service", "Pod", ""]
    """The kind of object with that annotation."""
    meaning: str
    rules: tuple[str, ...]
    """Messages of the validation rules."""

    @property
    def full_path(self) -> str:
        """The path with the object: ``farm.spec.limits.new``."""
        return f"{self.object}.{self.path}"

    @property
    def short_annotation(self) -> str:
        """The annotation's key without the prefix."""
        return self.annotation.removeprefix(names.ANNOTATION_PREFIX)


def rows() -> list[Row]:
    """Return all fields in the order of the models, parents before their children."""
    found: list[Row] = []
    for object_, part, model, meaning in _PARTS:
        schema = structural(model)
        found.append(Row(object_, part, "object", "", "", part == "spec", "", "", "", meaning, _rules(schema)))
        found.extend(_fields(object_, part, model, schema))
    return found


def children(row: Row, among: Iterable[Row]) -> list[Row]:
    """Return the direct children of a field."""
    return [each for each in among if each.full_path.rpartition(".")[0] == row.full_path]


def find(query: str, among: Iterable[Row]) -> list[Row]:
    """Return the rows that match a path, the end of one, an annotation or a name in nftlb.

    Case is ignored, as is ``[]`` after the name of a list. The name of a kind matches its spec and status.
    """
    text = query.strip().replace("[]", "").strip(".").lower()
    first, _, rest = text.partition(".")
    if first in _ALIASES:
        text = f"{_ALIASES[first]}.{rest}".strip(".")
    among = list(among)
    by_path = [row for row in among if f".{row.full_path}".lower().endswith(f".{text}")]
    parts = [row for row in among if text == row.object and "." not in row.path]
    by_name = [row for row in among if text in (row.nftlb, row.annotation.lower(), row.short_annotation.lower())]
    return list(dict.fromkeys([*parts, *by_path, *(by_name if text else [])]))


def suggestions(query: str, among: Iterable[Row], more: Iterable[str] = ()) -> list[str]:
    """Return names, of rows or of ``more``, similar to one that was not found, the most similar first."""
    known: dict[str, None] = dict.fromkeys(more)
    for row in among:
        last = row.path.rpartition(".")[2]
        known.update(dict.fromkeys(text for text in (last, row.path, row.nftlb, row.short_annotation) if text))
    folded = {text.lower(): text for text in known}
    wanted = query.strip().removeprefix(names.ANNOTATION_PREFIX).lower()
    close = difflib.get_close_matches(wanted, folded, n=_SUGGESTIONS_MAX, cutoff=0.7)
    # In a path with a mistake, the last word matters most.
    close += difflib.get_close_matches(wanted.rpartition(".")[2], folded, n=_SUGGESTIONS_MAX, cutoff=0.7)
    return [folded[text] for text in dict.fromkeys(close)][:_SUGGESTIONS_MAX]


def _fields(object_: Object, path: str, model: type[BaseModel], schema: dict[str, Any]) -> Iterator[Row]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        node = schema["properties"][key]
        nested = _nested(field.annotation)
        nftlb = nftlb_field(model, name)
        # Those of a Pod are written into overrides, not into backends.
        annotation = None if model is Backend else annotation_key(model, name)
        yield Row(
            object_,
            f"{path}.{key}",
            _type(node),
            _values(node),
            "" if nested is not None else _default(node),
            key in schema.get("required", ()),
            nftlb.key if nftlb is not None else "",
            f"{names.ANNOTATION_PREFIX}{annotation}" if annotation else "",
            "" if not annotation else "Pod" if model is Override else "Service",
            node.get("description", ""),
            (*_rules(node), *_rules(node.get("items", {}))),
        )
        if nested is not None:
            yield from _fields(object_, f"{path}.{key}", nested, node.get("items", node))


def _nested(annotation: Any) -> type[BaseModel] | None:
    """Return the model of a field or its list entries, or None for plain values."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _nested(part)) is not None), None)


def _type(node: dict[str, Any]) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if node["type"] == "array":
        return f"list of {_type(node['items'])}s"
    return str(node["type"])


def _values(node: dict[str, Any]) -> str:
    parts = []
    if "enum" in node:
        parts.append(_choice([str(value) for value in node["enum"]]))
    if "minimum" in node and "maximum" in node:
        parts.append(f"{node['minimum']} to {node['maximum']}")
    elif "minimum" in node:
        parts.append(f"{node['minimum']} or more")
    least, most = node.get("minLength", 0), node.get("maxLength")
    if most is not None:
        parts.append(f"{least} to {most} characters" if least else f"at most {most} characters")
    if len(node.get("pattern", "")) in range(1, _PATTERN_SHOWN_MAX):
        parts.append(f"matching `{node['pattern']}`")
    least, most = node.get("minItems", 0), node.get("maxItems")
    if most is not None:
        parts.append(f"{least} to {most} entries" if least else f"at most {most} entries")
    if node.get("type") == "array" and (of_each := _values(node["items"])):
        parts.append(f"each {of_each}")
    return ", ".join(parts)


def _choice(values: list[str]) -> str:
    if len(values) <= _ENUM_SHOWN_MAX:
        return "one of " + ", ".join(f'"{value}"' if " " in value or not value else value for value in values)
    combined = {word for value in values if " " in value for word in value.split()}
    words = [value for value in values if value in combined]
    alone = [value for value in values if " " not in value and value not in combined]
    return ", ".join([*alone, f"or words from {', '.join(words)}, in this order, separated by spaces"])


def _default(node: dict[str, Any]) -> str:
    default = node.get("default")
    if default is None:
        return ""
    if isinstance(default, bool):
        return "true" if default else "false"
    return f'"{default}"' if default == "" else "[]" if default == [] else str(default)


def _rules(node: dict[str, Any]) -> tuple[str, ...]:
    return tuple(rule["message"] for rule in node.get("x-kubernetes-validations", ()))
