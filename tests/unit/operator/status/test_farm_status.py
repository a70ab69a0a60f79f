from typing import Any

import pytest

from kube_nftlb.api.conflicts import Conflict, FarmKey
from kube_nftlb.api.listeners import Listener
from kube_nftlb.operator.cache.farm_record import FarmRecord, parse_farm, status_digest
from kube_nftlb.operator.cache.node_record import NodeRecord, parse_node
from kube_nftlb.operator.status.farm_status import decide
from tests.builders import raw_farm, raw_nftlb_node, raw_service_farm

NOW = "2026-06-01T00:00:00Z"
READY = {"name": "a", "ip": "10.244.0.1", "port": 80}
DOWN = {"name": "b", "ip": "10.244.0.2", "port": 80, "ready": False}
LOSS = Conflict(FarmKey("default", "winner"), Listener("10.96.0.10", "TCP", 80))


def record(known: FarmRecord | None = None, **fields: Any) -> FarmRecord:
    return parse_farm(raw_service_farm(**{"backends": [READY], **fields}), known)[0]


def nodes(*raw: dict[str, Any]) -> list[NodeRecord]:
    return [parse_node(each) for each in raw]


def failed(generation: int = 1) -> list[dict[str, Any]]:
    return [
        {
            "namespace": "default",
            "name": "web--http",
            "generation": generation,
            "reason": "Broken",
            "message": "no luck",
        }
    ]


@pytest.mark.parametrize(
    ("farm", "loss", "on", "shown", "accepted", "programmed", "reason"),
    [
        pytest.param(
            record(), None, nodes(raw_nftlb_node(watermark="10")), "1/1", "Valid", "AllNodes", "", id="all is well"
        ),
        pytest.param(
            record(),
            None,
            [],
            "0/0",
            "Valid",
            "NoNodes",
            "NoNodes: no node runs an agent; see whether the pods of the agent are there, and their logs",
            id="no node",
        ),
        pytest.param(
            record(),
            None,
            nodes(raw_nftlb_node("n1", watermark="10"), raw_nftlb_node("n2", watermark="9")),
            "1/2",
            "Valid",
            "Pending",
            "Pending: 1 of 2 nodes have it; waiting for n2; if that lasts, see kubectl describe nftlbnode n2",
            id="a node that is behind",
        ),
        pytest.param(
            record(),
            None,
            nodes(raw_nftlb_node(watermark="10", ready="False")),
            "0/1",
            "Valid",
            "Pending",
            "Pending: 0 of 1 nodes have it; waiting for n1; if that lasts, see kubectl describe nftlbnode n1",
            id="a node that is not ready does not count",
        ),
        pytest.param(
            record(),
            None,
            nodes(raw_nftlb_node(watermark="bogus")),
            "0/1",
            "Valid",
            "Pending",
            "Pending: 0 of 1 nodes have it; waiting for n1; if that lasts, see kubectl describe nftlbnode n1",
            id="a watermark that is none does not count",
        ),
        pytest.param(
            record(),
            None,
            nodes(raw_nftlb_node(watermark="11", failed=failed())),
            "0/1",
            "Valid",
            "Failed",
            "Failed: node n1: Broken: no luck",
            id="a node where it failed",
        ),
        pytest.param(
            record(generation=2),
            None,
            nodes(raw_nftlb_node(watermark="11", failed=failed(1))),
            "1/1",
            "Valid",
            "AllNodes",
            "",
            id="a failure of an older generation is over",
        ),
        pytest.param(
            record(),
            LOSS,
            nodes(raw_nftlb_node(watermark="11")),
            "0/1",
            "AddressConflict",
            "NotAccepted",
            "AddressConflict: default/winner has 10.96.0.10:80/TCP; give one of the two another address or port, or "
            "delete one",
            id="another farm has its address",
        ),
        pytest.param(
            parse_farm(raw_farm(schedParam="srcip"), None)[0],
            None,
            nodes(raw_nftlb_node(watermark="11")),
            "0/1",
            "Invalid",
            "NotAccepted",
            "Invalid: spec: schedParam requires scheduler hash",
            id="a spec that the models refuse",
        ),
        pytest.param(
            record(backends=[DOWN]),
            None,
            nodes(raw_nftlb_node(watermark="11")),
            "1/1",
            "Valid",
            "AllNodes",
            "NoReadyBackends: none of 1 backends is ready; see their Pods",
            id="no backend is ready",
        ),
        pytest.param(
            record(backends=[]),
            None,
            nodes(raw_nftlb_node(watermark="11")),
            "1/1",
            "Valid",
            "AllNodes",
            "NoReadyBackends: there are no backends; see which Pods the Service's selector matches",
            id="no backend at all",
        ),
    ],
)
def test_the_status_says(
    farm: FarmRecord,
    loss: Conflict | None,
    on: list[NodeRecord],
    shown: str,
    accepted: str,
    programmed: str,
    reason: str,
) -> None:
    status = decide(farm, loss, on, NOW)
    assert (status.nodes, status.reason) == (shown, reason)
    assert [c.reason for c in status.conditions] == [accepted, programmed]
    assert {c.observed_generation for c in status.conditions} == {farm.generation}


def test_backends_are_counted() -> None:
    status = decide(record(backends=[READY, DOWN]), None, [], NOW)
    assert (status.backends, status.ready_backends, status.total_backends) == ("1/2", 1, 2)


def written(farm: FarmRecord, time: str) -> FarmRecord:
    status = decide(farm, None, [], time).model_dump(mode="json", by_alias=True)
    return parse_farm(raw_service_farm(backends=[READY], version=99, status=status), None)[0]


def test_a_status_that_says_the_same_later_is_the_same() -> None:
    seen = written(record(), NOW)
    assert status_digest(decide(seen, None, [], "2027-01-01T00:00:00Z")) == seen.status.digest


def test_only_a_condition_that_changes_gets_a_new_time() -> None:
    seen = written(record(), NOW)
    status = decide(seen, None, nodes(raw_nftlb_node(watermark="99")), "2027-01-01T00:00:00Z")
    assert [c.last_transition_time for c in status.conditions] == [NOW, "2027-01-01T00:00:00Z"]


def test_a_generation_counts_from_where_it_was_first_seen() -> None:
    first = record(version=10)
    assert record(known=first, version=20).since == 10
    assert record(known=first, version=20, generation=2).since == 20
    assert record(known=first, version=20, uid="another").since == 20


def test_a_restarted_operator_takes_it_from_the_status() -> None:
    assert written(record(version=10), NOW).since == 10
    old = decide(record(version=10), None, [], NOW).model_dump(mode="json", by_alias=True)
    assert record(version=30, generation=2, status=old).since == 30


def test_a_status_of_another_version_does_not_stop_anything() -> None:
    assert record(status={"ofTheFuture": 1}).status.observed_generation == 0
