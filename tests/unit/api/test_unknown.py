"""Fields that a newer CustomResourceDefinition has and the model has not."""

from typing import Any

import pytest

from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.unknown import unknown_fields
from tests.builders import raw_farm, raw_service_farm


def found(**spec: Any) -> list[str]:
    return list(unknown_fields(FarmSpec, raw_farm(**spec)["spec"], "spec"))


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"colour": "green"}, "spec.colour"),
        ({"limits": {"new": "5/second", "colour": 1}}, "spec.limits.colour"),
        ({"addresses": [{"ip": "10.96.0.10", "ports": "80"}, {"colour": {}}]}, "spec.addresses[1].colour"),
        ({"backends": [{"name": "a", "colour": None}]}, "spec.backends[0].colour"),
        (
            {"backendsFrom": [{"service": "a", "overrides": [{"colour": 1}]}]},
            "spec.backendsFrom[0].overrides[0].colour",
        ),
        ({"sessions": [{"client": "a", "colour": 1}]}, "spec.sessions[0].colour"),
    ],
)
def test_a_field_that_is_not_known_is_named(spec: dict[str, Any], path: str) -> None:
    assert found(**spec) == [path]


def test_all_fields_of_the_model_are_known() -> None:
    assert found(sessions=[{"client": "10.0.0.1", "backend": "a"}], policies=["p"], sourceAddress="10.0.0.1") == []
    assert list(unknown_fields(FarmSpec, raw_service_farm()["spec"], "spec")) == []
    every = {field.alias or name: None for name, field in FarmSpec.model_fields.items()}
    assert list(unknown_fields(FarmSpec, every, "spec")) == []


@pytest.mark.parametrize("raw", [None, [], "text", {"limits": []}, {"addresses": ["text"]}])
def test_what_is_no_object_has_no_fields(raw: object) -> None:
    assert list(unknown_fields(FarmSpec, raw, "spec")) == []
