"""Events about the Node."""

from collections.abc import Iterable

import pytest

from kube_nftlb.agent.node.own_node import OwnNode
from kube_nftlb.agent.status.node_events import LASTS_S, NodeEvents, problems_of_node
from kube_nftlb.agent.sync.progress import KubeProxy, Problem, Progress
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.kube.event_limits import Finding
from kube_nftlb.kube.events import Events, Subject
from kube_nftlb.reasons import EventReason

WEB = FarmKey("default", "web--http")


class RecordingEvents(Events):
    """Events that are only recorded."""

    def __init__(self) -> None:
        self.lasting: set[str] = set()
        self.resolved: list[str] = []

    def report(self, subject: Subject, findings: Iterable[Finding], about: str = "") -> None:
        assert (subject.resource.kind, subject.namespace, subject.name, subject.uid) == ("Node", "", "node-1", "uid")
        self.lasting = {problem.reason for problem in findings}

    def report_resolved(self, subject: Subject, reason: EventReason, message: str) -> None:
        self.resolved.append(reason)


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
    assert recorded.lasting == set()
    progress.engine_error = None
    events.look(LASTS_S)
    assert (recorded.lasting, recorded.resolved) == (set(), [])


def test_a_lasting_problem_and_its_end_are_reported(
    events: NodeEvents, recorded: RecordingEvents, progress: Progress
) -> None:
    progress.engine_error = "refused"
    events.look(0)
    events.look(LASTS_S)
    assert recorded.lasting == {"NftlbUnreachable"}
    progress.engine_error = None
    progress.problems[WEB] = Problem("KernelFeatureMissing", "the helper ftp needs a kernel with it")
    events.look(LASTS_S + 1)
    assert (recorded.lasting, recorded.resolved) == (set(), ["NftlbReachable"])
    events.look(2 * LASTS_S + 1)
    assert recorded.lasting == {"FarmsFailed"}
    progress.problems.clear()
    events.look(2 * LASTS_S + 2)
    assert recorded.resolved == ["NftlbReachable", "FarmsProgrammed"]


def test_nothing_is_reported_of_an_unknown_node(recorded: RecordingEvents, progress: Progress) -> None:
    progress.engine_error = "refused"
    events = NodeEvents(recorded, OwnNode("node-1"), progress)
    events.look(0)
    events.look(LASTS_S)
    assert recorded.lasting == set()


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
    assert recorded.lasting == set()
    progress.kube_proxy = KubeProxy("KubeProxyRulesReturned", "they are back", rules=True)
    events.look(10)
    events.look(10 + LASTS_S)
    assert recorded.lasting == {"KubeProxyRulesReturned"}
    for reason in ("KubeProxyRuns", "KubeProxyUnknown", "KubeProxyRulesPending", "KubeProxyRulesLeft"):
        progress.kube_proxy = KubeProxy(reason, "it is still there", rules=True)
        events.look(20)
        events.look(20 + LASTS_S)
    assert recorded.resolved == [], "there are rules of it"
    progress.kube_proxy = KubeProxy("NoKubeProxy", "none")
    events.look(30)
    assert recorded.resolved == ["KubeProxyGone"]
