from datetime import UTC, datetime

import pytest

from kube_nftlb.kube.event_limits import Limiter, Memory
from kube_nftlb.kube.events import EventDraft, Lasting, Source, Subject, event
from kube_nftlb.kube.resources import NODES, SERVICES
from kube_nftlb.operator.model.rejections import Rejection

A, B = Rejection("InvalidAnnotation", "a"), Rejection("InvalidAnnotation", "b")


def test_a_problem_is_news_once_for_as_long_as_it_lasts() -> None:
    memory: Memory[str] = Memory()
    assert memory.news("uid", [A, B, A]) == [A, B]
    assert memory.news("uid", [A, B]) == []


def test_a_problem_that_comes_back_is_news_again() -> None:
    memory: Memory[str] = Memory()
    memory.news("uid", [A])
    assert memory.news("uid", [B]) == [B]
    assert memory.news("uid", [A, B]) == [A]


def test_the_memory_keeps_what_exists_however_much_and_little_else() -> None:
    memory: Memory[int] = Memory(lambda number: number >= 40_000)
    for number in range(50_000):
        memory.news(number, [A])
    assert all(memory.news(number, [A]) == [] for number in range(40_000, 50_000))
    memory = Memory(lambda number: number >= 49_999)
    for number in range(50_000):
        memory.news(number, [A])
    assert len(memory) < 5000


def test_a_forgotten_problem_is_news_again() -> None:
    memory: Memory[str] = Memory()
    memory.news("uid", [A, B])
    memory.forget("uid", A)
    assert memory.news("uid", [A, B]) == [A]


def test_an_event_names_its_object_and_fits() -> None:
    subject = Subject(SERVICES, "default", "web", "uid")
    source = Source("kube-nftlb-agent", "node-1")
    made = event(EventDraft(subject, "Warning", "FarmRefused", "x" * 5000), source, datetime(2026, 1, 1, tzinfo=UTC))
    assert made["involvedObject"]["apiVersion"] == "v1"
    assert (made["type"], made["reason"], made["firstTimestamp"]) == ("Warning", "FarmRefused", "2026-01-01T00:00:00Z")
    assert made["source"] == {"component": "kube-nftlb-agent", "host": "node-1"}
    assert len(made["message"]) == 1024
    assert (
        made["metadata"]["name"]
        != event(EventDraft(subject, "Warning", *A), source, datetime.now(UTC))["metadata"]["name"]
    )


@pytest.mark.parametrize("end", ["-", ".", "-."])
def test_the_name_of_an_event_is_valid_however_long_its_subjects(end: str) -> None:
    subject = Subject(SERVICES, "default", "a" * (200 - len(end)) + end + "b", "uid")
    made = event(EventDraft(subject, "Warning", *A), Source("kube-nftlb-agent"), datetime.now(UTC))
    assert all(label == label.strip("-") and label for label in made["metadata"]["name"].split("."))


def test_a_problem_whose_sentence_changes_is_told_once() -> None:
    memory: Memory[str] = Memory()
    assert memory.news("uid", [Lasting("FarmFailed", "node a")])
    assert memory.news("uid", [Lasting("FarmFailed", "node a and 1 more")]) == []


def test_an_event_of_a_node_is_in_the_namespace_default() -> None:
    told = EventDraft(Subject(NODES, "", "node-1", "uid"), "Normal", "NftlbReachable", "nftlb answers again")
    made = event(told, Source("kube-nftlb-agent", "node-1"), datetime(2026, 1, 1, tzinfo=UTC))
    assert (made["metadata"]["namespace"], made["involvedObject"]["namespace"]) == ("default", "")
    assert made["type"] == "Normal"


def test_an_object_with_new_problems_all_the_time_gets_few_events() -> None:
    now = 0.0
    limiter = Limiter(lambda: now)
    assert [limiter.allows("a") for _ in range(30)] == [True] * 25 + [False] * 5
    assert limiter.allows("b")
    now = 301.0
    assert [limiter.allows("a"), limiter.allows("a")] == [True, False]
    now = 100_000.0
    assert sum(limiter.allows("a") for _ in range(100)) == 25


def test_the_limits_of_many_objects_hold_and_are_forgotten_once_they_have_no_effect() -> None:
    now = 0.0
    limiter = Limiter(lambda: now)
    for _ in range(26):
        limiter.allows("a")
    for number in range(10_000):
        limiter.allows(str(number))
    assert not limiter.allows("a")
    now = 10_000.0
    for number in range(10_000, 20_000):
        limiter.allows(str(number))
    assert len(limiter) < 20_000
