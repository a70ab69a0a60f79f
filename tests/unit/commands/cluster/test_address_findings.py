"""What is wrong with addresses, who announces them, and who would not."""

from typing import Any, get_args

import pytest

from kube_nftlb import names, reasons
from kube_nftlb.announce.ownership import records
from kube_nftlb.announce.ownership.gate import Reason
from kube_nftlb.commands.cluster.address_findings import (
    ADDRESS_ADVICE,
    find,
    of_addresses,
    of_bgp,
    of_pools,
    of_services,
)
from kube_nftlb.commands.cluster.announced import ANNOUNCE_ADVICE, Announced, where
from kube_nftlb.commands.view import ClusterView, lacking_address
from tests.builders import raw_farm, raw_service
from tests.unit.commands.cluster.test_findings import BEFORE, JUST_NOW, NOW, told

Json = dict[str, Any]
VIP = "192.0.2.10"


@pytest.mark.parametrize("reason", get_args(reasons.AddressProblem))
def test_a_service_without_an_address_is_found_with_what_to_do(reason: str) -> None:
    service = raw_service(status={"conditions": [told(names.ADDRESS_CONDITION, "False", reason)]})
    assert lacking_address(service) is service
    (each,) = of_services([service], NOW)
    assert (each.subject, each.reason, each.message) == ("service default/web", reason, "said so")
    assert each.todo in ADDRESS_ADVICE.values()


@pytest.mark.parametrize("conditions", [[], [told(names.ADDRESS_CONDITION, "True", "Assigned")]])
def test_a_service_with_an_address_or_of_another_kind_is_not(conditions: list[Json]) -> None:
    assert lacking_address(raw_service(status={"conditions": conditions})) is None


def announcing(name: str, *announced: str, **blocked: str) -> Json:
    """The report of a node that announces addresses, and does not announce one for a reason."""
    entries = [{"reason": why, "message": "so it is", "number": 1, "addresses": [ip]} for why, ip in blocked.items()]
    addresses = {"number": len(announced), "announced": list(announced), "blocked": entries}
    return {"metadata": {"name": name}, "status": {"addresses": addresses}}


BALANCED = {"spec": {"addresses": [{"type": "LoadBalancer", "ip": VIP, "ports": "80"}]}}


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ([], None),
        ([announcing("n1", VIP), announcing("n2", NodeExcluded=VIP)], None),
        ([announcing("n1"), announcing("n2")], None),
        (
            [announcing("n1", NodeExcluded=VIP), announcing("n2", NodeExcluded=VIP), announcing("n3", NoLink=VIP)],
            f"no node announces {VIP}: n1, n2: so it is (NodeExcluded); n3: so it is (NoLink)",
        ),
    ],
)
def test_an_address_that_no_node_announces_is_found_with_the_reason_of_each(
    reports: list[Json], message: str | None
) -> None:
    findings = of_addresses(ClusterView(reports=reports), [{**raw_farm(), **BALANCED}], NOW)
    assert [each.message for each in findings] == ([message] if message else [])
    assert all(each.todo == ANNOUNCE_ADVICE[Reason.NODE_EXCLUDED] for each in findings)


def test_there_is_advice_for_every_reason_not_to_announce() -> None:
    assert set(ANNOUNCE_ADVICE) == set(Reason)


def asking(created: str = BEFORE, **status: Any) -> Json:
    service = raw_service(type="LoadBalancer", loadBalancerClass=names.LOAD_BALANCER_CLASS, status=status)
    service["metadata"]["creationTimestamp"] = created
    return service


def test_a_service_that_asks_for_an_address_of_which_nobody_takes_note_is_found() -> None:
    (each,) = of_services([asking()], NOW)
    assert lacking_address(asking()) == asking()
    assert (each.reason, each.message) == (
        "NotAssigned",
        "its class is kube-nftlb.io/nftlb, and the operator has not processed it",
    )
    assert "addresses.enabled" in each.todo
    assert of_services([asking(JUST_NOW)], NOW) == [], "it has just been made"
    assert lacking_address(asking(loadBalancer={"ingress": [{"ip": VIP}]})) is None
    assert lacking_address(raw_service(type="LoadBalancer")) is None, "of another program"


