"""The table of fields in docs/gateway.md says what the models read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from kube_nftlb.api.gateway.gateway import Gateway, GatewayClass, ListenerSet
from kube_nftlb.api.gateway.route import ReferenceGrant, Route
from tests.docs import fields

PAGE = Path(__file__).parents[3] / "docs/gateway.md"
MODELS: dict[str, type[BaseModel]] = {
    "GatewayClass": GatewayClass,
    "Gateway": Gateway,
    "ListenerSet": ListenerSet,
    "TCPRoute": Route,
    "UDPRoute": Route,
    "ReferenceGrant": ReferenceGrant,
}
EXPERIMENTAL = {"addresses[].routability"}


def models_in(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models of a type, with the brackets of lists before them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
    for each in get_args(annotation):
        brackets = "[]" if getattr(annotation, "__origin__", None) is tuple else ""
        yield from ((brackets + inner, model) for inner, model in models_in(each))


def leaves(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        own = field.alias or name
        found = dict(models_in(field.annotation))
        if not found:
            yield own
        for brackets, inner in found.items():
            yield from (f"{own}{brackets}.{leaf}" for leaf in leaves(inner))


@pytest.mark.parametrize("kind", MODELS)
def test_the_table_has_the_fields_that_are_read(kind: str) -> None:
    rows = fields.rows(PAGE.read_text(), kind)
    spec = MODELS[kind].model_fields["spec"].annotation
    assert isinstance(spec, type)
    read = set(leaves(spec)) - EXPERIMENTAL
    assert {leaf for leaf in read if not fields.covered(leaf, rows)} == set()
    without = {row for row, supported in rows.items() if supported == "yes" and not fields.matches(row, read)}
    assert without == set(), "nothing reads these"


def test_a_row_may_name_several_kinds_and_fields() -> None:
    table = "| A, B | `one`, `two[].three` | no | x |\n| B | `four` | yes | |\n"
    assert fields.rows(table, "B") == {"one": "no", "two[].three": "no", "four": "yes"}
    assert fields.rows(table, "A") == {"one": "no", "two[].three": "no"}
