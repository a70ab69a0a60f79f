"""The findings about a cluster: what counts as wrong, since when, and the message."""

from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from kube_nftlb import reasons
from kube_nftlb.commands.cluster.finding import Finding
from kube_nftlb.commands.cluster.findings import ADVICE, find, of_farms
from kube_nftlb.commands.cluster.status import status_json, well
from kube_nftlb.commands.view import ClusterView
from tests.builders import raw_farm, raw_nftlb_node, raw_node

NOW = datetime(2026, 1, 1, 1, 0, 0, tzinfo=UTC)
BEFORE = "2026-01-01T00:55:00Z"
JUST_NOW = "2026-01-01T00:59:58Z"

Json = dict[str, Any]


def told(kind: str, status: str, reason: str, message: str = "said so", at: str = BEFORE) -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


NO_BACKENDS = "there are no backends; see the Service's selector"

GOOD = (
    told("Accepted", "True", "Valid"),
    told("Programmed", "True", "AllNodes"),
    told("EndpointsProgrammed", "True", "AllNodes"),
)


def farm(*conditions: Json, ready: int = 1, total: int = 1, **fields: Any) -> Json:
    """A farm with these conditions, the others good."""
    own = {each["type"]: each for each in (*GOOD, *conditions)}
    status = {"conditions": list(own.values()), "readyBackends": ready, "totalBackends": total, "nodes": "1/1"}
    status["backendsReady"] = f"{ready}/{total}"
    if not ready:
        status["reason"] = f"NoReadyBackends: {f'none of {total} backends is ready' if total else NO_BACKENDS}"
    return raw_farm(status=status, **fields)


def node(*conditions: Json, failed: list[Json] | None = None) -> Json:
    own = {each["type"]: each for each in (told("Ready", "True", "AgentReady"), told("InSync", "True", "InSync"))}
    own |= {each["type"]: each for each in conditions}
    report = raw_nftlb_node(failed=failed)
    report["status"]["conditions"] = list(own.values())
    return report


def found(*farms: Json, report: Json | None = None, **more: Any) -> list[Finding]:
    return find(ClusterView(farms, [raw_node()], [report or node()], **more), NOW)


def test_nothing_is_wrong_where_all_is_well() -> None:
    assert found(farm()) == []


def test_a_farm_without_any_backend_is_as_its_owner_asked() -> None:
    assert found(farm(ready=0, total=0)) == []


@pytest.mark.parametrize(
    ("broken", "reason", "message"),
    [
        (told("Accepted", "False", "AddressConflict", "b has it"), "AddressConflict", "b has it"),
        (told("Programmed", "False", "NoNodes", "none"), "NoNodes", "none"),
        (told("EndpointsProgrammed", "False", "EndpointsPending", "n1 waits"), "EndpointsPending", "n1 waits"),
    ],
)
def test_a_condition_says_what_is_wrong_and_since_when(broken: Json, reason: str, message: str) -> None:
    (finding,) = found(farm(broken))
    assert (finding.subject, finding.reason, finding.message) == ("farm default/web--http", reason, message)
    assert finding.todo == ADVICE[reason]  # type: ignore[index]  # a reason, as the parameters say
    assert finding.since == datetime(2026, 1, 1, 0, 55, tzinfo=UTC)


def test_what_to_do_if_it_lasts_is_said_once() -> None:
    message = "1 of 2 nodes have it; waiting for n2; if it lasts, see kubectl describe nftlbnode n2"
    (finding,) = found(farm(told("Programmed", "False", "Pending", message)))
    assert finding.message == "1 of 2 nodes have it; waiting for n2"
    assert finding.todo == "if it lasts, see kubectl describe nftlbnode n2"


def test_a_farm_that_failed_has_the_reason_and_the_message_of_the_node() -> None:
    entry = {"namespace": "default", "name": "web--http", "reason": "Refused", "message": "nft says no"}
    broken = farm(told("Programmed", "False", "Failed"))
    (finding,) = found(broken, report=node(failed=[entry]))
    assert (finding.reason, finding.message, finding.todo) == ("Refused", "on n1: nft says no", ADVICE["Refused"])