def pool(*conditions: Json, created: str = BEFORE) -> Json:
    metadata = {"name": "office", "uid": "u", "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"ranges": ["192.0.2.0/24"]}, "status": {"conditions": list(conditions)}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (pool(told("Accepted", "True", "Valid")), []),
        (pool(told("Accepted", "False", "Invalid")), [("address pool office", "Invalid", "said so")]),
        (pool(created=JUST_NOW), []),
        (pool(), [("address pool office", "NoStatus", "the operator has not processed it")]),
    ],
)
def test_a_pool_that_is_refused_is_found(raw: Json, expected: list[tuple[str, str, str]]) -> None:
    assert [(each.subject, each.reason, each.message) for each in of_pools([raw], NOW)] == expected


def held(holder: str) -> Json:
    lease = records.claimed(VIP, records.NOBODY, holder, "02:00:00:00:00:01", NOW)
    return {**lease, "metadata": {**lease["metadata"], "resourceVersion": "1"}}


@pytest.mark.parametrize(
    ("holders", "message"),
    [
        ([held("n1")], f"no node announces {VIP}, though n1 holds it"),
        ([], f"no node announces {VIP}, and none tells why"),
    ],
)
def test_an_address_of_a_pool_of_which_no_node_says_anything_is_found(holders: list[Json], message: str) -> None:
    farm = {**raw_farm(), **BALANCED}
    farm["metadata"]["creationTimestamp"] = BEFORE
    view = ClusterView([farm], reports=[announcing("n1")], pools=[pool(told("Accepted", "True", "Valid"))])
    view = ClusterView([farm], reports=view.reports, pools=view.pools, holders=holders)
    assert [each.message for each in find(view, NOW)] == [message]
    assert find(ClusterView([farm], reports=view.reports), NOW) == [], "it may be another program's"


def test_what_a_silent_agent_has_told_last_does_not_count() -> None:
    silent = announcing("n1", VIP)
    silent["status"]["conditions"] = [told("Ready", "Unknown", "AgentSilent")]
    assert list(Announced([silent, announcing("n2")]).nodes(VIP)) == []


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([announcing("n1", VIP)], "announced by n1"),
        ([announcing("n1", VIP), announcing("n2")], "announced by n1; n2 would take it over"),
        (
            [announcing("n1", VIP), announcing("n2"), announcing("n3", NodeExcluded=VIP)],
            "announced by n1; n2 would take it over; not by n3: so it is (NodeExcluded)",
        ),
        ([announcing("n1", NoLink=VIP)], "announced by no node: n1: so it is (NoLink)"),
        ([announcing("n1"), announcing("n2")], ""),
    ],
)
def test_who_announces_an_address_who_would_and_who_would_not(reports: list[Json], expected: str) -> None:
    assert where(VIP, Announced(reports)) == expected


def test_nobody_is_a_candidate_where_nodes_do_not_tell_all_that_they_would_not_announce() -> None:
    many = announcing("n2", NodeExcluded="192.0.2.1")
    many["status"]["addresses"]["blocked"][0]["number"] = 20
    assert where(VIP, Announced([announcing("n1", VIP), many])) == "announced by n1"


def speaking(name: str, last_error: str = "", **states: str) -> Json:
    """The report of a node that has BGP sessions in these states."""
    sessions = [{"peer": peer, "state": state, "lastError": "Bad peer AS"} for peer, state in states.items()]
    return {"metadata": {"name": name}, "status": {"bgp": {"lastError": last_error, "sessions": sessions}}}


def test_routers_without_a_session_are_found_with_their_nodes() -> None:
    reports = [
        speaking("n1", r1="Established", r2="Idle"),
        speaking("n2", r1="Established", r2="Idle"),
        announcing("n3"),
    ]
    (found,) = of_bgp(reports)
    assert found.subject == "BGP peer r2"
    assert found.message == "n1, n2: the session is Idle: Bad peer AS"
    assert of_bgp([speaking("n1", r1="Established")]) == []


def test_a_node_whose_bird_does_not_answer_is_found() -> None:
    (found,) = find(ClusterView(reports=[speaking("n1", "BIRD does not answer: refused")]), NOW)
    assert (found.subject, found.reason, found.message) == ("node n1", "BGPFailed", "BIRD does not answer: refused")
