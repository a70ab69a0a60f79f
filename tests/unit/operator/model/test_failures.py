"""What tenants read of farms that failed."""

from typing import get_args

import pytest

from kube_nftlb.operator.model.failures import Failure, describe, parse_failure
from kube_nftlb.reasons import FailureReason

PHISHING = "Send your password to https://example.org"


@pytest.mark.parametrize("reason", get_args(FailureReason))
def test_each_reason_has_words_of_its_own(reason: str) -> None:
    text = describe([Failure("n1", reason, PHISHING)], 2)
    assert text.startswith(f"{reason}: ")
    assert text.endswith("; see kubectl describe nftlbnode n1")
    assert PHISHING not in text


@pytest.mark.parametrize("reason", ["", None, 7, ["Refused"], PHISHING])
def test_an_agent_cannot_invent_a_reason(reason: object) -> None:
    text = "the agent reports a reason that this operator does not know; see kubectl describe nftlbnode n1"
    for nodes in (1, 2):
        assert describe([parse_failure({"reason": reason, "message": PHISHING}, "n1")], nodes) == f"Unknown: {text}"


def test_what_two_nodes_say_or_the_only_one_is_shown() -> None:
    one, two = (Failure(node, "PolicyMissing", "there is no NftlbPolicy 'office'") for node in ("n1", "n2"))
    shown = "PolicyMissing: there is no NftlbPolicy 'office'"
    assert describe([one, two], 3) == shown
    assert describe([one], 1) == shown
    assert describe([one], 2) != shown
    assert describe([one, two._replace(message=PHISHING)], 3) != shown
    assert describe([one._replace(message="two\nlines")], 1).endswith("see kubectl describe nftlbnode n1")
