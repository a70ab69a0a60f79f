"""The status of a policy."""

import asyncio
from typing import Any

import pytest

from kube_nftlb.kube.resources import POLICIES
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.node_record import NodeRecord, parse_node
from kube_nftlb.operator.cache.policy_record import PolicyRecord, parse_policy
from kube_nftlb.operator.status.policy_status import PolicyStatuses, decide
from tests.builders import raw_nftlb_node, raw_policy
from tests.fakes.events import RecordingEvents
from tests.fakes.kube import FakeKube
from tests.fakes.virtual_time import VirtualTime

NOW = "2026-06-01T00:00:00Z"
LATER = "2026-06-02T00:00:00Z"


def record(known: PolicyRecord | None = None, **changes: Any) -> PolicyRecord:
    return parse_policy(raw_policy(cidrs=["10.0.0.0/8", "fd00::/8"], **changes), known)


def node(name: str, watermark: str, **status: Any) -> NodeRecord:
    found = raw_nftlb_node(name)
    found["status"] = {**found["status"], "policyWatermark": watermark, **status}
    return parse_node(found)


@pytest.mark.parametrize(
    ("nodes", "shown", "reason"),
    [
        ([], "0/0", "NoNodes"),
        ([node("a", "10"), node("b", "11")], "2/2", "AllNodes"),
        ([node("a", "10"), node("b", "9")], "1/2", "Pending"),
        ([node("a", "10"), node("b", "")], "1/2", "Pending"),
        ([node("a", "10", conditions=[{"type": "Ready", "status": "False"}])], "0/1", "Pending"),
    ],
)
def test_a_policy_is_programmed_where_the_policy_watermark_has_passed_it(
    nodes: list[NodeRecord], shown: str, reason: str
) -> None:
    status = decide(record(), 3, nodes, NOW)
    assert (status.nodes, status.conditions[0].reason) == (shown, reason)
    assert (status.cidrs, status.farms) == (2, 3)


def test_a_policy_beyond_the_budget_is_on_no_node() -> None:
    status = decide(record(), 3, [node("a", "10")], NOW, "too many")
    said = {each.type: (each.status, each.reason, each.message) for each in status.conditions}
    assert said["Accepted"] == ("False", "TooManyPolicies", "too many")
    assert said["Programmed"][:2] == ("False", "NotAccepted")
    assert status.nodes == "0/1"


async def test_namespaces_take_turns_and_what_does_not_fit_is_told(virtual_time: VirtualTime) -> None:
    kube, ingest, events = FakeKube(), Ingest(Cache(limits=NamespaceLimits(policies=2))), RecordingEvents()
    kube.delay_s = 0.01
    statuses = PolicyStatuses(kube, ingest, events, virtual_time.now)
    for raw in (*(raw_policy(f"p{number:03}", namespace="crowd") for number in range(300)), raw_policy("one")):
        kube.put(POLICIES, raw)
        statuses.mark(ingest.put(POLICIES, raw).policies)
    task = asyncio.create_task(statuses.write())
    await asyncio.sleep(30)
    task.cancel()
    written = [write.name for write in kube.writes]
    assert written.index("one") < 5
    assert len(written) == 301, "once each"
    told = {(subject.name, finding.reason) for subject, found in events.reports for finding in found}
    assert told == {(f"p{number:03}", "TooManyPolicies") for number in range(2, 300)}
    statuses.mark(ingest.remove(POLICIES, raw_policy("p000", namespace="crowd", version=1000)).policies)
    task = asyncio.create_task(statuses.write())
    await asyncio.sleep(5)
    task.cancel()
    assert [write.name for write in kube.writes[301:]] == ["p002"]


def test_the_sentence_names_the_nodes_that_are_awaited() -> None:
    status = decide(record(), 0, [node("a", "10"), node("b", "9")], NOW)
    assert (
        status.conditions[0].message
        == "1 of 2 nodes have it; waiting for b; if it lasts, see kubectl describe nftlbnode b"
    )


def test_a_generation_counts_from_its_first_version_whatever_its_status() -> None:
    first = record(version=10)
    assert record(first, version=20).since == 10
    assert record(first, generation=2, version=20).since == 20


def test_a_restarted_operator_trusts_the_status_and_writes_nothing() -> None:
    nodes = [node("a", "10")]
    written = decide(record(version=10), 1, nodes, NOW)
    again = record(version=15, status=written.model_dump(mode="json", by_alias=True))
    assert again.since == 10
    elsewhere = written.model_copy(update={"resource_version": "98765"}).model_dump(mode="json", by_alias=True)
    assert record(version=30, status=elsewhere).since == 30, "restored from another cluster"
    assert decide(again, 1, nodes, LATER) == written
