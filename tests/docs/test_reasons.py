"""docs/conditions.md says of every reason, docs/troubleshooting.md of every alert, what it means and what to do."""

import re
from typing import get_args

import yaml

from kube_nftlb import reasons
from kube_nftlb.announce.ownership.gate import Reason
from tests.docs import pages
from tests.docs.reader import ROOT

TEXT = (ROOT / "docs/conditions.md").read_text()
ALERTS = (ROOT / "docs/troubleshooting.md").read_text()
KINDS = (
    reasons.ConditionReason,
    reasons.GateReason,
    reasons.GatewayReason,
    reasons.NodeReason,
    reasons.FailureReason,
    reasons.AddressReason,
    reasons.PoolReason,
    reasons.OperatorEvent,
    reasons.AgentEvent,
)


def test_every_reason_is_explained() -> None:
    every = {*Reason, *(reason for kind in KINDS for reason in get_args(kind))}
    cells = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    assert every - {reason for cell in cells for reason in re.findall(r"`(\w+)`", cell)} == set()


def test_every_alert_is_explained_where_its_runbook_says() -> None:
    groups = yaml.safe_load((ROOT / "charts/kube-nftlb/alerts/kube-nftlb.yaml").read_text())["groups"]
    runbooks = {rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]}
    assert runbooks == {
        f"docs/troubleshooting.md#{anchor}" for anchor in pages.anchors(ALERTS) if anchor.startswith("kubenftlb")
    }
