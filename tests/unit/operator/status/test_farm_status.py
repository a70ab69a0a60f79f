from typing import Any, NamedTuple

import pytest

from kube_nftlb.api.conflicts import Conflict, FarmKey, Loss
from kube_nftlb.api.farm import FarmStatus
from kube_nftlb.api.farm.status import BackendStatus
from kube_nftlb.api.listeners import Listener
from kube_nftlb.operator.cache.farm_record import FarmRecord, changed_fields, parse_farm, status_digest
from kube_nftlb.operator.cache.node_record import NodeRecord, parse_node
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.operator.status.farm_endpoints import FarmEndpoints
from kube_nftlb.operator.status.farm_status import decide
from tests.builders import raw_farm, raw_nftlb_node, raw_service_farm

VIP = "192.0.2.10"
NOW = "2026-06-01T00:00:00Z"
READY, DOWN, NONE = FarmEndpoints(1, 1), FarmEndpoints(0, 1), FarmEndpoints(0, 0)
_LOST = Listener("10.96.0.10", "TCP", 80)
LOSS = Loss((Conflict(FarmKey("default", "winner"), _LOST, _LOST),), everything=True)


def record(known: FarmRecord | None = None, **fields: Any) -> FarmRecord:
    return parse_farm(raw_service_farm(**fields), known)[0]


def nodes(*raw: dict[str, Any]) -> list[NodeRecord]:
    return [parse_node(each) for each in raw]


def failed(generation: int = 1) -> list[dict[str, Any]]:
    return [
        {
            "namespace": "default",
            "name": "web--http",
            "generation": generation,
            "reason": "Refused",
            "message": "free text of an agent",
        }
    ]


ALL_NODES, PENDING = ("Valid", "AllNodes", "AllNodes"), ("Valid", "Pending", "Pending")


class Case(NamedTuple):
    """What the status shows of a farm, on these nodes."""

    on: list[NodeRecord]
    nodes: str
    reason: str = ""
    reasons: tuple[str, str, str] = ALL_NODES
    farm: FarmRecord = record()
    endpoints: FarmEndpoints = READY
    loss: Loss | None = None