def test_nodes_on_which_a_farm_fails_for_the_same_cause_are_one_finding() -> None:
    broken = farm(told("Programmed", "False", "Failed"))
    causes = {
        "n1": ("Refused", "no"),
        "n2": ("Unsupported", "never"),
        "n3": ("Refused", "no"),
        "n4": ("Refused", "new"),
    }
    reports = []
    for name, (reason, message) in causes.items():
        report = node(failed=[{"namespace": "default", "name": "web--http", "reason": reason, "message": message}])
        reports.append({**report, "metadata": {**report["metadata"], "name": name}})
    seen = of_farms(ClusterView([broken], [], reports), [broken], NOW)
    assert [(each.reason, each.message) for each in seen] == [
        ("Refused", "on n1, n3: no"),
        ("Unsupported", "on n2: never"),
        ("Refused", "on n4: new"),
    ]


def test_a_farm_whose_backends_are_not_ready_refuses_connections() -> None:
    (finding,) = found(farm(ready=0, total=3))
    assert (finding.reason, finding.since) == ("NoReadyBackends", None)
    assert finding.message == "none of 3 backends is ready"


@pytest.mark.parametrize("reason", ["Pending", "EndpointsPending"])
def test_a_change_on_its_way_does_not_hide_that_clients_are_refused(reason: str) -> None:
    raw = farm(told("Programmed", "False", reason, at=JUST_NOW), ready=0, total=2)
    raw["status"]["reason"] = f"{reason}: 0 of 1 nodes have it"
    (finding,) = found(raw)
    assert (finding.reason, finding.message) == ("NoReadyBackends", "none of 2 backends is ready")
    raw["status"]["backends"] = [{"name": "a", "ready": False, "serving": True, "terminating": True}]
    assert found(raw) == []


def test_a_farm_whose_last_backends_terminate_serves() -> None:
    raw = farm(ready=0, total=3)
    raw["status"]["reason"] = "TerminatingBackends: only terminating backends are left, which still get connections"
    assert found(raw) == []
    assert status_json(ClusterView([raw]), [], NOW)["farms"] == {"total": 1, "serving": 1}
    assert well(raw) == (
        "farm default/web--http is healthy: programmed on 1/1 nodes, only terminating backends are left, which still "
        "get connections"
    )


def test_a_group_that_nobody_serves_is_a_finding_though_others_are() -> None:
    raw = farm(ready=2, total=3)
    refused = "the Service gone has 3 of 10 new connections, and no backend that is ready and up: they are refused"
    raw["status"]["reason"] = f"NoReadyBackends: {refused}"
    (finding,) = found(raw)
    assert (finding.reason, finding.todo) == ("NoReadyBackends", ADVICE["NoReadyBackends"])
    assert finding.message == refused


def test_a_farm_that_is_off_is_a_finding_though_it_needs_no_backends() -> None:
    raw = farm(ready=0, total=0, mode="local", backends=[], state="off")
    raw["status"]["reason"] = "NoReadyBackends: the farm's state is off: new connections are refused"
    (finding,) = found(raw)
    assert finding.message == "the farm's state is off: new connections are refused"


def test_a_change_may_be_on_its_way_for_a_moment() -> None:
    assert found(farm(told("Programmed", "False", "Pending", at=JUST_NOW))) == []
    assert found(report=node(told("InSync", "False", "Pending", at=JUST_NOW))) == []
    (finding,) = found(report=node(told("InSync", "False", "Pending")))
    assert (finding.subject, finding.reason) == ("node n1", "Pending")


def test_a_node_that_cannot_program_farms_is_wrong_once_that_lasts() -> None:
    assert found(report=node(told("InSync", "False", "SyncFailed", "no", at=JUST_NOW))) == []
    (finding,) = found(report=node(told("InSync", "False", "SyncFailed", "not permitted")))
    assert (finding.reason, finding.message) == ("SyncFailed", "not permitted")
    assert finding.todo == "see the agent's log"


def test_a_farm_that_the_operator_has_not_seen_points_to_the_operator() -> None:
    (finding,) = found(raw_farm())
    assert (finding.reason, finding.todo) == ("NoStatus", "check that the operator runs")
    assert found(raw_farm(created=JUST_NOW)) == []


