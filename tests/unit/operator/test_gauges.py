"""The gauges of the leader."""

import asyncio

import pytest
from prometheus_client import Gauge
from prometheus_client.parser import text_string_to_metric_families

from kube_nftlb import metrics
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.http_server import Text
from kube_nftlb.kube.events import Events, Source
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, SERVICES
from kube_nftlb.operator import gauges
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.model.gated_pods import slim
from kube_nftlb.operator.parts import Parts
from kube_nftlb.operator.sync.farm_writer import FarmWriter
from kube_nftlb.operator.sync.reconciler import Reconciler
from kube_nftlb.settings import OperatorSettings
from tests.builders import (
    endpoint,
    raw_backend,
    raw_farm,
    raw_gated_pod,
    raw_nftlb_node,
    raw_service,
    raw_service_farm,
    raw_slice,
)
from tests.builders.pools import raw_pool
from tests.fakes.kube import FakeKube

LABELLED = [
    f"kube_nftlb_{name}"
    for name in ("addresses", "backends", "farms", "nodes", "queue_length", "queue_stalled_seconds")
] + ["kube_nftlb_services_without_address"]
PLAIN = [
    f"kube_nftlb_{name}"
    for name in (
        *("farm_statuses_per_second", "farm_writes_failing", "gated_pods_waiting"),
        "rules_services_changes_pending",
    )
]


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


def exported(parts: Parts) -> dict[str, list[float]]:
    """The figures of the cluster on the page of a replica; no values of one that is absent."""
    answer = metrics.Page("operator", parts.refresh_gauges).answer("/metrics")
    assert isinstance(answer.body, Text)
    families = {each.name: each.samples for each in text_string_to_metric_families(answer.body.content.decode())}
    return {name: [sample.value for sample in families[name]] for name in (*LABELLED, *PLAIN)}


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize(("nodes", "programmed", "pending"), [([], 0, 1), (["n1"], 1, 0)])
async def test_a_farm_is_programmed_only_if_a_node_has_it(nodes: list[str], programmed: int, pending: int) -> None:
    parts = Parts(kube := FakeKube(), OperatorSettings())
    parts.activate()
    for name in nodes:
        parts.ingest.put(NFTLB_NODES, raw_nftlb_node(name, watermark="99"))
    parts.mark(parts.ingest.put(FARMS, kube.put(FARMS, raw_farm("by-hand"))))
    worker = asyncio.create_task(parts.reconciler.statuses.work())
    await asyncio.sleep(1)
    worker.cancel()
    parts.refresh_gauges()
    assert [values(metrics.FARMS.labels(state)) for state in ("programmed", "pending")] == [[programmed], [pending]]


@pytest.mark.usefixtures("virtual_time")
async def test_a_standby_that_led_before_kopf_started_anew_has_no_figures_of_the_cluster() -> None:
    """``main`` makes a new operator in the same process, with the same metrics."""
    led = Parts(FakeKube(), OperatorSettings(addresses=True))
    assert led.ingest.pools is not None
    gated = slim(raw_gated_pod())
    assert gated is not None
    led.activate()
    led.ingest.put(SERVICES, raw_service())
    led.mark(led.ingest.put(FARMS, raw_farm("by-hand", backends=[raw_backend("a", "10.244.1.1")])))
    led.ingest.put(NFTLB_NODES, raw_nftlb_node())
    led.ingest.put_gated_pod(gated)
    led.ingest.pools.replace([raw_pool("office")])
    for _ in range(8):
        led.reconciler.services.backoff.failed(ServiceKey("default", "web"))
    before = exported(led)
    assert all(before.values())
    assert all(before[name] != [0] for name in PLAIN)
    standby = exported(Parts(FakeKube(), OperatorSettings(addresses=True)))
    assert standby == {name: [] if name in LABELLED else [0] for name in before}
