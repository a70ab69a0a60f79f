"""Fields of an object that its model does not have, as when the CustomResourceDefinitions are newer. No I/O."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel


def unknown_fields(model: type[BaseModel], raw: object, path: str) -> Iterator[str]:
    """Yield the paths, such as ``spec.addresses[0].colour``, of fields in ``raw`` that a model does not have."""
    if not isinstance(raw, Mapping):
        return
    known, inner = _fields(model)
    yield from (f"{path}.{key}" for key in raw if key not in known)
    for key, of in inner.items():
        value = raw.get(key)
        if isinstance(value, list):
            for number, each in enumerate(value):
                yield from unknown_fields(of, each, f"{path}.{key}[{number}]")
        elif value is not None:
            yield from unknown_fields(of, value, f"{path}.{key}")


@functools.cache
def _fields(model: type[BaseModel]) -> tuple[frozenset[str], dict[str, type[BaseModel]]]:
    """Return the names of a model's fields, and the models of those whose value or entries have one."""
    models = {field.alias or name: _model(field.annotation) for name, field in model.model_fields.items()}
    return frozenset(models), {name: of for name, of in models.items() if of is not None}


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model(each)) is not None), None)