def test_a_node_without_an_agent_is_wrong() -> None:
    (finding,) = find(ClusterView(nodes=[raw_node("bare")]), NOW)
    assert (finding.subject, finding.reason) == ("node bare", "NoAgent")


def test_a_node_that_should_have_no_agent_is_not_wrong() -> None:
    windows, left_out = raw_node("w", labels={"kubernetes.io/os": "windows"}), raw_node("v")
    assert find(ClusterView(nodes=[windows]), NOW) == []
    daemon_set = {"spec": {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}}
    seen = find(ClusterView(nodes=[left_out, raw_node("in", labels={"pool": "a"})], daemon_sets=[daemon_set]), NOW)
    assert [each.subject for each in seen] == ["node in"]
    broken = node(told("Ready", "False", "NftlbUnreachable"))
    view = ClusterView(nodes=[raw_node()], reports=[broken], daemon_sets=[daemon_set])
    assert find(view, NOW), "it has an agent, though it should have none"


def test_a_node_whose_nftlb_is_away_is_wrong() -> None:
    (finding,) = found(report=node(told("Ready", "False", "NftlbUnreachable", "no answer")))
    assert (finding.reason, finding.message) == ("NftlbUnreachable", "no answer")


def test_rules_of_kube_proxy_that_stay_are_wrong_and_a_kube_proxy_that_leaves_is_not() -> None:
    ready = told("Ready", "True", "AgentReady")
    (finding,) = found(report=node(ready, told("KubeProxyGone", "False", "KubeProxyRulesReturned", "they are back")))
    assert (finding.reason, finding.message) == ("KubeProxyRulesReturned", "they are back")
    for reason in ("KubeProxyRuns", "KubeProxyRulesPending"):
        assert found(report=node(ready, told("KubeProxyGone", "False", reason))) == []


@pytest.mark.parametrize(
    ("holder", "renewed", "wrong"),
    [("a", "2026-01-01T00:59:50.000000Z", False), ("a", "2026-01-01T00:50:00.000000Z", True), ("", None, True)],
)
def test_an_operator_that_does_not_renew_its_lease_is_wrong(holder: str, renewed: str | None, wrong: bool) -> None:
    lease = {"metadata": {}, "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}
    assert [each.reason for each in found(leases=[lease])] == (["NoLeader"] if wrong else [])


def test_a_pod_of_ours_that_is_not_ready_is_wrong_unless_it_ends() -> None:
    metadata = {"name": "agent-x", "namespace": "kube-nftlb-system", "labels": {"app.kubernetes.io/component": "agent"}}
    status: Json = {"conditions": [told("Ready", "False", "ContainersNotReady", "nftlb crashes")]}
    pod = {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}
    (finding,) = found(pods=[pod])
    assert finding.subject == "agent kube-nftlb-system/agent-x"
    assert finding.message == "nftlb crashes (on node n1)"
    assert found(pods=[{**pod, "metadata": {**metadata, "deletionTimestamp": BEFORE}}]) == []
    assert found(pods=[{**pod, "status": {**status, "phase": "Failed"}}]) == [], "another one runs instead"
    test = {**metadata, "labels": {"app.kubernetes.io/component": "test"}}
    assert found(pods=[{**pod, "metadata": test}]) == [], "the pod of `helm test`"


@pytest.mark.parametrize("reason", ["AddressConflict", "ExternalIPRefused"])
def test_a_farm_that_has_lost_an_address_is_wrong_though_the_rest_is_served(reason: str) -> None:
    (finding,) = found(farm(told("Accepted", "True", reason, "b has it; the rest is served")))
    assert (finding.reason, finding.message) == (reason, "b has it; the rest is served")
    assert finding.todo == ADVICE[reason]  # type: ignore[index]  # a reason, as the parameters say


def test_there_is_advice_for_every_reason_a_farm_can_have() -> None:
    fine = {"Valid", "AllNodes", "NotAccepted", "TerminatingBackends"}
    assert {*get_args(reasons.ConditionReason), *get_args(reasons.FailureReason)} - fine == set(ADVICE)
