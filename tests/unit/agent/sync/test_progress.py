"""The lag of changes that wait, and the watermark for EndpointSlices."""

from kube_nftlb.agent.sync.progress import Lag, SliceWatermark
from kube_nftlb.api.conflicts import FarmKey


def test_nothing_waits_at_the_start_and_nothing_was_done() -> None:
    lag = Lag()
    assert lag.done_at is None
    assert not lag.overdue(60, now=1000)


def test_a_change_that_is_not_done_in_time_is_overdue_until_it_is_done() -> None:
    lag = Lag()
    lag.queued((10,), now=100)
    assert not lag.overdue(60, now=160)
    assert lag.overdue(60, now=161)
    lag.advanced((9,), (10,), now=162, pending=True)
    assert lag.overdue(60, now=162)
    lag.advanced((10,), (10,), now=163, pending=False)
    assert not lag.overdue(60, now=1000)
    assert lag.done_at == 163


def test_further_changes_do_not_make_the_first_one_younger() -> None:
    lag = Lag()
    for version in range(10, 80):
        lag.queued((version,), now=90 + version)
    assert lag.overdue(60, now=161)


def test_changes_without_pause_that_are_done_in_time_are_not_overdue() -> None:
    lag = Lag()
    for second in range(1000):
        lag.queued((second + 10,), now=second)
        lag.advanced((second + 8,), (second + 10,), now=second, pending=True)
        assert not lag.overdue(60, now=second)
    assert lag.done_at is not None
    assert lag.done_at > 990


def test_a_look_that_finds_nothing_to_do_counts_as_done() -> None:
    lag = Lag()
    lag.advanced((20,), (0,), now=5, pending=False)
    assert lag.done_at == 5


def test_each_watch_has_a_watermark_of_its_own() -> None:
    lag = Lag()
    lag.queued((10, 500), now=1)
    lag.advanced((900, 499), (10, 500), now=5, pending=True)
    assert lag.overdue(3, now=5)
    lag.advanced((10, 500), (10, 501), now=6, pending=True)
    assert lag.done_at == 6
    assert not lag.overdue(3, now=6)


WEB, SHOP = FarmKey("default", "web--http"), FarmKey("default", "shop--http")


def test_without_changes_it_is_what_was_seen() -> None:
    slices = SliceWatermark()
    assert slices.update(set()) == 0
    slices.seen(20)
    slices.seen(10)
    assert slices.update(set()) == 20


def test_it_stops_before_the_oldest_change_that_is_pending() -> None:
    slices = SliceWatermark()
    slices.changed([WEB], 11)
    slices.changed([WEB, SHOP], 15)
    slices.seen(20)
    assert (slices.update({WEB, SHOP}), slices.pending, slices.changed_at) == (10, 2, 15)
    assert (slices.update({SHOP}), slices.pending) == (14, 1)
    assert (slices.update(set()), slices.pending) == (20, 0)


def test_farms_that_wait_for_something_else_do_not_count() -> None:
    slices = SliceWatermark()
    slices.seen(20)
    assert slices.update({WEB}) == 20


def test_a_farm_whose_endpoints_change_all_the_time_holds_the_watermark_only_since_what_was_not_taken() -> None:
    slices, pending = SliceWatermark(), {WEB}
    slices.changed([WEB], 7)
    slices.taken([WEB])
    slices.changed([WEB], 9)
    slices.changed([WEB], 11)
    slices.seen(11)
    assert slices.update(pending) == 6, "the change of 7 is not verified"
    slices.verified(WEB)
    assert slices.update(pending) == 8
    slices.taken([WEB])
    slices.verified(WEB)
    assert slices.update(set()) == 11


def test_a_farm_that_is_incomplete_holds_the_watermark_of_slices_though_it_is_verified() -> None:
    slices, pending = SliceWatermark(), {WEB}
    slices.changed([WEB], 7)
    slices.taken([WEB])
    slices.incomplete([WEB])
    slices.changed([WEB], 9)
    slices.seen(9)
    slices.verified(WEB)
    assert slices.update(pending) == 6


def test_it_never_goes_back_though_a_slice_that_was_cut_changes_a_farm_long_after_it_changed() -> None:
    slices = SliceWatermark()
    slices.seen(20)
    slices.changed([WEB], 7)
    assert slices.update({WEB}) == 20
    slices.seen(25)
    assert slices.update({WEB}) == 20, "the farm waits"
    assert slices.update(set()) == 25


def test_a_slice_that_was_cut_does_not_have_changes_without_pause_overdue() -> None:
    slices, lag = SliceWatermark(), Lag()
    slices.seen(20)
    slices.changed([WEB], 7)
    lag.queued((slices.changed_at,), now=0)
    # The farm is programmed; others change all the time, and no EndpointSlice does.
    lag.advanced((slices.update({SHOP}),), (slices.changed_at,), now=30, pending=True)
    assert not lag.overdue(60, now=61)


def test_it_does_not_pass_what_a_list_may_still_bring() -> None:
    slices = SliceWatermark()
    slices.seen(20)
    slices.changed([WEB], 30)
    assert slices.update({WEB}) == 20
    slices.changed([SHOP], 25)
    slices.seen(40)
    assert slices.update({WEB, SHOP}) == 24
