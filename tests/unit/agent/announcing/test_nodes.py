"""Why a node may not announce addresses, by its Node."""

from typing import Any

import pytest

from kube_nftlb.agent.announcing.nodes import seen
from kube_nftlb.announce.ownership.gate import EXCLUDED
from tests.builders.nodes import raw_node


def with_metadata(**metadata: Any) -> dict[str, Any]:
    raw = raw_node()
    return {**raw, "metadata": {**raw["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (raw_node(), None),
        (raw_node(ready="True"), None),
        (raw_node(ready="True", unschedulable=True), None),
        (raw_node(taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]), None),
        (raw_node(ready="False"), "the node is not ready: no reason is given"),
        (raw_node(ready="Unknown"), "the node is not ready: no reason is given"),
        (
            raw_node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
            "the node has the taint ToBeDeletedByClusterAutoscaler",
        ),
        (
            raw_node(taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]),
            "the node has the taint node.kubernetes.io/out-of-service",
        ),
        (with_metadata(deletionTimestamp="2026-01-01T00:00:00Z"), "the Node is being deleted"),
        (
            with_metadata(annotations={"kube-nftlb.io/drains": "true"}),
            "the node drains: `kubectl nftlb undrain` ends that",
        ),
    ],
)
def test_a_node_that_leaves_says_why_and_a_cordoned_one_stays(raw: dict[str, Any], reason: str | None) -> None:
    assert seen(raw).leaves == reason


def test_the_label_excludes_a_node_whatever_its_value() -> None:
    assert seen(raw_node(labels={EXCLUDED: "false"})).excluded
    assert not seen(raw_node()).excluded


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([("InternalIP", "172.31.0.11"), ("InternalIP", "172.31.0.9")], "172.31.0.9"),
        ([], ""),
        ([("InternalIP", "fd00::1"), ("InternalIP", "172.31.0.11")], "172.31.0.11"),
        ([("ExternalIP", "192.0.2.1"), ("InternalIP", "172.31.0.11")], "172.31.0.11"),
        ([("Hostname", "node-1"), ("InternalIP", "fd00::1")], ""),
        ([("InternalIP", '1; include "/etc/passwd"')], ""),
        ([("InternalIP", "1.2.3.4; quit"), ("InternalIP", "172.31.0.11")], "172.31.0.11"),
    ],
)
def test_a_node_identifies_itself_by_its_internal_ipv4_address(addresses: list[tuple[str, str]], expected: str) -> None:
    entries = [{"type": kind, "address": address} for kind, address in addresses]
    assert seen({"metadata": {}, "status": {"addresses": entries}}).ipv4 == expected
