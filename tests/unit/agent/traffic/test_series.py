"""The farms and backends that have series, and the values of these."""

import asyncio
import errno
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from kube_nftlb import label_selector, metrics
from kube_nftlb.agent.sync.farm_index import FarmIndex
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.agent.traffic import series
from kube_nftlb.agent.traffic.series import TrafficSeries
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.http_server import Text
from kube_nftlb.metrics.registry import REGISTRIES
from kube_nftlb.netfilter.traffic.report import BackendCounts, ListenerCounts, Report
from kube_nftlb.netfilter.traffic.tally import Counts
from kube_nftlb.settings import TrafficSettings
from tests.builders.farms import raw_backend, raw_farm
from tests.fakes.nft import FakeNft

ORDER = ("farm_namespace", "farm", "backend", "direction")
ALL = TrafficSettings()


class Node:
    """The series of a node with these farms."""

    def __init__(self, index: FarmIndex, settings: TrafficSettings = ALL) -> None:
        self.index = index
        self.now = 0.0
        self._series = TrafficSeries(index, settings, lambda: self.now)

    def add(self, *listeners: ListenerCounts, lost: int = 0) -> None:
        self.now += 5
        self._series.add(Report(5, listeners, lost=lost))

    def end(self) -> None:
        for key in list(self.index):
            self.index.remove(key)
        self.add()


def put(index: FarmIndex, number: int, name: str = "", **metadata: object) -> FarmKey:
    name = name or f"farm-{number}"
    backends = [raw_backend("pod-a", "10.244.1.2", port=8080), raw_backend("pod-b", "10.244.1.3", port=8080)]
    raw = raw_farm(name, addresses=[{"ip": f"10.96.0.{number}", "ports": "80-89"}], backends=backends)
    raw["metadata"] |= metadata
    index.put(Farm.model_validate(raw))
    return FarmKey("default", name)


def traffic(number: int, new: int = 1, *, port: int = 80, pod: str = "10.244.1.2") -> ListenerCounts:
    counts = Counts(new, 2 * new, 10 * new, 100 * new)
    return ListenerCounts("TCP", f"10.96.0.{number}", port, counts, (BackendCounts(pod, 8080, counts),))


def exported() -> dict[tuple[str, ...], float]:
    """Every sample of a farm or backend: its name and the values of its labels."""
    body = metrics.Page("agent", lambda: None).answer("/metrics").body
    assert isinstance(body, Text)
    return {
        (sample.name.removeprefix("kube_nftlb_"), *(sample.labels[name] for name in ORDER if name in sample.labels)): (
            sample.value
        )
        for family in text_string_to_metric_families(body.content.decode())
        for sample in family.samples
        if "farm_namespace" in sample.labels
    }


def sample(name: str, **labels: str) -> float | None:
    return REGISTRIES["agent"].get_sample_value(name, labels)


@pytest.fixture
def index() -> FarmIndex:
    return FarmIndex(Policies(), FeatureProbe(FakeNft()))


@pytest.fixture
def node(index: FarmIndex) -> Iterator[Node]:
    made = Node(index)
    yield made
    made.end()
    assert exported() == {}


def test_a_farm_and_its_backends_are_summed_over_their_ports_and_reports(index: FarmIndex, node: Node) -> None:
    put(index, 1)
    node.add(traffic(1, 3), traffic(1, 4, port=89, pod="10.244.1.3"))
    node.add(traffic(1, 1))
    assert exported() == {
        ("farm_connections_total", "default", "farm-1"): 8,
        ("farm_open_connections", "default", "farm-1"): 2,
        ("farm_bytes_total", "default", "farm-1", "sent"): 80,
        ("farm_bytes_total", "default", "farm-1", "answered"): 800,
        ("backend_connections_total", "default", "farm-1", "pod-a"): 4,
        ("backend_connections_total", "default", "farm-1", "pod-b"): 4,
        ("backend_open_connections", "default", "farm-1", "pod-a"): 2,
        ("backend_open_connections", "default", "farm-1", "pod-b"): 0,
        ("backend_bytes_total", "default", "farm-1", "pod-a", "sent"): 40,
        ("backend_bytes_total", "default", "farm-1", "pod-a", "answered"): 400,
        ("backend_bytes_total", "default", "farm-1", "pod-b", "sent"): 40,
        ("backend_bytes_total", "default", "farm-1", "pod-b", "answered"): 400,
    }


