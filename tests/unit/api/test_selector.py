"""Selectors select by labels as Kubernetes does."""

from typing import Any

import pytest

from kube_nftlb.api.selector import VALUES_RULE, Requirement, Selector
from tests.unit.api import cel

LABELS = {"app": "web", "zone": "a", "empty": ""}


def requirement(operator: str, key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "zone": "b"}}, False),
        ({"matchLabels": {"absent": ""}}, False),
        ({"matchExpressions": [requirement("In", "zone", "a", "b")]}, True),
        ({"matchExpressions": [requirement("In", "zone", "b")]}, False),
        ({"matchExpressions": [requirement("In", "absent", "b")]}, False),
        ({"matchExpressions": [requirement("NotIn", "zone", "b")]}, True),
        ({"matchExpressions": [requirement("NotIn", "absent", "b")]}, True),
        ({"matchExpressions": [requirement("NotIn", "zone", "a")]}, False),
        ({"matchExpressions": [requirement("Exists", "empty")]}, True),
        ({"matchExpressions": [requirement("Exists", "absent")]}, False),
        ({"matchExpressions": [requirement("DoesNotExist", "absent")]}, True),
        ({"matchExpressions": [requirement("DoesNotExist", "empty")]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [requirement("Exists", "absent")]}, False),
        ({"matchExpressions": [requirement("NotIn", "zone")]}, False),
        ({"matchExpressions": [requirement("DoesNotExist", "absent", "a")]}, False),
    ],
)
def test_a_selector_selects_what_meets_all_requirements(selector: dict[str, Any], selects: bool) -> None:
    assert Selector.model_validate(selector).selects(LABELS) is selects


@pytest.mark.parametrize("operator", ["In", "NotIn", "Exists", "DoesNotExist"])
@pytest.mark.parametrize("values", [[], ["a"]])
def test_the_api_server_takes_the_requirements_that_can_be_met(operator: str, values: list[str]) -> None:
    stored = requirement(operator, "zone", *values)
    taken = cel.program(VALUES_RULE.cel)(cel.value(stored))
    assert taken is VALUES_RULE.holds(Requirement.model_validate(stored)) is (bool(values) == ("In" in operator))
