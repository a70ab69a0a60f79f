"""What of the API server's events is told to the reconciler."""

from typing import Any

import pytest

from kube_nftlb.agent import informers
from kube_nftlb.agent.informers import watch_farms
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.client import Listing, WatchEvent
from tests.builders import raw_farm


class Told:
    """A reconciler and the health checks in one, which only remember."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.version = 0

    def replace_all(self, farms, version=None):
        self.calls.append(("all", sorted(farm.metadata.name for farm in farms)))

    def put(self, farm):
        self.calls.append(("put", farm.metadata.generation))

    def put_unreadable(self, key, problem, version, refers):
        self.calls.append(("refuse", problem.generation))

    def remove(self, key, version=None):
        self.calls.append(("remove", key))

    def seen(self, version):
        self.version = version


@pytest.fixture
async def events(monkeypatch):
    """The callbacks of the watch, and what they told; a farm is there, at version 10."""
    found: dict[str, Any] = {}

    async def follow(_kube, _resource, **callbacks):
        found.update(callbacks)

    monkeypatch.setattr(informers, "follow", follow)
    reconciler, health_checks = Told(), Told()
    await watch_farms(None, reconciler, health_checks)

    def on_list(raw: list[dict[str, Any]], version: str) -> None:
        found["on_list"](Listing([found["transform"](farm) for farm in raw], version))

    on_list([raw_farm()], "12")
    assert reconciler.calls == [("all", ["web--http"])]
    reconciler.calls.clear()
    health_checks.calls.clear()
    return found["on_event"], on_list, reconciler, health_checks


def test_a_status_is_not_told_and_yet_seen(events):
    on_event, _, reconciler, health_checks = events
    on_event(WatchEvent("MODIFIED", {**raw_farm(version=13), "status": {"reason": "AllNodes"}}))
    assert (reconciler.calls, health_checks.calls, reconciler.version) == ([], [], 13)
    on_event(WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "20"}}))
    assert (reconciler.calls, reconciler.version) == ([], 20)


@pytest.mark.parametrize("changed", [{"generation": 2}, {"owner": "web"}])
def test_what_makes_it_another_farm_is_told_once(events, changed):
    on_event, _, reconciler, health_checks = events
    for version in (13, 14):
        on_event(WatchEvent("MODIFIED", raw_farm(version=version, **changed)))
    told = [("put", changed.get("generation", 1))]
    assert (reconciler.calls, health_checks.calls, reconciler.version) == (told, told, 14)


def test_one_that_cannot_be_read_is_refused_once_and_read_when_it_is_mended(events):
    on_event, _, reconciler, _ = events
    for version in (13, 14):
        on_event(WatchEvent("MODIFIED", raw_farm(version=version, generation=2, scheduler="none such")))
    on_event(WatchEvent("MODIFIED", raw_farm(version=15, generation=3)))
    assert reconciler.calls == [("refuse", 2), ("put", 3)]


def test_one_that_was_deleted_and_made_again_is_told_again(events):
    on_event, on_list, reconciler, _ = events
    on_event(WatchEvent("DELETED", raw_farm(version=13)))
    on_event(WatchEvent("ADDED", raw_farm(version=14)))
    assert reconciler.calls == [("remove", FarmKey("default", "web--http")), ("put", 1)]
    # After a gap in the watch there is a list, of which nothing is left out.
    on_list([], "15")
    on_event(WatchEvent("ADDED", raw_farm(version=16)))
    assert reconciler.calls[2:] == [("all", []), ("put", 1)]


def test_a_list_with_one_that_cannot_be_read_refuses_that_one_alone(events):
    _, on_list, reconciler, _ = events
    unreadable = raw_farm(scheduler="none such", generation=4)
    unreadable["metadata"]["name"] = "other"
    on_list([unreadable, raw_farm()], "15")
    assert reconciler.calls == [("all", ["web--http"]), ("refuse", 4)]
