from datetime import UTC, datetime, timedelta
from typing import Any

from kube_nftlb.agent.status.node_status import node_status
from kube_nftlb.agent.sync.progress import KubeProxy, Problem, Progress
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.node import NodeStatus, NodeVersions
from kube_nftlb.reasons import KubeProxyReason

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def conditions(status: NodeStatus) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status, condition.reason) for condition in status.conditions}


def synced(**fields: Any) -> Progress:
    """The progress of an agent that has programmed all farms once."""
    progress = Progress(**fields)
    progress.other_lag.done_at = progress.lag.done_at = 1.0
    return progress


def report(progress: Progress, before: NodeStatus | None = None, now: datetime = NOW) -> NodeStatus:
    return node_status(progress, {}, NodeVersions(), before, now)


def test_all_is_well() -> None:
    assert conditions(report(synced(watermark=7))) == {
        "Ready": ("True", "AgentReady"),
        "NftlbReachable": ("True", "Reachable"),
        "InSync": ("True", "InSync"),
    }


def test_an_agent_that_has_programmed_nothing_yet_is_not_in_sync() -> None:
    status = report(Progress())
    said = conditions(status)
    assert said["InSync"] == ("False", "Pending")
    assert said["Ready"] == ("True", "AgentReady"), "by which gates and statuses are judged: a restart changes nothing"


def test_an_agent_whose_passes_fail_is_not_in_sync_and_says_why() -> None:
    why = "not permitted"
    for progress in (synced(pass_error=why), Progress(pass_error=why, pending=3)):
        status = report(progress)
        assert conditions(status)["InSync"] == ("False", "SyncFailed")
        assert "not permitted" in next(each.message for each in status.conditions if each.type == "InSync")
        assert conditions(status)["Ready"] == ("True", "AgentReady"), "gates and statuses go on as they did"


def test_farms_that_wait_for_nftlb_are_named_though_nothing_else_is_to_be_done() -> None:
    progress = synced(problems={FarmKey("default", "web"): Problem("NftlbUnreachable", "it hangs", 1)})
    progress.lag.done_at = None
    assert conditions(report(progress))["InSync"] == ("False", "FarmsFailed")


def test_the_version_of_nftlb_is_shown() -> None:
    assert report(synced(nftlb_version="unpatched")).versions.nftlb == "unpatched"


def test_a_silent_nftlb_makes_the_node_not_ready() -> None:
    said = conditions(report(synced(engine_error="connection refused")))
    assert said["Ready"] == ("False", "NftlbUnreachable")
    assert said["NftlbReachable"] == ("False", "Unreachable")


def test_what_there_is_of_kube_proxy_is_a_condition_once_somebody_has_looked() -> None:
    truths: dict[KubeProxyReason, str] = {
        "NoKubeProxy": "True",
        "KubeProxyRuns": "False",
        "KubeProxyRulesReturned": "False",
        "KubeProxyUnknown": "Unknown",
    }
    for reason, truth in truths.items():
        progress = synced(kube_proxy=KubeProxy(reason, "so it is"))
        assert conditions(report(progress))["KubeProxyGone"] == (truth, reason)


def failures(namespace: str, count: int) -> dict[FarmKey, Problem]:
    return {FarmKey(namespace, f"f{number:03}"): Problem("Refused", "x" * 2000, 3) for number in range(count)}


def test_failed_farms_are_listed_and_bounded() -> None:
    status = report(synced(problems=failures("crowd", 150) | failures("default", 2), watermark=9, slice_watermark=8))
    assert status.failed == 152
    assert len(status.failed_farms) == 100
    assert [farm.name for farm in status.failed_farms if farm.namespace == "default"] == ["f000", "f001"]
    assert len(status.failed_farms[0].message) == 512
    assert status.failed_namespaces == ("crowd",), "the others of it must not count as programmed"
    assert (status.watermark, status.slice_watermark) == ("9", "8"), "farms of other namespaces are programmed"
    assert conditions(status)["InSync"] == ("False", "FarmsFailed")


def test_nothing_counts_as_programmed_if_too_many_namespaces_have_failures() -> None:
    problems = {FarmKey(f"n{number:04}", "f"): Problem("Refused", "no", 3) for number in range(1101)}
    status = report(synced(problems=problems, watermark=9))
    assert (status.watermark, status.slice_watermark) == ("0", "0")
    assert len(status.failed_namespaces) == 1000


def test_a_setting_without_effect_is_a_warning_and_no_failure() -> None:
    problems = {FarmKey("default", "web"): Problem("NoEffect", "a session names no backend", 3)}
    status = report(synced(problems=problems, watermark=9))
    assert conditions(status)["InSync"] == ("True", "InSync")
    assert (status.failed, status.failed_farms, status.watermark) == (0, (), "9")
    assert [(warning.name, warning.reason) for warning in status.warnings] == [("web", "NoEffect")]


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    first = report(synced())
    later = NOW + timedelta(hours=1)
    same = report(synced(), first, later)
    assert [c.last_transition_time for c in same.conditions] == ["2026-01-01T00:00:00Z"] * 3
    changed = report(synced(pending=1), same, later)
    times = {c.type: c.last_transition_time for c in changed.conditions}
    assert times == {
        "Ready": "2026-01-01T00:00:00Z",
        "NftlbReachable": "2026-01-01T00:00:00Z",
        "InSync": "2026-01-01T01:00:00Z",
    }
