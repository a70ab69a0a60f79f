"""The rows of ``kubectl nftlb top``, from the reports of nodes."""

import pytest

from kube_nftlb.commands.cluster import top_farms
from kube_nftlb.commands.cluster.options import By
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.netfilter.traffic.report import BackendCounts, ListenerCounts, Report
from kube_nftlb.netfilter.traffic.tally import Counts
from tests.builders import raw_node
from tests.builders.farms import raw_farm, raw_service_farm

NODES = [raw_node(name, addresses={"InternalIP": ip}) for name, ip in (("a", "192.168.0.1"), ("b", "192.168.0.2"))]
STATUS = {"backends": [{"name": "pod-a", "address": "10.244.1.2", "port": 8080}]}


@pytest.fixture
def farms() -> ClusterView:
    named = {"type": "NodePort", "ports": "30080"}
    return ClusterView(
        nodes=NODES,
        farms=[
            raw_service_farm("web--http", addresses=[{"ip": "10.96.0.10", "ports": "80"}, named], status=STATUS),
            raw_farm("hand", addresses=[{"ip": "10.96.0.11", "ports": "70-80"}]),
            raw_farm("loser", addresses=[{"ip": "10.96.0.10", "ports": "80"}]),
            raw_farm(
                "whole", addresses=[{"ip": "10.96.0.12", "ports": ""}], protocol="All", namespace="other", backends=[]
            ),
            {"metadata": {"namespace": "default", "name": "broken"}, "spec": {"addresses": 7}},
        ],
    )


def listener(ip: str, port: int, *counts: int, pod: str = "10.244.1.2") -> ListenerCounts:
    made = Counts(*counts)
    return ListenerCounts("TCP", ip, port, made, (BackendCounts(pod, 8080, made),))


def names(farms: ClusterView, by: By = By.NEW, namespace: str | None = None, **reports: Report) -> list[str]:
    return [row.name for row in top_farms.rows(reports, farms, namespace, by)]


def test_addresses_ports_and_nodes_are_summed_by_farm_as_rates(farms: ClusterView) -> None:
    first = Report(2.0, (listener("10.96.0.10", 80, 4, 3, 200, 2000), listener("192.168.0.1", 30080, 2, 1, 0, 0)))
    second = Report(4.0, (listener("10.96.0.10", 80, 4, 5, 400, 4000, pod="10.244.2.7"),))
    (row,) = top_farms.rows({"node-1": first, "node-2": second}, farms, None, By.NEW)
    assert row.name == "default/web--http"
    assert (row.traffic.new, row.traffic.open, row.traffic.sent, row.traffic.answered) == (4, 9, 200, 2000)
    assert {node: each.new for node, each in row.nodes.items()} == {"node-1": 3, "node-2": 1}
    assert {each.name: each.traffic.open for each in row.backends.values()} == {"pod-a": 4, "10.244.2.7:8080": 5}


def test_the_owner_of_a_listener_has_its_traffic(farms: ClusterView) -> None:
    told = Report(2.0, tuple(listener(ip, port, 1) for ip, port in (("10.96.0.11", 77), ("10.96.0.12", 5))))
    assert names(farms, node=told) == ["default/hand", "other/whole"]
    assert names(farms, namespace="other", node=told) == ["other/whole"]
    assert names(farms, node=Report(2.0, (listener("10.96.0.99", 80, 1), listener("10.96.0.10", 81, 1)))) == []
    # A node port on an address that the Node does not tell.
    assert names(farms, node=Report(2.0, (listener("172.16.0.1", 30080, 1),))) == ["default/web--http"]


def test_farms_are_sorted_as_asked(farms: ClusterView) -> None:
    told = Report(
        2.0,
        (
            listener("10.96.0.10", 80, 9, 0, 1, 1),
            listener("10.96.0.11", 80, 1, 9, 2, 2),
            listener("10.96.0.12", 80, 2, 1, 9, 9),
        ),
    )
    assert names(farms, By.NEW, node=told)[0] == "default/web--http"
    assert names(farms, By.CONNECTIONS, node=told)[0] == "default/hand"
    assert names(farms, By.BYTES, node=told)[0] == "other/whole"


def test_a_farm_that_is_gone_has_no_traffic_any_more(farms: ClusterView) -> None:
    told = Report(2.0, (listener("10.96.0.10", 80, 1),))
    left = farms.with_farms([raw_farm("loser", addresses=[{"ip": "10.96.0.10", "ports": "80"}])])
    assert names(left, node=told) == ["default/loser"]
    assert names(left.with_farms([]), node=told) == []


def test_what_is_not_counted_is_said() -> None:
    whole = Report(2.0)
    assert top_farms.notes({"a": whole}) == []
    (told,) = top_farms.notes({name: whole._replace(bytes_counted=False) for name in "edcba"})
    assert told.startswith("bytes are not counted on a, b, c and 2 more nodes: metrics.perFarm.enabled")
    assert "net.netfilter.nf_conntrack_acct=1" in told
    (told,) = top_farms.notes({"a": whole._replace(events=False), "b": whole._replace(lost=1), "c": whole})
    assert told.startswith("short connections may be missing on a, b:")
    (told,) = top_farms.notes({"a": whole._replace(omitted=5)})
    assert told == "only the busiest listeners of a are counted"


def test_programs_get_everything(farms: ClusterView) -> None:
    told = {"node-1": Report(2.0, (listener("10.96.0.10", 80, 4, 3, 200, 2000),), bytes_counted=False)}
    rows = top_farms.rows(told, farms, None, By.NEW)
    numbers = {"newPerSecond": 2.0, "open": 3, "sentBytesPerSecond": 100, "answeredBytesPerSecond": 1000}
    both = {**numbers, "nodes": {"node-1": numbers}}
    assert top_farms.document(rows, told, {"node-2": "no pod"}) == {
        "farms": [{"name": "default/web--http", **both, "backends": [{"name": "pod-a", **both}]}],
        "nodes": [{"name": "node-1", "seconds": 2.0, "bytesCounted": False, "omittedListeners": 0, "complete": True}],
        "failedNodes": [{"name": "node-2", "problem": "no pod"}],
    }


def test_bytes_that_are_not_counted_have_no_number(farms: ClusterView) -> None:
    told = {"node-1": Report(2.0, (listener("10.96.0.10", 80, 5, 3, 2600, 5_000_000),))}
    (row,) = top_farms.rows(told, farms, None, By.NEW)
    assert top_farms.cells(row, bytes_counted=True) == ("2.5", "3", "1.3 kB", "2.5 MB", "1")
    assert top_farms.cells(row, bytes_counted=False) == ("2.5", "3", "-", "-", "1")
