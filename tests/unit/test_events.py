from datetime import UTC, datetime

from kube_nftlb.events import Memory, Source, Subject, event
from kube_nftlb.kube import SERVICES
from kube_nftlb.operator.problems import Problem

A, B = Problem("InvalidAnnotation", "a"), Problem("InvalidAnnotation", "b")


def test_a_problem_is_news_once_for_as_long_as_it_lasts():
    memory = Memory()
    assert memory.news("uid", [A, B, A]) == [A, B]
    assert memory.news("uid", [A, B]) == []


def test_a_problem_that_comes_back_is_news_again():
    memory = Memory()
    memory.news("uid", [A])
    assert memory.news("uid", [B]) == [B]
    assert memory.news("uid", [A, B]) == [A]


def test_the_memory_is_bounded():
    memory = Memory()
    for i in range(5000):
        memory.news(str(i), [A])
    assert memory.news("0", [A]) == [A]
    assert memory.news("4999", [A]) == []


def test_an_event_names_its_object_and_fits():
    subject = Subject(SERVICES, "default", "web", "uid")
    source = Source("kube-nftlb-agent", "node-1")
    made = event(subject, Problem("FarmRefused", "x" * 5000), source, datetime(2026, 1, 1, tzinfo=UTC))
    assert made["involvedObject"]["apiVersion"] == "v1"
    assert (made["type"], made["reason"], made["firstTimestamp"]) == ("Warning", "FarmRefused", "2026-01-01T00:00:00Z")
    assert made["source"] == {"component": "kube-nftlb-agent", "host": "node-1"}
    assert len(made["message"]) == 1024
    assert made["metadata"]["name"] != event(subject, A, source, datetime.now(UTC))["metadata"]["name"]
