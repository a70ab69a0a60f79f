from datetime import UTC, datetime

import pytest

from kube_nftlb.kube.leader_election import DURATION_S, NO_LEASE, Record, Seen, acquisition, parse, released, wait_s

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
LATER = "2026-01-02T03:04:05.000678Z"
EARLIER = "2020-01-01T00:00:00.000000Z"
MINE = Record("7", "me", DURATION_S, EARLIER, EARLIER, 3)
OTHERS = MINE._replace(holder="other")
FREE = MINE._replace(holder="")


@pytest.mark.parametrize(
    ("record", "age_s", "wait"),
    [
        (NO_LEASE, 0, 0),
        (FREE, 0, 0),
        (MINE, 0, 0),
        (MINE, 100, 0),
        (OTHERS, 0, DURATION_S),
        (OTHERS, 14, 1),
        (OTHERS, 15, 0),
        (OTHERS, 100, 0),
        (OTHERS._replace(duration_s=40), 15, 25),
    ],
)
def test_who_must_wait_for_how_long(record: Record, age_s: float, wait: float) -> None:
    assert wait_s(Seen(record, since=1000.0), 1000.0 + age_s, "me") == wait


def test_the_times_in_a_record_of_another_machine_do_not_count() -> None:
    for renewed in (EARLIER, LATER, "2100-01-01T00:00:00.000000Z"):
        assert wait_s(Seen(OTHERS._replace(renewed=renewed), 0.0), 5.0, "me") == 10


@pytest.mark.parametrize(
    ("record", "acquired", "transitions"),
    [(NO_LEASE, LATER, 0), (FREE, LATER, 4), (OTHERS, LATER, 4), (MINE, EARLIER, 3)],
)
def test_taking_over_counts_as_a_transition_and_renewing_does_not(
    record: Record, acquired: str, transitions: int
) -> None:
    assert acquisition(record, NOW, "me") == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": acquired,
        "renewTime": LATER,
        "leaseTransitions": transitions,
    }


def test_a_lease_that_is_given_back_is_anybodys_at_once() -> None:
    raw = {"metadata": {"resourceVersion": "8"}, "spec": released(MINE, NOW)}
    assert wait_s(Seen(parse(raw), 0.0), 0.0, "other") == 0
    assert parse(raw).transitions == 3


def test_what_was_written_is_what_is_read() -> None:
    raw = {"metadata": {"resourceVersion": "8"}, "spec": acquisition(FREE, NOW, "me")}
    assert parse(raw) == Record("8", "me", 15, LATER, LATER, 4)


def test_a_lease_that_says_nothing_is_free() -> None:
    assert parse({"metadata": {"resourceVersion": "1"}}) == Record("1")
