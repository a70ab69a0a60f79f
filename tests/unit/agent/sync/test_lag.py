"""How long changes have waited."""

from kube_nftlb.agent.sync.lag import Lag


def test_nothing_waits_at_the_start_and_nothing_was_done() -> None:
    backlog = Lag()
    assert backlog.done_at is None
    assert not backlog.overdue(60, now=1000)


def test_a_change_that_is_not_done_in_time_is_overdue_until_it_is_done() -> None:
    backlog = Lag()
    backlog.queued(10, now=100)
    assert not backlog.overdue(60, now=160)
    assert backlog.overdue(60, now=161)
    backlog.advanced(9, 10, now=162, pending=True)
    assert backlog.overdue(60, now=162)
    backlog.advanced(10, 10, now=163, pending=False)
    assert not backlog.overdue(60, now=1000)
    assert backlog.done_at == 163


def test_further_changes_do_not_make_the_first_one_younger() -> None:
    backlog = Lag()
    for version in range(10, 80):
        backlog.queued(version, now=90 + version)
    assert backlog.overdue(60, now=161)


def test_changes_without_pause_that_are_done_in_time_are_not_overdue() -> None:
    backlog = Lag()
    for second in range(1000):
        backlog.queued(second + 10, now=second)
        backlog.advanced(second + 8, second + 10, now=second, pending=True)
        assert not backlog.overdue(60, now=second)
    assert backlog.done_at is not None
    assert backlog.done_at > 990


def test_a_look_that_finds_nothing_to_do_counts_as_done() -> None:
    backlog = Lag()
    backlog.advanced(20, 0, now=5, pending=False)
    assert backlog.done_at == 5
