"""Changes of Services that no farm has yet."""

import pytest

from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, SERVICES, JsonObject, Resource
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest, PendingChanges
from tests.builders import endpoint, raw_service, raw_service_farm, raw_slice

WEB, OTHER = ServiceKey("default", "web"), ServiceKey("default", "other")


def test_all_changes_that_wait_are_counted() -> None:
    changes = PendingChanges()
    changes.note([WEB, OTHER])
    changes.note([WEB])
    assert changes.pending() == 3


def test_what_comes_in_while_a_service_is_written_waits_for_the_next_time() -> None:
    changes = PendingChanges()
    changes.note([WEB])
    changes.begin(WEB)
    changes.note([WEB])
    assert changes.pending() == 2
    changes.done(WEB)
    assert changes.pending() == 1
    changes.begin(WEB)
    changes.done(WEB)
    assert changes.pending() == 0


def test_what_is_done_for_one_service_leaves_the_others() -> None:
    changes = PendingChanges()
    changes.note([WEB, OTHER])
    changes.begin(WEB)
    changes.done(WEB)
    changes.begin(WEB)
    changes.done(WEB)
    assert changes.pending() == 1


def test_a_new_leader_does_not_count_what_it_saw_on_standby() -> None:
    changes = PendingChanges()
    changes.note([WEB, OTHER])
    changes.begin(WEB)
    changes.forget()
    assert changes.pending() == 0


def test_a_change_whose_write_failed_is_not_forgotten() -> None:
    changes = PendingChanges()
    changes.note([WEB])
    changes.begin(WEB)
    changes.note([WEB])
    changes.begin(WEB)
    assert changes.pending() == 2
    changes.done(WEB)
    assert changes.pending() == 0


@pytest.mark.parametrize(
    ("resource", "raw", "pending"),
    [
        pytest.param(SERVICES, raw_service(version=2), 1, id="a Service"),
        pytest.param(SERVICES, raw_service(), 0, id="no news of a Service"),
        pytest.param(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1")), 0, id="a slice: farms refer to it"),
        pytest.param(FARMS, raw_service_farm(), 0, id="a farm"),
    ],
)
def test_only_changes_of_services_are_counted(resource: Resource, raw: JsonObject, pending: int) -> None:
    ingest = Ingest(Cache())
    ingest.put(SERVICES, raw_service())
    ingest.changes.forget()
    ingest.put(resource, raw)
    assert ingest.changes.pending() == pending


def test_the_deletion_of_a_service_is_counted_and_that_of_a_slice_is_not() -> None:
    ingest = Ingest(Cache())
    ingest.put(SERVICES, raw_service())
    ingest.put(ENDPOINT_SLICES, raw_slice())
    ingest.changes.forget()
    ingest.remove(ENDPOINT_SLICES, raw_slice(version=2))
    assert ingest.changes.pending() == 0
    ingest.remove(SERVICES, raw_service(version=3))
    assert ingest.changes.pending() == 1
