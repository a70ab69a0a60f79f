import errno
import socket
import threading
from contextlib import closing

import pytest

from lab.traffic.answerers import Round
from lab.traffic.answerers import summarize as summarize_answers
from lab.traffic.ask import Target, kind_of
from lab.traffic.count import Tally
from lab.traffic.hammer import Failure, Record, hammer, summarize
from lab.traffic.http import Answer

MS = 1_000_000


def test_replies_are_counted_by_pod_and_peer() -> None:
    tally = Tally()
    for pod in ("a", "b", "a"):
        tally.success(Answer(pod, "10.0.0.1"))
    tally.failure(TimeoutError())
    assert tally.summary() == {"answers": {"a": 2, "b": 1}, "peers": {"10.0.0.1": 3}, "failures": {"timeout": 1}}


def test_the_longest_gap_is_between_successes_of_any_thread() -> None:
    records = [Record([(10 * MS, "a"), (60 * MS, "b")]), Record([(30 * MS, "a")], [Failure(7, "refused", "no")])]
    summary = summarize(records, 0, 70 * MS)
    assert summary["longest_gap_ms"] == 30
    assert summary["attempts"] == 4
    assert summary["answers"] == {"a": 2, "b": 1}
    assert summary["failed"] == {"refused": 1}
    assert summary["failures"] == [{"realtime_ns": 7, "kind": "refused", "error": "no", "established": False}]


def test_connections_that_fail_before_they_are_established_are_told_apart() -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=1)) as silent:
        # It accepts nothing: the kernel establishes two connections, and answers no SYN after that.
        target = Target("127.0.0.1", silent.getsockname()[1], 0.2)
        met = hammer(target, 1, 1, threading.Event())
    refused = hammer(target, 0.1, 1, threading.Event())
    lost = met["attempts"] - 2
    assert met["failed"] == {"timeout": met["attempts"]}
    assert met["failed_to_open"] == {"timeout": lost}
    assert [each["established"] for each in met["failures"]] == [True, True, *[False] * lost]
    assert refused["failed"] == refused["failed_to_open"] == {"refused": refused["attempts"]}


def test_a_connection_that_is_reset_as_the_client_learns_of_it_was_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def reset(_: Target) -> None:
        raise ConnectionResetError

    monkeypatch.setattr("lab.traffic.hammer.connect", reset)
    met = hammer(Target("127.0.0.1", 1, 0.2), 0.1, 1, threading.Event())
    assert met["failed"] == {"reset": met["attempts"]}
    assert met["failed_to_open"] == {}


def test_gaps_include_start_and_end() -> None:
    assert summarize([Record([(40 * MS, "a")])], 0, 50 * MS)["longest_gap_ms"] == 40
    assert summarize([Record()], 0, 50 * MS)["longest_gap_ms"] == 50


def test_failures_have_a_kind() -> None:
    assert kind_of(ConnectionRefusedError()) == "refused"
    assert kind_of(ConnectionResetError()) == "reset"
    assert kind_of(TimeoutError()) == "timeout"
    assert kind_of(OSError(errno.EHOSTUNREACH, "No route to host")) == "unreachable"
    assert kind_of(OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")) == "EADDRNOTAVAIL"
    assert kind_of(IndexError()) == "IndexError"
    assert kind_of(ValueError("?")) == "garbled"


def test_two_answerers_are_counted_from_the_first_question_that_both_answer_until_the_next() -> None:
    answers = [{"a"}, {"a"}, {"a", "b"}, {"b"}, set(), {"b"}, {"a", "b"}]
    rounds = [Round(10 + number / 4, macs) for number, macs in enumerate(answers)]
    summary = summarize_answers(rounds, 12)
    assert summary["two_ms"] == 750
    assert summary["questions"] == 7
    assert summary["answers"] == [
        [10, ["a"]],
        [10.5, ["a", "b"]],
        [10.75, ["b"]],
        [11, []],
        [11.25, ["b"]],
        [11.5, ["a", "b"]],
    ]
    assert summarize_answers([], 1) == {"questions": 0, "two_ms": 0, "answers": []}
