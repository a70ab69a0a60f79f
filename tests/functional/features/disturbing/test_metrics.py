"""Metrics, dashboard and alerts in a real Prometheus."""

import re
import time
from collections.abc import Iterator

import pytest

from kube_nftlb import metrics, names
from tests import engine
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.farms import unique
from tests.functional.features.disturbing.test_disturbances import DAMAGE
from tests.functional.prometheus import Prometheus, alerts, dashboard_queries, running, series_of

QUIET = {
    "kube_nftlb_watch_failures_total",
    "kube_nftlb_addresses",
    "kube_nftlb_addresses_written_total",
    "kube_nftlb_node_addresses",
    "kube_nftlb_services_without_address",
}
"""Series that are only there once something went wrong that these tests do not break, or where pools are."""
TARGET_LABELS = {"job", "component", "namespace", "pod", "node", "instance", "le"}


@pytest.fixture(scope="module")
def scraping(module_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running(module_cluster, tmp_path_factory.mktemp("prometheus")) as prometheus:
        yield prometheus


@pytest.fixture
def prometheus(cluster: Cluster, scraping: Prometheus) -> Prometheus:
    """Prometheus, once it knows no farm of an earlier test."""
    eventually(lambda: cluster.has_forgotten("test-"), "the nodes have no farms")
    for series in ("kube_nftlb_farms", "kube_nftlb_node_farms", "kube_nftlb_backends", "kube_nftlb_node_backends"):
        scraping.becomes(f"changes({series}[3s])", 0)
    return scraping


def test_the_operator_and_each_agent_are_one_target(cluster: Cluster, prometheus: Prometheus) -> None:
    found = {(labels["component"], labels["node"]) for labels, value in prometheus.query("up") if value == 1}
    assert found == {("operator", "node-1"), *(("agent", node) for node in cluster.nodes)}
    programs = {(labels["component"], labels["program"]) for labels, _ in prometheus.query("kube_nftlb_build_info")}
    assert programs == {("operator", "operator"), ("agent", "agent")}


def test_the_metrics_follow_a_service_as_it_comes_grows_breaks_and_goes(
    cluster: Cluster, namespace: str, prometheus: Prometheus
) -> None:
    watched = {
        name: prometheus.value(name)
        for name in (
            "kube_nftlb_rules_services_changes_total",
            "kube_nftlb_rules_endpoints_changes_total",
            'kube_nftlb_farms_applied_total{reason="Created"}',
            'kube_nftlb_farms_deleted_total{reason="ServiceNotServed"}',
            'kube_nftlb_node_farms{state="programmed"}',
            'kube_nftlb_farms{state="programmed"}',
            'kube_nftlb_backends{state="ready"}',
            'kube_nftlb_backends{state="not_ready"}',
            'kube_nftlb_node_backends{state="up"}',
            "kube_nftlb_network_programming_duration_seconds_count",
            "kube_nftlb_sync_duration_seconds_count",
        )
    }

    def gained(name: str, gain: int) -> None:
        prometheus.becomes(name, watched[name] + gain)

    cluster.apply(service("web", namespace))
    cluster.farm_has("web--http", namespace, 0)
    # Pods that start: their slices say when.
    cluster.run("web", 2, namespace)
    cluster.farm_has("web--http", namespace, 2)
    gained('kube_nftlb_farms_applied_total{reason="Created"}', 1)
    gained('kube_nftlb_farms{state="programmed"}', 1)
    gained('kube_nftlb_backends{state="ready"}', 2)
    # Once on each of two nodes.
    gained('kube_nftlb_node_farms{state="programmed"}', 2)
    gained('kube_nftlb_node_backends{state="up"}', 4)
    for name in ("kube_nftlb_rules_services_changes_total", "kube_nftlb_rules_endpoints_changes_total"):
        prometheus.becomes_more(name, watched[name])
    for node in cluster.nodes:
        prometheus.becomes_more(f'kube_nftlb_sync_duration_seconds_count{{node="{node}"}}', 0)

    cluster.scale("web", 3, namespace)
    cluster.farm_has("web--http", namespace, 3)
    gained('kube_nftlb_backends{state="ready"}', 3)
    prometheus.becomes_more(
        "kube_nftlb_network_programming_duration_seconds_count",
        watched["kube_nftlb_network_programming_duration_seconds_count"],
    )

    pod = cluster.pods("web", namespace)[0]
    cluster.lab.pod(False, f"{namespace}/{pod}")
    gained('kube_nftlb_backends{state="not_ready"}', 1)
    gained('kube_nftlb_node_backends{state="up"}', 4)

    # Of a Service that is deleted the garbage collector may be faster than the operator.
    cluster.api.patch("service", "web", namespace, {"metadata": {"labels": {names.LABEL_PROXY_NAME: "other"}}})
    gained('kube_nftlb_farms_deleted_total{reason="ServiceNotServed"}', 1)
    gained('kube_nftlb_node_farms{state="programmed"}', 0)
    gained('kube_nftlb_backends{state="ready"}', 0)
    prometheus.becomes("kube_nftlb_rules_services_changes_pending", 0)
    prometheus.becomes("kube_nftlb_rules_endpoints_changes_pending", 0)


def test_the_programming_latency_is_that_of_a_change_of_pods(
    cluster: Cluster, namespace: str, prometheus: Prometheus
) -> None:
    # Labels of pods have no time of their own: these pods start.
    cluster.apply(service("web", namespace))
    cluster.run("web", 1, namespace)
    cluster.farm_has("web--http", namespace, 1)
    before = {node: _measured(prometheus, node) for node in cluster.nodes}
    # A change of the Service alone has no time that its Pods changed at.
    cluster.api.patch("service", "web", namespace, {"metadata": {"annotations": {f"{_ANNOTATION}scheduler": "weight"}}})
    cluster.wait("farm", "web--http", "Programmed", namespace)
    # Pods tell when they became ready in whole seconds: what comes in the same second is the same change.
    time.sleep(1)
    cluster.scale("web", 3, namespace)
    cluster.farm_has("web--http", namespace, 3)
    for node in cluster.nodes:
        prometheus.becomes_more(f'{_LATENCY}_count{{node="{node}"}}', before[node][0])
        count, total = _measured(prometheus, node)
        assert 0 < (total - before[node][1]) / (count - before[node][0]) < 20


def test_a_farm_that_cannot_be_programmed_or_loses_its_address_is_counted(
    cluster: Cluster, namespace: str, prometheus: Prometheus
) -> None:
    missing = 'kube_nftlb_farms_failed_total{reason="PolicyMissing"}'
    before = prometheus.value(missing)
    listening = {"addresses": [{"ip": unique(), "ports": "80"}]}
    cluster.apply(farm("first", namespace, **listening, policies=["nowhere"]))
    prometheus.becomes('kube_nftlb_node_farms{state="failed"}', 2)
    prometheus.becomes(missing, before + 2)
    cluster.apply(farm("second", namespace, **listening))
    prometheus.becomes('kube_nftlb_node_farms{state="refused"}', 2)
    prometheus.becomes('kube_nftlb_farms{state="refused"}', 1)
    prometheus.becomes('kube_nftlb_farms{state="pending"}', 1)
    cluster.delete("farm", "first", namespace)
    prometheus.becomes('kube_nftlb_node_farms{state="refused"}', 0)
    prometheus.becomes('kube_nftlb_node_farms{state="failed"}', 0)
    prometheus.becomes('kube_nftlb_farms{state="refused"}', 0)


def test_a_service_without_local_backends_is_counted_on_those_nodes(
    cluster: Cluster, namespace: str, prometheus: Prometheus
) -> None:
    name = "kube_nftlb_node_farms_without_local_backends"
    cluster.serve("web", 1, namespace)
    cluster.apply(service("web", namespace, internalTrafficPolicy="Local"))
    cluster.farm_has("web--http", namespace, 1)
    (backend,) = cluster.listed("web--http", namespace, 1)
    (other,) = set(cluster.nodes) - {backend["node"]}
    prometheus.becomes(f'{name}{{node="{other}"}}', 1)
    prometheus.becomes(name, 1)


@pytest.mark.engines
def test_what_others_change_in_the_kernel_is_counted_as_drift(
    cluster: Cluster, namespace: str, prometheus: Prometheus
) -> None:
    node = cluster.nodes[0]
    drift = f'kube_nftlb_drift_repaired_total{{node="{node}"}}'
    different = f'kube_nftlb_kernel_comparisons_total{{node="{node}", result="different"}}'
    before = {name: prometheus.value(name) for name in (drift, different)}
    vip = _service(cluster, namespace)
    cluster.nft(node, DAMAGE[engine.current()]["listener"].format(vip=vip))
    for name, value in before.items():
        prometheus.becomes_more(name, value)


def test_an_nftlb_that_is_away_is_told_and_warned_of(cluster: Cluster, prometheus: Prometheus) -> None:
    node = cluster.nodes[1]
    up = f'kube_nftlb_nftlb_up{{node="{node}"}}'
    unreachable = f'kube_nftlb_nftlb_requests_failed_total{{node="{node}", reason="Unreachable"}}'
    starts = f'kube_nftlb_nftlb_restarts_total{{node="{node}"}}'
    before = {name: prometheus.value(name) for name in (unreachable, starts)}
    cluster.lab.stop("nftlb", node)
    try:
        prometheus.becomes(up, 0)
        prometheus.becomes_more(unreachable, before[unreachable])
        alert = f'ALERTS{{alertname="KubeNftlbNftlbDown", node="{node}"}}'
        prometheus.becomes(alert, 1)
        told = next(
            each for each in prometheus.api("alerts")["alerts"] if each["labels"]["alertname"] == "KubeNftlbNftlbDown"
        )
        assert told["annotations"]["summary"] == f"The agent of node {node} cannot reach nftlb."
        assert f"container nftlb of pod agent-{node}" in told["annotations"]["description"]
    finally:
        cluster.lab.start("nftlb", node)
    prometheus.becomes(up, 1)
    prometheus.becomes(alert, 0)


@pytest.mark.timeout(300)
def test_the_traffic_of_a_farm_and_its_backends_is_counted(
    cluster: Cluster, namespace: str, client: str, prometheus: Prometheus
) -> None:
    vip = _service(cluster, namespace)
    of_farm = f'farm_namespace="{namespace}", farm="web--http", node="{cluster.nodes[0]}"'
    with cluster.streams(4, client, vip):
        prometheus.becomes(f"kube_nftlb_farm_open_connections{{{of_farm}}}", 4)
        prometheus.becomes(f"kube_nftlb_farm_connections_total{{{of_farm}}}", 4)
        for direction in ("sent", "answered"):
            prometheus.becomes_more(f'kube_nftlb_farm_bytes_total{{{of_farm}, direction="{direction}"}}', 0)
        backends = prometheus.query(f"kube_nftlb_backend_open_connections{{{of_farm}}} > 0")
        assert {labels["backend"] for labels, _ in backends} <= set(cluster.pods("web", namespace))
        assert sum(value for _, value in backends) == 4
    prometheus.becomes(f"kube_nftlb_farm_open_connections{{{of_farm}}}", 0)
    prometheus.becomes(f"kube_nftlb_farm_connections_total{{{of_farm}}}", 4)
    # The client is on the first node, which translates.
    assert not prometheus.query(f'kube_nftlb_farm_connections_total{{farm="web--http", node="{cluster.nodes[1]}"}}')
    cluster.delete("service", "web", namespace)
    eventually(lambda: not prometheus.query(f"kube_nftlb_farm_open_connections{{{of_farm}}}"), "the series are gone")


def test_every_query_of_dashboard_and_alerts_asks_for_what_there_is(
    cluster: Cluster, namespace: str, client: str, prometheus: Prometheus
) -> None:
    # Something has gone wrong, and a farm has traffic, so that what counts failures by reason, and farms, is there.
    cluster.apply(farm("guarded", namespace, addresses=[{"ip": unique(), "ports": "81"}], policies=["nowhere"]))
    prometheus.becomes_more('kube_nftlb_farms_failed_total{reason="PolicyMissing"}', 0)
    prometheus.becomes_more('kube_nftlb_events_total{reason="FarmFailed"}', 0)
    with cluster.streams(1, client, _service(cluster, namespace)):
        prometheus.becomes("sum(kube_nftlb_backend_open_connections)", 1)
        # A rate has no value before a series was scraped twice.
        for what in ("farm", "backend"):
            prometheus.becomes_more(f"sum(rate(kube_nftlb_{what}_bytes_total[1m]))", 0)
        wrong = {
            query: _wrong(prometheus, query) for query in (*dashboard_queries(), *(each["expr"] for each in alerts()))
        }
    assert {query: what for query, what in wrong.items() if what} == {}


def _wrong(prometheus: Prometheus, query: str) -> list[str]:
    """What a query asks for in vain, if anything."""
    declared = {series.name: set(series.labels) for series in metrics.SERIES}
    asked = series_of(query)
    known = set(prometheus.api("label/__name__/values"))
    wrong = []
    for name in asked:
        if not name.startswith("process_") and name not in declared:
            wrong.append(f"{name} is not declared")
        if name not in QUIET and not {name, f"{name}_bucket"} & known:
            wrong.append(f"{name} was not scraped")
    labels = TARGET_LABELS.union(*(declared.get(name, set()) for name in asked))
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
    matched = set(re.findall(r"(\w+)(?:=~|!=|=)\"", query))
    wrong += [f"there is no label {label}" for label in (grouped | matched) - labels]
    # An alert has no result while all is well: what it compares has one.
    shown = re.sub(r"\s(==|>)\s[0-9.]+", "", query).replace("$__rate_interval", "1m")
    shown = shown.replace("${farm_namespace}", ".+").replace("${farm}", ".+")
    if "absent(" not in query and not asked & QUIET and not prometheus.query(shown):
        wrong.append(f"no result of {shown}")
    return wrong


def _service(cluster: Cluster, namespace: str) -> str:
    """The address of a Service with two pods."""
    cluster.serve("web", 2, namespace)
    cluster.apply(service("web", namespace))
    cluster.farm_has("web--http", namespace, 2)
    return cluster.vip("web", namespace)


_ANNOTATION = "service.kubernetes.io/kube-nftlb-load-balancer-"
_LATENCY = "kube_nftlb_network_programming_duration_seconds"


def _measured(prometheus: Prometheus, node: str) -> tuple[float, float]:
    """Return the number of changes in one scrape and their sum in seconds: two queries may read two scrapes."""
    series = prometheus.query(f'{{__name__=~"{_LATENCY}_(count|sum)", node="{node}"}}')
    values = {labels["__name__"].rpartition("_")[2]: value for labels, value in series}
    return values.get("count", 0.0), values.get("sum", 0.0)