def test_a_farm_that_goes_takes_its_series_along(index: FarmIndex, node: Node) -> None:
    put(index, 1)
    node.add(traffic(1))
    assert exported()
    index.remove(FarmKey("default", "farm-1"))
    node.add()
    assert exported() == {}


def test_what_others_translate_is_not_counted(index: FarmIndex, node: Node) -> None:
    put(index, 1)
    node.add(traffic(9), traffic(1, port=443))
    assert exported() == {}


def test_thousands_of_farms_have_no_more_series_than_the_settings_allow(index: FarmIndex) -> None:
    node = Node(index, TrafficSettings(farms=3, backends=1))
    for number in range(1, 200):
        put(index, number)
    node.add(*(traffic(number, number, pod=f"10.244.1.{2 + pod}") for number in range(1, 200) for pod in (0, 1)))
    assert {labels[2] for labels in exported()} == {"farm-197", "farm-198", "farm-199"}
    assert len([labels for labels in exported() if labels[0] == "backend_connections_total"]) == 3
    assert sample("kube_nftlb_traffic_farms", state="exported") == 3
    assert sample("kube_nftlb_traffic_farms", state="omitted") == 196
    node.end()
    assert exported() == {}


@pytest.mark.parametrize(
    ("selector", "names"),
    [("team=a", {"farm-1"}), ("kubernetes.io/metadata.name=default", {"farm-1", "farm-2"}), ("team=b", set())],
)
def test_only_selected_farms_have_series(index: FarmIndex, selector: str, names: set[str]) -> None:
    node = Node(index, TrafficSettings(selector=label_selector.parse(selector)))
    put(index, 1, labels={"team": "a"})
    put(index, 2)
    node.add(traffic(1), traffic(2))
    assert {labels[2] for labels in exported()} == names
    # A farm whose labels change has the same generation.
    put(index, 1, labels={"team": "c"})
    node.add(traffic(1), traffic(2))
    assert {labels[2] for labels in exported()} == names - ({"farm-1"} if selector == "team=a" else set())
    node.end()


def test_a_backend_that_is_gone_is_named_by_its_address(index: FarmIndex, node: Node) -> None:
    put(index, 1)
    node.add(traffic(1, pod="10.244.7.7"))
    assert ("backend_connections_total", "default", "farm-1", "10.244.7.7:8080") in exported()


def test_a_pod_that_gets_the_address_of_another_gets_its_own_name(index: FarmIndex, node: Node) -> None:
    put(index, 1)
    node.add(traffic(1))
    successor = raw_farm(
        "farm-1",
        addresses=[{"ip": "10.96.0.1", "ports": "80-89"}],
        backends=[raw_backend("pod-c", "10.244.1.2", port=8080)],
        generation=2,
    )
    index.put(Farm.model_validate(successor))
    node.now += 60
    node.add(traffic(1))
    named = {labels[3] for labels in exported() if labels[0] == "backend_connections_total"}
    assert named == {"pod-c"}
    successor["metadata"]["generation"] = 3
    successor["spec"]["backends"] = []
    index.put(Farm.model_validate(successor))
    node.now += 60
    node.add(traffic(1))
    named = {labels[3] for labels in exported() if labels[0] == "backend_connections_total"}
    assert named == {"pod-c"}, "until its connections have ended"


def test_lost_events_are_counted(node: Node) -> None:
    before = sample("kube_nftlb_traffic_events_lost_total") or 0
    node.add(lost=2)
    assert sample("kube_nftlb_traffic_events_lost_total") == before + 2


async def test_a_node_that_cannot_start_a_process_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), asyncio.CancelledError()])

    async def start(*_args: object, **_options: object) -> None:
        raise next(outcomes)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    monkeypatch.setattr(series, "_RETRY_S", 0)
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await series.count_traffic(lambda _: None)
    assert [entry["event"] for entry in logs] == ["cannot count traffic, starting again"]
