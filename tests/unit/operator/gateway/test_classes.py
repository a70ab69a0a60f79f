"""The status of GatewayClasses."""

from typing import Any

import pytest

from tests.unit.operator.gateway.objects import decided, gateway_class, outcomes


def of_class(**arguments: Any) -> Any:
    return decided(**arguments).classes["nftlb"]


def test_a_class_of_ours_is_accepted_with_its_features() -> None:
    status = of_class()
    assert outcomes(status.conditions) == {
        "Accepted": ("True", "Accepted"),
        "SupportedVersion": ("True", "SupportedVersion"),
    }
    assert {each.generation for each in status.conditions} == {7}
    assert list(status.features) == sorted(status.features)
    assert {"Gateway", "TCPRoute", "UDPRoute", "ReferenceGrant"} <= set(status.features)


def test_a_class_of_another_controller_gets_no_status() -> None:
    assert of_class(classes=[gateway_class(controller="kube-nftlb.io/other")]) is None


def test_a_class_with_parameters_is_not_accepted() -> None:
    status = of_class(classes=[gateway_class(parametersRef={"group": "", "kind": "ConfigMap", "name": "x"})])
    assert outcomes(status.conditions)["Accepted"] == ("False", "InvalidParameters")


@pytest.mark.parametrize(
    ("versions", "supported"),
    [
        (["v1.6.0"], True),
        (["v1.6.3", "v1.7.0"], True),
        (["v1.7.0-rc.1"], True),
        (["v1.6.3", "v1.5.0"], False),
        (["v2.0.0"], False),
        (["v1.61.0"], False),
        ([""], False),
        (["main"], False),
    ],
)
def test_the_versions_of_the_definitions_are_told(versions: list[str], supported: bool) -> None:
    conditions = of_class(versions=versions).conditions
    expected = ("True", "SupportedVersion") if supported else ("False", "UnsupportedVersion")
    assert outcomes(conditions) == {"Accepted": ("True", "Accepted"), "SupportedVersion": expected}
    if not supported:
        assert "1.6 and 1.7" in conditions[1].message
