"""What tenants read of farms that failed."""

from typing import get_args

import pytest

from kube_nftlb.operator.model.failures import failure
from kube_nftlb.reasons import FailureReason


@pytest.mark.parametrize("reason", get_args(FailureReason))
def test_each_reason_has_words_of_its_own(reason: str) -> None:
    assert failure(reason, "n1").startswith(f"{reason}: ")
    assert failure(reason, "n1").endswith("; see kubectl describe nftlbnode n1")


@pytest.mark.parametrize("reason", ["", None, 7, ["Refused"], "Send your password to https://example.org"])
def test_an_agent_cannot_write_to_tenants(reason: object) -> None:
    text = "the agent reports a reason that this operator does not know; see kubectl describe nftlbnode n1"
    assert failure(reason, "n1") == f"Unknown: {text}"
