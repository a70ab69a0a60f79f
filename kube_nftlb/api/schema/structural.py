"""Structural schemas from pydantic models.

pydantic generates JSON schema; a CRD takes the structural subset of OpenAPI v3 (Kubernetes documentation, "Specifying a
structural schema"): no references, no ``const``, nullable instead of a union with null.
"""

from typing import Any

from pydantic import BaseModel

from kube_nftlb.kube.resources import JsonObject

_DROPPED = ("title",)


def structural(model: type[BaseModel]) -> JsonObject:
    """Return the schema of a model as a CRD takes it."""
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs", {})
    result: JsonObject = _simplify(schema, definitions)
    return result


def _simplify(node: Any, definitions: JsonObject) -> Any:
    if isinstance(node, list):
        return [_simplify(entry, definitions) for entry in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        return _simplify({**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions)
    if "anyOf" in node:
        (only,) = (option for option in node["anyOf"] if option != {"type": "null"})
        return _simplify({**only, **{key: value for key, value in node.items() if key != "anyOf"}}, definitions)
    simple = {key: _simplify_entry(key, value, definitions) for key, value in node.items() if key not in _DROPPED}
    # A default of null only means that the field may be absent; additionalProperties false is implied.
    if simple.get("default", ...) is None:
        del simple["default"]
    if simple.get("additionalProperties") is False:
        del simple["additionalProperties"]
    return simple


def _simplify_entry(key: str, value: Any, definitions: JsonObject) -> Any:
    if key == "properties":
        return {name: _simplify(schema, definitions) for name, schema in value.items()}
    if key == "enum":
        # A list that occurs twice would be written as a reference in YAML.
        return list(value)
    if key == "default":
        return _without_null(value)
    return _simplify(value, definitions)


def _without_null(default: Any) -> Any:
    if isinstance(default, list):
        return list(default)
    if not isinstance(default, dict):
        return default
    return {name: _without_null(each) for name, each in default.items() if each is not None}