CASES = {
    "all is well": Case(nodes(raw_nftlb_node(watermark="10")), "1/1"),
    "no node": Case(
        [],
        "0/0",
        "NoNodes: no node runs an agent; see whether the pods of the agent are there, and their logs",
        ("Valid", "NoNodes", "NoNodes"),
    ),
    "a node that is behind": Case(
        nodes(raw_nftlb_node("n1", watermark="10"), raw_nftlb_node("n2", watermark="9")),
        "1/2",
        "Pending: 1 of 2 nodes have it; waiting for n2; if it lasts, see kubectl describe nftlbnode n2",
        PENDING,
    ),
    "a node that is not ready does not count": Case(
        nodes(raw_nftlb_node(watermark="10", ready="False")),
        "0/1",
        "Pending: 0 of 1 nodes have it; waiting for n1; if it lasts, see kubectl describe nftlbnode n1",
        PENDING,
    ),
    "a watermark that is none does not count": Case(
        nodes(raw_nftlb_node(watermark="bogus")),
        "0/1",
        "Pending: 0 of 1 nodes have it; waiting for n1; if it lasts, see kubectl describe nftlbnode n1",
        PENDING,
    ),
    "a node where it failed": Case(
        nodes(raw_nftlb_node(watermark="11", failed=failed())),
        "0/1",
        "Failed: node n1: Refused: free text of an agent",
        ("Valid", "Failed", "Failed"),
    ),
    "a node where more farms of its namespace failed than it can list": Case(
        nodes(raw_nftlb_node(watermark="11", failed_namespaces=["default"]), raw_nftlb_node("n2", watermark="11")),
        "1/2",
        "Pending: 1 of 2 nodes have it; waiting for n1; if it lasts, see kubectl describe nftlbnode n1",
        PENDING,
    ),
    "a node where many farms of another namespace failed": Case(
        nodes(raw_nftlb_node(watermark="11", failed_namespaces=["crowd"])), "1/1"
    ),
    "a node where a part has no effect": Case(
        nodes(raw_nftlb_node(watermark="11", warnings=failed())), "1/1", "Refused: free text of an agent"
    ),
    "a failure of an older generation is over": Case(
        nodes(raw_nftlb_node(watermark="11", failed=failed(1))), "1/1", farm=record(generation=2)
    ),
    "another farm has its address": Case(
        nodes(raw_nftlb_node(watermark="11")),
        "0/1",
        "AddressConflict: default/winner has 10.96.0.10:80/TCP; give one of the two another address or port, or "
        "delete one",
        ("AddressConflict", "NotAccepted", "NotAccepted"),
        loss=LOSS,
    ),
    "a spec that the models refuse": Case(
        nodes(raw_nftlb_node(watermark="11")),
        "0/1",
        "Invalid: spec: schedParam requires scheduler hash",
        ("Invalid", "NotAccepted", "NotAccepted"),
        farm=parse_farm(raw_farm(schedParam="srcip"), None)[0],
    ),
    "its only backend is not ready": Case(
        nodes(raw_nftlb_node(watermark="11")),
        "1/1",
        "NoReadyBackends: its only backend is not ready, or not in the state up: new connections are refused; see the "
        "Pods",
        endpoints=DOWN,
    ),
    "no backend is ready": Case(
        nodes(raw_nftlb_node(watermark="11")),
        "1/1",
        "NoReadyBackends: none of 3 backends is ready and in the state up: new connections are refused; see the Pods",
        endpoints=FarmEndpoints(0, 3),
    ),
    "no backend is ready, and some terminate": Case(
        nodes(raw_nftlb_node(watermark="11")),
        "1/1",
        "TerminatingBackends: only terminating backends are left, which still get connections",
        endpoints=FarmEndpoints(0, 3, terminating=2),
    ),
    "some are ready, and some terminate": Case(
        nodes(raw_nftlb_node(watermark="11")), "1/1", endpoints=FarmEndpoints(1, 3, terminating=2)
    ),
    "one group has terminating backends, the other none": Case(
        nodes(raw_nftlb_node(watermark="11")),
        "1/1",
        "NoReadyBackends: the Service gone has none",
        endpoints=FarmEndpoints(0, 1, unserved=("the Service gone has none",), terminating=1),
    ),
    "a node that is behind with endpoints": Case(
        nodes(raw_nftlb_node("n1", watermark="10", slice_watermark="20"), raw_nftlb_node("n2", watermark="10")),
        "1/2",
        "EndpointsPending: 1 of 2 nodes have it; waiting for n2; if it lasts, see kubectl describe nftlbnode n2",
        ("Valid", "AllNodes", "EndpointsPending"),
        endpoints=FarmEndpoints(1, 1, changed_at=20),
    ),
    "a node that is behind with all": Case(
        nodes(raw_nftlb_node(watermark="9", slice_watermark="19")),
        "0/1",
        "Pending: 0 of 1 nodes have it; waiting for n1; if it lasts, see kubectl describe nftlbnode n1",
        PENDING,
        endpoints=FarmEndpoints(1, 1, changed_at=20),
    ),
    "a node that has the endpoints": Case(
        nodes(raw_nftlb_node(watermark="10", slice_watermark="20")),
        "1/1",
        "NoReadyBackends: its only backend is not ready, or not in the state up: new connections are refused; see the "
        "Pods",
        endpoints=FarmEndpoints(0, 1, changed_at=20),
    ),
    "no backend of a farm written by hand": Case(
        nodes(raw_nftlb_node(watermark="10")),
        "1/1",
        "NoReadyBackends: there are no backends",
        farm=parse_farm(raw_farm(backends=[]), None)[0],
        endpoints=NONE,
    ),
    "a farm that is off": Case(
        nodes(raw_nftlb_node(watermark="10")),
        "1/1",
        "NoReadyBackends: the farm's state is off: new connections are refused",
        farm=parse_farm(raw_farm(state="off"), None)[0],
    ),
    "a farm that drains": Case(
        nodes(raw_nftlb_node(watermark="11")),
        "1/1",
        "NoReadyBackends: the farm's state is drain: new connections are refused, open ones go on",
        farm=record(state="drain"),
    ),
    "a farm without backends, as all go to the node itself": Case(
        nodes(raw_nftlb_node(watermark="10")),
        "1/1",
        farm=parse_farm(raw_farm(mode="local", backends=[]), None)[0],
        endpoints=NONE,
    ),
    "no backend at all": Case(
        nodes(raw_nftlb_node(watermark="11")),
        "1/1",
        "NoReadyBackends: there are no backends; see the Service's selector, the labels of the Pods, and the name of "
        "targetPort",
        endpoints=NONE,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_status_says(case: Case) -> None:
    status = decide(case.farm, case.endpoints, case.loss, case.on, NOW)
    assert (status.nodes, status.reason) == (case.nodes, case.reason)
    assert [c.type for c in status.conditions] == ["Accepted", "Programmed", "EndpointsProgrammed"]
    assert tuple(c.reason for c in status.conditions) == case.reasons
    assert {c.observed_generation for c in status.conditions} == {case.farm.generation}


def shown(number: int) -> BackendStatus:
    return BackendStatus(
        name=f"p{number}",
        address=f"10.244.0.{number}",
        port=80,
        ready=True,
        serving=True,
        terminating=False,
        weight=1,
    )


def test_backends_are_counted_and_the_first_shown() -> None:
    status = decide(record(), FarmEndpoints(3, 5, (shown(1), shown(2))), None, [], NOW)
    assert (status.backends_ready, status.ready_backends, status.total_backends) == ("3/5", 3, 5)
    assert (status.backends, status.omitted_backends) == ((shown(1), shown(2)), 3)


def test_backends_written_by_hand_are_not_shown_again() -> None:
    farm = parse_farm(raw_farm(), None)[0]
    status = decide(farm, READY, None, [], NOW)
    assert (status.backends_ready, status.backends, status.omitted_backends) == ("1/1", (), 0)


def written(farm: FarmRecord, time: str, endpoints: FarmEndpoints = READY) -> FarmRecord:
    status = decide(farm, endpoints, None, [], time).model_dump(mode="json", by_alias=True)
    return parse_farm(raw_service_farm(version=99, status=status), None)[0]


def test_a_status_that_says_the_same_later_is_the_same() -> None:
    seen = written(record(), NOW)
    assert status_digest(decide(seen, READY, None, [], "2027-01-01T00:00:00Z")) == seen.status.digest


def test_a_status_that_is_read_again_has_the_same_counts() -> None:
    seen = written(record(), NOW, FarmEndpoints(3, 5)).status
    assert (seen.ready, seen.total) == (3, 5)


@pytest.mark.parametrize(
    ("endpoints", "fields"),
    [
        pytest.param(READY, (), id="nothing"),
        pytest.param(FarmEndpoints(1, 1, (shown(1),)), ("backends",), id="another backend"),
        pytest.param(FarmEndpoints(1, 2), ("total_backends", "backends_ready"), id="one more, not ready"),
        pytest.param(FarmEndpoints(1, 1, changed_at=20), ("nodes", "reason", "conditions"), id="a node is behind"),
    ],
)
def test_only_fields_that_differ_are_written(endpoints: FarmEndpoints, fields: tuple[str, ...]) -> None:
    farm = record(backendsFrom=[{"service": "web", "port": "http"}], backends=None)
    on = nodes(raw_nftlb_node(watermark="10"))
    before, after = (status_digest(decide(farm, each, None, on, NOW)) for each in (READY, endpoints))
    assert set(changed_fields(before, after)) - {"omitted_backends"} == set(fields)
    assert set(changed_fields(b"", after)) == set(FarmStatus.model_fields), "there was no status"


def test_a_group_that_nobody_serves_is_the_reason_if_nothing_else_is() -> None:
    unserved = ("the Service gone has 3 of 10 new connections, and no ready backend",)
    on = nodes(raw_nftlb_node(watermark="10"))
    assert decide(record(), FarmEndpoints(1, 1, unserved=unserved), None, on, NOW).reason == (
        f"NoReadyBackends: {unserved[0]}"
    )


def test_only_a_condition_that_changes_gets_a_new_time() -> None:
    seen = written(record(), NOW)
    on = nodes(raw_nftlb_node(watermark="99"))
    status = decide(seen, FarmEndpoints(1, 1, changed_at=20), None, on, "2027-01-01T00:00:00Z")
    assert [c.last_transition_time for c in status.conditions] == [NOW, "2027-01-01T00:00:00Z", NOW]


def test_a_generation_counts_from_where_it_was_first_seen() -> None:
    first = record(version=10)
    assert record(known=first, version=20).since == 10
    assert record(known=first, version=20, generation=2).since == 20
    assert record(known=first, version=20, uid="another").since == 20


def test_a_restarted_operator_takes_it_from_the_status() -> None:
    assert written(record(version=10), NOW).since == 10
    old = decide(record(version=10), READY, None, [], NOW).model_dump(mode="json", by_alias=True)
    assert record(version=30, generation=2, status=old).since == 30


def test_a_status_that_was_restored_from_another_cluster_does_not_hold_a_farm_at_pending() -> None:
    old = decide(record(version=98765), READY, None, [], NOW).model_dump(mode="json", by_alias=True)
    assert record(version=30, status=old).since == 30


def test_a_status_of_another_version_does_not_stop_anything() -> None:
    assert record(status={"ofTheFuture": 1}).status.observed_generation == 0


def accepted(loss: Loss | None, refused: list[Rejection] | None = None) -> tuple[str, str, str, str]:
    """Status, reason and message of the condition Accepted, and the reason of the status."""
    status = decide(record(), READY, loss, nodes(raw_nftlb_node(watermark="10")), NOW, refused or [])
    condition = next(each for each in status.conditions if each.type == "Accepted")
    return condition.status, condition.reason, condition.message, status.reason


def test_a_farm_that_loses_some_listeners_is_accepted_and_names_them() -> None:
    external = Listener("203.0.113.9", "TCP", 80)
    loss = Loss((Conflict(FarmKey("other", "shop--http"), external, external),), everything=False)
    message = (
        "other/shop--http has 203.0.113.9:80/TCP; the rest is served; give one of the two another address or port, or"
    )
    status, reason, told, shown = accepted(loss)
    assert (status, reason) == ("True", "AddressConflict")
    assert told.startswith(message)
    assert shown.startswith(f"AddressConflict: {message}")


@pytest.mark.parametrize(
    ("had", "lost", "message"),
    [
        (Listener("nodes (ipv4)", "TCP", 30080), Listener("nodes (ipv4)", "TCP", 30080), "has node port 30080/TCP;"),
        (
            Listener("nodes (ipv4)", "TCP", 30080),
            Listener("172.31.0.12", "TCP", 30080),
            "has node port 30080/TCP, which includes 172.31.0.12:30080/TCP;",
        ),
        (Listener("10.96.0.1", "All", 0), Listener("10.96.0.1", "TCP", 80), "has all of 10.96.0.1, which includes 10."),
        (Listener("10.96.0.1", "TCP", 80), Listener("10.96.0.1", "All", 0), "has 10.96.0.1:80/TCP;"),
        (Listener("fd00::1", "UDP", 53), Listener("fd00::1", "UDP", 53), "has [fd00::1]:53/UDP;"),
    ],
)
def test_a_conflict_names_what_the_winner_has(had: Listener, lost: Listener, message: str) -> None:
    loss = Loss((Conflict(FarmKey("other", "shop"), had, lost),), everything=True)
    assert f"other/shop {message}" in accepted(loss)[2]


def test_of_many_conflicts_the_first_are_named() -> None:
    listeners = [Listener("10.96.0.1", "TCP", port) for port in range(1, 6)]
    loss = Loss(tuple(Conflict(FarmKey("o", "s"), each, each) for each in listeners), everything=True)
    assert accepted(loss)[2].startswith(
        "o/s has 10.96.0.1:1/TCP, o/s has 10.96.0.1:2/TCP, o/s has 10.96.0.1:3/TCP (and 2"
    )


def test_a_farm_says_which_external_ips_its_service_does_not_get() -> None:
    refused = [Rejection("ExternalIPRefused", "spec.externalIPs: '10.0.0.1' is not served: it is one of node n1")]
    status, reason, told, shown = accepted(None, refused)
    assert (status, reason, told) == ("True", "ExternalIPRefused", refused[0].message)
    assert shown == f"ExternalIPRefused: {refused[0].message}"


def test_the_node_that_announces_an_address_is_told() -> None:
    addresses = [{"ip": VIP, "type": "LoadBalancer", "ports": "80"}, {"ip": "10.96.0.10", "ports": "80"}]
    farm = record(addresses=addresses)
    silent, holder = raw_nftlb_node("n1"), raw_nftlb_node("n2")
    holder["status"]["addresses"] = {"number": 2, "announced": [VIP, "192.0.2.99"]}
    told = decide(farm, READY, None, nodes(silent, holder), NOW).addresses
    assert [(each.ip, each.announced_by) for each in told] == [(VIP, "n2")]
    assert decide(farm, READY, None, nodes(silent), NOW).addresses == ()
    holder["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "AgentSilent"}]
    assert decide(farm, READY, None, nodes(holder), NOW).addresses == (), "nobody has heard of it for long"
