"""Events about the Node."""

import pytest

from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.status.node_events import LASTS_S, NodeEvents, problems_of_node
from kube_nftlb.agent.sync.progress import KubeProxy, Problem, Progress
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.kube.events import Subject
from kube_nftlb.kube.resources import NODES
from tests.fakes.events import RecordingEvents

WEB = FarmKey("default", "web--http")


def lasting(recorded: RecordingEvents) -> set[str]:
    assert {subject for subject, _ in recorded.reports} <= {Subject(NODES, "", "node-1", "uid")}
    return {reason for found in recorded.reported.values() for reason, _ in found}


def resolved(recorded: RecordingEvents) -> list[str]:
    return [reason for _, reason, _ in recorded.news]


@pytest.fixture
def recorded() -> RecordingEvents:
    return RecordingEvents()


@pytest.fixture
def progress() -> Progress:
    return Progress()


@pytest.fixture
def events(recorded: RecordingEvents, progress: Progress) -> NodeEvents:
    own_node = OwnNode("node-1")
    own_node.update(CoreNode.model_validate({"metadata": {"name": "node-1", "uid": "uid"}}))
    return NodeEvents(recorded, own_node, progress)


def test_a_short_problem_is_not_reported(events: NodeEvents, recorded: RecordingEvents, progress: Progress) -> None:
    progress.engine_error = "refused"
    events.look(0)
    events.look(LASTS_S - 0.1)
    assert lasting(recorded) == set()
    progress.engine_error = None
    events.look(LASTS_S)
    assert (lasting(recorded), resolved(recorded)) == (set(), [])


def test_a_lasting_problem_and_its_end_are_reported(
    events: NodeEvents, recorded: RecordingEvents, progress: Progress
) -> None:
    progress.engine_error = "refused"
    events.look(0)
    events.look(LASTS_S)
    assert lasting(recorded) == {"NftlbUnreachable"}
    progress.engine_error = None
    progress.problems[WEB] = Problem("KernelFeatureMissing", "the helper ftp needs a kernel with it")
    events.look(LASTS_S + 1)
    assert (lasting(recorded), resolved(recorded)) == (set(), ["NftlbReachable"])
    events.look(2 * LASTS_S + 1)
    assert lasting(recorded) == {"FarmsFailed"}
    progress.problems.clear()
    events.look(2 * LASTS_S + 2)
    assert resolved(recorded) == ["NftlbReachable", "FarmsProgrammed"]


def test_nothing_is_reported_of_an_unknown_node(recorded: RecordingEvents, progress: Progress) -> None:
    progress.engine_error = "refused"
    events = NodeEvents(recorded, OwnNode("node-1"), progress)
    events.look(0)
    events.look(LASTS_S)
    assert lasting(recorded) == set()


def test_the_sentence_names_the_first_farm_and_what_to_do(progress: Progress) -> None:
    progress.problems = {
        WEB: Problem("KernelFeatureMissing", "the helper ftp needs a kernel with it"),
        FarmKey("a", "z"): Problem("NoEffect", "a session names no backend"),
    }
    (problem,) = problems_of_node(progress, "node-1")
    assert problem.message.startswith(
        "not programmed as asked: 1 farm; the first: default/web--http: KernelFeatureMissing: the"
    )
    assert problem.message.endswith("kubectl describe nftlbnode node-1")
    del progress.problems[WEB]
    assert problems_of_node(progress, "node-1") == []


def test_rules_of_kube_proxy_that_stay_are_reported_and_a_kube_proxy_that_runs_is_not(
    events: NodeEvents, progress: Progress, recorded: RecordingEvents
) -> None:
    progress.kube_proxy = KubeProxy("KubeProxyRuns", "it listens", rules=True)
    events.look(0)
    events.look(LASTS_S)
    assert lasting(recorded) == set()
    progress.kube_proxy = KubeProxy("KubeProxyRulesReturned", "they are back", rules=True)
    events.look(10)
    events.look(10 + LASTS_S)
    assert lasting(recorded) == {"KubeProxyRulesReturned"}
    for reason in ("KubeProxyRuns", "KubeProxyUnknown", "KubeProxyRulesPending", "KubeProxyRulesLeft"):
        progress.kube_proxy = KubeProxy(reason, "it is still there", rules=True)
        events.look(20)
        events.look(20 + LASTS_S)
    assert resolved(recorded) == [], "there are rules of it"
    progress.kube_proxy = KubeProxy("NoKubeProxy", "none")
    events.look(30)
    assert resolved(recorded) == ["KubeProxyGone"]
