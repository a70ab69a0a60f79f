"""When what the farms tell was changed in the cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, SERVICES
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import CacheWriter
from kube_nftlb.operator.cache.pending_changes import PendingChange, PendingChanges
from kube_nftlb.operator.cache.slices import ServiceKey
from kube_nftlb.operator.farms.builder import build
from kube_nftlb.operator.sync.diff import Writes, diff
from tests.builders import endpoint, raw_service, raw_slice

WEB = ServiceKey("default", "web")
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
FIRST, SECOND = (BEGUN + timedelta(seconds=seconds) for seconds in (1, 2))


def changed_slice(version: int, text: str, name: str = "web-1") -> dict[str, Any]:
    raw = raw_slice(endpoint(f"10.244.0.{version}"), version=version, name=name)
    raw["metadata"]["annotations"] = {names.ANNOTATION_TRIGGER_TIME: text}
    return raw


def test_the_oldest_of_the_changes_that_wait_counts() -> None:
    changes = PendingChanges()
    changes.note([WEB], PendingChange(slices=1, made_at=SECOND))
    changes.note([WEB], PendingChange(services=1))
    changes.note([WEB], PendingChange(slices=1, made_at=FIRST))
    assert changes.begin(WEB) == PendingChange(1, 2, FIRST)


def test_what_comes_in_while_a_service_is_written_waits_for_the_next_time() -> None:
    changes = PendingChanges()
    changes.note([WEB], PendingChange(slices=1, made_at=FIRST))
    changes.begin(WEB)
    changes.note([WEB], PendingChange(slices=1, made_at=SECOND))
    assert changes.pending() == PendingChange(0, 2, FIRST)
    changes.done(WEB)
    assert changes.begin(WEB) == PendingChange(0, 1, SECOND)
    changes.done(WEB)
    assert changes.pending() == PendingChange()


def test_a_new_leader_does_not_measure_what_it_saw_on_standby() -> None:
    changes = PendingChanges()
    changes.note([WEB], PendingChange(slices=1, made_at=FIRST))
    changes.forget()
    assert changes.pending() == changes.begin(WEB) == PendingChange()


def test_a_change_whose_write_failed_is_not_forgotten() -> None:
    changes = PendingChanges()
    changes.note([WEB], PendingChange(slices=1, made_at=FIRST))
    changes.begin(WEB)
    assert changes.begin(WEB) == PendingChange(0, 1, FIRST)


@pytest.mark.parametrize(
    ("text", "made_at"),
    [
        pytest.param("2026-01-01T00:00:01Z", FIRST, id="a second"),
        pytest.param("2026-01-01T00:00:01.000000999Z", FIRST, id="nanoseconds"),
        pytest.param("2026-01-01T01:00:01+01:00", FIRST, id="another time zone"),
        pytest.param("2025-12-31T23:59:59Z", None, id="from before the start"),
        pytest.param("2026-01-01T00:00:01", None, id="no time zone"),
        pytest.param("yesterday\n", None, id="no time"),
    ],
)
def test_the_time_of_a_slices_change(text: str, made_at: datetime | None) -> None:
    writer = CacheWriter(Cache(), BEGUN)
    writer.put(ENDPOINT_SLICES, changed_slice(1, text))
    assert writer.changes.begin(WEB).made_at == made_at


def test_a_slice_that_goes_tells_no_time() -> None:
    writer = CacheWriter(Cache(), BEGUN)
    writer.put(ENDPOINT_SLICES, raw_slice())
    writer.remove(ENDPOINT_SLICES, changed_slice(2, "2026-01-01T00:00:01Z"))
    assert writer.changes.begin(WEB) == PendingChange(slices=2)


def planned(cache: Cache, made_at: datetime | None) -> Writes:
    service = cache.services.get(WEB)
    assert service is not None
    built = build(service, cache.slices_of(WEB), lambda _pod: ())
    contenders, farm_at = cache.contenders, cache.farms.get
    return diff(service, built, cache.farms_of(WEB), contenders=contenders, farm_at=farm_at, made_at=made_at)


def test_only_a_farm_that_changes_is_written_with_the_time() -> None:
    cache = Cache()
    writer = CacheWriter(cache)
    writer.put(SERVICES, raw_service())
    (apply,) = planned(cache, FIRST).applies
    assert apply.body["metadata"]["annotations"] == {names.ANNOTATION_CHANGED_AT: "2026-01-01T00:00:01.000000Z"}
    (apply,) = planned(cache, None).applies
    assert "annotations" not in apply.body["metadata"]
    assert apply.key == FarmKey("default", "web--http")
    written = {
        **apply.body,
        "metadata": {**apply.body["metadata"], "uid": "u", "resourceVersion": "5", "generation": 1},
    }
    writer.put(FARMS, written)
    assert planned(cache, SECOND).applies == ()
