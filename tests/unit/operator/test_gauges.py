"""The gauges of the leader."""

import pytest
from prometheus_client import Gauge

from kube_nftlb import metrics
from kube_nftlb.kube.events import Events, Source
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, SERVICES
from kube_nftlb.operator import gauges
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.reconciler import Reconciler
from tests.builders import endpoint, raw_backend, raw_farm, raw_service, raw_service_farm, raw_slice
from tests.fakes.kube import FakeKube


@pytest.fixture
def operator() -> tuple[Ingest, Reconciler]:
    kube, ingest = FakeKube(), Ingest(Cache())
    ingest.put(SERVICES, raw_service())
    backends = [raw_backend("a", "10.244.1.1"), raw_backend("b", "10.244.1.2", ready=False)]
    ingest.put(FARMS, raw_farm("by-hand", addresses=[{"ip": "10.96.0.99", "ports": "80"}], backends=backends))
    ingest.put(FARMS, raw_service_farm(status={"readyBackends": 5, "totalBackends": 7}))
    ingest.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1")))
    return ingest, Reconciler(ingest, FarmWriter(kube, ingest), Events(kube, Source("operator")), clock=lambda: 0)


def values(gauge: Gauge) -> list[float]:
    (family,) = gauge.collect()
    return [sample.value for sample in family.samples]


def test_backends_are_those_written_by_hand_and_those_in_statuses(operator: tuple[Ingest, Reconciler]) -> None:
    gauges.refresh(*operator, leads=True)
    assert [values(metrics.BACKENDS.labels(state)) for state in ("ready", "not_ready")] == [[6], [3]]


def test_changes_of_services_wait_and_those_of_endpoints_do_not_count(operator: tuple[Ingest, Reconciler]) -> None:
    gauges.refresh(*operator, leads=True)
    assert values(metrics.SERVICE_CHANGES_PENDING) == [1]


def test_a_standby_replica_sets_nothing(operator: tuple[Ingest, Reconciler]) -> None:
    gauges.refresh(*operator, leads=True)
    operator[0].changes.forget()
    gauges.refresh(*operator, leads=False)
    assert values(metrics.SERVICE_CHANGES_PENDING) == [1]
