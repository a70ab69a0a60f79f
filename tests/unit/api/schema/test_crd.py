from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.api.schema import crd

FOLDER = Path(__file__).parents[4] / "crds"
DEFINITIONS = crd.definitions()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_checked_in_definition_is_what_the_models_say(name: str) -> None:
    assert (FOLDER / name).read_text() == crd.render(DEFINITIONS[name]), "run `make crds`"


def test_there_are_no_other_definitions() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*DEFINITIONS, "kustomization.yaml"}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_fields_have_types_and_those_of_specs_descriptions(name: str) -> None:
    schema = DEFINITIONS[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part, needs_description in (("spec", True), ("status", False)):
        if part in schema["properties"]:
            _check(schema["properties"][part], part, needs_description)


def _check(node: dict[str, Any], path: str, needs_description: bool) -> None:
    assert ("type" in node) != node.get("x-kubernetes-int-or-string", False), path
    assert not {"$ref", "anyOf", "title", "const"} & node.keys(), path
    for name, child in node.get("properties", {}).items():
        assert not needs_description or child.get("description"), f"{path}.{name}"
        _check(child, f"{path}.{name}", needs_description)
    if "items" in node:
        _check(node["items"], f"{path}[]", needs_description)
