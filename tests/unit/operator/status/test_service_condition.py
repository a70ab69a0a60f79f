"""The contents of the condition of a Service."""

from collections.abc import Sequence

import pytest

from kube_nftlb.api.kubernetes.service import ServiceCondition
from kube_nftlb.kube.events import Lasting
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.operator.status.farm_endpoints import Problem
from kube_nftlb.operator.status.service_condition import (
    FarmState,
    ServiceVerdict,
    condition,
    decide,
    is_written,
)

CONFLICT = Lasting("AddressConflict", "other has it")
ANNOTATION = Rejection("InvalidAnnotation", "weight: no")


def farm(name: str = "web--http", *problems: Problem, programmed: bool = True, engine: str = "nftlb") -> FarmState:
    return FarmState(name, engine, programmed, problems)


@pytest.mark.parametrize(
    ("problems", "farms", "lacking", "expected"),
    [
        pytest.param(
            [],
            [farm(), farm("web--https", engine="nftables")],
            [],
            ServiceVerdict("True", "AllNodes", "all nodes have its farms (2), served by nftables and nftlb"),
            id="all nodes have all farms",
        ),
        pytest.param(
            [],
            [farm(), farm("web--https", programmed=False)],
            [],
            ServiceVerdict("False", "Pending", "web--https: not on all nodes yet"),
            id="a farm is not on all nodes",
        ),
        pytest.param(
            [],
            [farm(programmed=False)],
            ["web--https"],
            ServiceVerdict("False", "Pending", "web--https and 1 more farm: not on all nodes yet"),
            id="a farm does not exist",
        ),
        pytest.param([], [], [], ServiceVerdict("False", "Pending", "no farm: not on all nodes yet"), id="no farm"),
        pytest.param(
            [ANNOTATION],
            [farm("web--http", CONFLICT)],
            [],
            ServiceVerdict(
                "False", "AddressConflict", "farm web--http: other has it (and 1 more problem, see its Events)"
            ),
            id="what is not served comes first",
        ),
        pytest.param(
            [ANNOTATION],
            [farm()],
            [],
            ServiceVerdict("True", "InvalidAnnotation", "weight: no"),
            id="served, but not as it asks",
        ),
        pytest.param(
            [Rejection("TooManyFarms", "no room")],
            [],
            [],
            ServiceVerdict("False", "TooManyFarms", "no room"),
            id="it gets no farms",
        ),
    ],
)
def test_it_says(
    problems: Sequence[Problem], farms: Sequence[FarmState], lacking: Sequence[str], expected: ServiceVerdict
) -> None:
    assert decide(problems, farms, lacking) == expected


def test_a_long_message_is_cut() -> None:
    assert len(decide([Rejection("TooManyFarms", "x" * 5000), ANNOTATION], [], []).message) == 1024


def test_the_time_is_that_of_the_last_change_of_the_status() -> None:
    verdict = decide([], [farm()], [])
    before = ServiceCondition(status="True", reason="InvalidAnnotation", last_transition_time="earlier")
    assert condition(verdict, before, "now")["lastTransitionTime"] == "earlier"
    assert condition(verdict, before.model_copy(update={"status": "False"}), "now")["lastTransitionTime"] == "now"
    assert condition(verdict, None, "now")["lastTransitionTime"] == "now"


def test_what_a_service_has_already_is_not_written_again() -> None:
    verdict = decide([], [farm()], [])
    written = ServiceCondition.model_validate(condition(verdict, None, "now"))
    assert is_written(verdict, written)
    assert not is_written(decide([], [farm(programmed=False)], []), written)
    assert not is_written(verdict, None)
