"""The watermark of a node for EndpointSlices."""

from kube_nftlb.agent.sync.progress import SliceWatermark
from kube_nftlb.api.conflicts import FarmKey

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
