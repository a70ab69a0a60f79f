"""docs/operations.md says of every reason that a person may meet what it means and what to do."""

from typing import get_args

from kube_nftlb import reasons
from tests.docs.reader import ROOT

TEXT = (ROOT / "docs" / "operations.md").read_text()
KINDS = (
    reasons.ConditionReason,
    reasons.NodeReason,
    reasons.FailureReason,
    reasons.OperatorEvent,
    reasons.AgentEvent,
)


def test_every_reason_is_explained() -> None:
    every = {reason for kind in KINDS for reason in get_args(kind)}
    rows = {line.partition("`")[2].partition("`")[0] for line in TEXT.splitlines() if line.startswith("| `")}
    assert every - rows == set()
