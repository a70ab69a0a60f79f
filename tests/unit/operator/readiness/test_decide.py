"""The decision that the nodes that count have programmed a Pod that waits for the readiness gate."""

from typing import Any
from unittest.mock import Mock

import pytest

from kube_nftlb import names
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, NODES, SERVICES
from kube_nftlb.limits import NamespaceLimits
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.gates import SERVICES_MAX, TURN
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import build
from kube_nftlb.operator.model.gated_pods import slim
from kube_nftlb.operator.model.pods import PodKey
from kube_nftlb.operator.readiness.decide import Nodes, Verdict, decide
from kube_nftlb.operator.readiness.gated_ips import counting_nodes, gated_ips
from tests.builders import (
    endpoint,
    raw_gated_pod,
    raw_nftlb_node,
    raw_node,
    raw_service,
    raw_service_farm,
    raw_slice,
    service,
)

Json = dict[str, Any]

IP, OTHER_IP = "10.244.0.1", "10.244.0.2"
WEB = ServiceKey("default", "web")
POD = PodKey("default", "a")
LABELS = {"app": "web"}


class Operator:
    """A cache with a Service and its farm, two nodes, and a Pod that waits."""

    def __init__(self, limits: NamespaceLimits = NamespaceLimits()) -> None:  # noqa: B008 - immutable
        self.cache = Cache(limits=limits)
        self.ingest = Ingest(self.cache)
        self.ingest.put(SERVICES, raw_service(selector=LABELS))
        self.farm(version=20, generation=1, ips=[])
        self.slices(ready=False, version=30)
        for name in ("n1", "n2"):
            self.ingest.put(NODES, raw_node(name))
            self.node(name, farms=100, slices=100)
        self.pod()

    def pod(self, **fields: Any) -> None:
        kept = slim(raw_gated_pod(**fields))
        assert kept is not None
        self.ingest.put_gated_pod(kept)

    def farm(self, *, version: int, generation: int, ips: list[str]) -> None:
        spec = build(service(selector=LABELS), gated_ips={"ipv4": ips}).farms[0].spec
        self.ingest.put(FARMS, raw_service_farm(version=version, generation=generation, **spec))

    def slices(self, *, ready: bool, version: int, ip: str = IP) -> None:
        self.ingest.put(ENDPOINT_SLICES, raw_slice(endpoint(ip, "a", ready=ready), version=version))

    def node(self, name: str, *, farms: int, slices: int, version: int = 1, **more: Any) -> None:
        raw = raw_nftlb_node(name, watermark=str(farms), slice_watermark=str(slices), version=version, **more)
        self.ingest.put(NFTLB_NODES, raw)

    def decide(self, before: Verdict | None = None) -> Verdict:
        pod = self.cache.gates.pods.get(POD)
        assert pod is not None
        nodes = Nodes.of(counting_nodes(self.cache))
        return decide(POD, pod, self.cache, nodes, before.awaited if before is not None else None)


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_its_farms_have_to_list_it_first(operator: Operator) -> None:
    assert gated_ips(operator.cache, WEB) == {"ipv4": [IP], "ipv6": []}
    verdict = operator.decide()
    assert (verdict.programmed, verdict.unlisted) == (False, (WEB,))
    operator.farm(version=90, generation=2, ips=[IP])
    verdict = operator.decide()
    assert (verdict.programmed, verdict.message) == (True, "all nodes that count (2) have it")


@pytest.mark.parametrize(
    ("farms", "slices"),
    [pytest.param(89, 100, id="the farm that lists it"), pytest.param(100, 29, id="the slice with its address")],
)
def test_each_node_has_to_reach(operator: Operator, farms: int, slices: int) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.node("n2", farms=farms, slices=slices, version=2)
    verdict = operator.decide()
    assert not verdict.programmed
    assert "1 of 2 nodes have it; waiting for n2" in verdict.message
    operator.node("n2", farms=90, slices=30, version=3)
    assert operator.decide().programmed


def test_later_changes_of_the_farm_and_of_other_endpoints_do_not_hold_it_back(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.node("n2", farms=89, slices=29, version=2)
    waiting = operator.decide()
    operator.farm(version=200, generation=3, ips=[IP, OTHER_IP])
    operator.slices(ready=False, version=210)
    operator.node("n2", farms=90, slices=100, version=3)
    assert operator.decide(waiting).programmed
    assert not operator.decide().programmed


@pytest.mark.parametrize("how", ["its Node is not ready", "its Node is gone", "its agent cannot work"])
def test_a_node_does_not_count_if(operator: Operator, how: str) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.node("n2", farms=1, slices=1, version=2)
    assert not operator.decide().programmed
    if how == "its Node is not ready":
        operator.ingest.put(NODES, raw_node("n2", ready="False", version=2))
    elif how == "its Node is gone":
        operator.ingest.remove(NODES, raw_node("n2", version=2))
    else:
        operator.node("n2", farms=1, slices=1, version=3, ready="False")
    assert operator.decide().message == "all nodes that count (1) have it"


def test_no_node_that_counts_is_not_enough(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    for name in ("n1", "n2"):
        operator.ingest.remove(NODES, raw_node(name, version=2))
    verdict = operator.decide()
    assert not verdict.programmed
    assert "no node runs an agent" in verdict.message


def test_a_farm_that_failed_on_a_node_holds_it_back_and_says_why(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    failed = {"namespace": "default", "name": "web--http", "generation": 2, "reason": "Refused", "message": "no"}
    operator.node("n2", farms=100, slices=100, version=2, failed=[failed])
    assert operator.decide().message == (
        "the farm web--http failed on node n2: Refused: the kernel refuses its rules; see kubectl describe nftlbnode n2"
    )


@pytest.mark.parametrize(("failed_at", "programmed"), [(1, True), (2, False), (3, False)])
def test_a_change_that_failed_holds_it_back_though_the_farm_has_changed_since(
    operator: Operator, failed_at: int, *, programmed: bool
) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.node("n2", farms=89, slices=100, version=2)
    waiting = operator.decide()
    operator.farm(version=110, generation=4, ips=[IP, OTHER_IP])
    failed = {"namespace": "default", "name": "web--http", "generation": failed_at, "reason": "Refused"}
    operator.node("n2", farms=109, slices=100, version=3, failed=[failed])
    assert operator.decide(waiting).programmed == programmed


def test_a_slice_without_its_address_holds_it_back(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.slices(ready=True, version=31, ip=OTHER_IP)
    assert operator.decide().message == f"the EndpointSlices of the Service web do not have {IP} yet"


def test_a_service_whose_farms_do_not_exist_yet_holds_it_back(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    ports = [{"name": "http", "port": 80}, {"name": "https", "port": 443}]
    operator.ingest.put(SERVICES, raw_service(selector=LABELS, ports=ports, version=50))
    assert operator.decide().message == ("the farm web--https does not exist yet; see kubectl describe service web")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"selector": {"app": "other"}}, id="selects others"),
        pytest.param({"selector": LABELS, "labels": {names.LABEL_PROXY_NAME: "x"}}, id="is another proxy's"),
        pytest.param({"selector": LABELS, "clusterIP": "None", "clusterIPs": ["None"]}, id="is headless"),
    ],
)
def test_it_waits_for_no_service_that(fields: Json) -> None:
    operator = Operator()
    operator.ingest.put(SERVICES, raw_service(version=50, **fields))
    gone = raw_service_farm(version=60, **build(service()).farms[0].spec)
    operator.ingest.remove(FARMS, gone)
    verdict = operator.decide()
    assert (verdict.programmed, verdict.reason) == (True, "NotServed")


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        pytest.param({}, True, id="it lacks the gate alone"),
        pytest.param({"containers": "False"}, False, id="a container is not ready"),
        pytest.param({"other_gate": "False"}, False, id="another gate is closed"),
        pytest.param({"other_gate": "True"}, True, id="another gate is open"),
        pytest.param({"gate": True}, False, id="its gate is open"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, id="it terminates"),
    ],
)
def test_farms_list_a_pod_if(operator: Operator, fields: Json, *, waits: bool) -> None:
    operator.pod(version=6, **fields)
    assert gated_ips(operator.cache, WEB)["ipv4"] == ([IP] if waits else [])


def test_farms_list_it_until_all_nodes_know_from_the_slices_that_it_is_ready(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.pod(gate=True, version=6)
    assert gated_ips(operator.cache, WEB)["ipv4"] == [IP]
    operator.slices(ready=True, version=140)
    operator.node("n1", farms=100, slices=140, version=2)
    assert gated_ips(operator.cache, WEB)["ipv4"] == [IP]
    operator.node("n2", farms=100, slices=140, version=2)
    assert gated_ips(operator.cache, WEB)["ipv4"] == []


def test_other_endpoints_that_change_all_the_time_do_not_keep_it_listed(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.pod(gate=True, version=6)
    listed = []
    for version in range(140, 145):
        flaps = endpoint("10.244.0.9", "b", ready=version % 2 == 0)
        operator.ingest.put(ENDPOINT_SLICES, raw_slice(endpoint(IP, "a"), flaps, version=version))
        for name in ("n1", "n2"):
            operator.node(name, farms=100, slices=version - 1, version=version)
        listed.append(gated_ips(operator.cache, WEB)["ipv4"])
    assert listed == [[IP], [], [], [], []]


def test_one_that_was_not_ready_meanwhile_is_listed_until_nodes_know_that_it_is_ready_again(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.pod(gate=True, version=6)
    for version, ready in ((140, True), (141, False), (142, True)):
        operator.slices(ready=ready, version=version)
        for name in ("n1", "n2"):
            operator.node(name, farms=100, slices=version - 1, version=version)
        assert gated_ips(operator.cache, WEB)["ipv4"] == [IP]


@pytest.mark.parametrize("what", ["not ready any more", "gone", "replaced"])
def test_farms_do_not_list_one_that_is(operator: Operator, what: str) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.pod(gate=True, version=6)
    if what == "not ready any more":
        operator.pod(gate=True, containers="False", version=7)
    elif what == "gone":
        operator.cache.gates.remove(POD, 7)
    else:
        operator.pod(ip=OTHER_IP, uid="another", containers="False", version=7)
    assert gated_ips(operator.cache, WEB)["ipv4"] == []


def test_the_pods_of_a_namespace_take_turns(operator: Operator) -> None:
    for number in range(2 * TURN):
        operator.pod(name=f"p{number:03}", ip=f"10.244.1.{number}", version=10 + number)
    gates = operator.cache.gates
    assert gates.turn("default") == [POD, *(PodKey("default", f"p{number:03}") for number in range(TURN - 1))]
    assert len(gated_ips(operator.cache, WEB)["ipv4"]) == TURN
    assert gates.defer(POD)
    assert POD not in gates.turn("default")
    operator.cache.gates.remove(PodKey("default", "p000"), 1000)
    assert PodKey("default", f"p{TURN:03}") in gates.turn("default")


def test_another_namespace_has_turns_of_its_own(operator: Operator) -> None:
    for number in range(2 * TURN):
        operator.pod(name=f"p{number:03}", namespace="crowd", version=10 + number)
    assert operator.cache.gates.turn("default") == [POD]
    assert not operator.cache.gates.defer(POD), "nobody waits for its turn"


def test_a_pod_waits_for_so_many_services_at_most(operator: Operator) -> None:
    for number in range(2 * SERVICES_MAX):
        operator.ingest.put(SERVICES, raw_service(f"s{number:03}", selector=LABELS, version=50 + number))
    assert operator.decide().message.endswith(f"(and {SERVICES_MAX - 1} more)")


@pytest.mark.parametrize("why", ["they are headless", "the namespace has too many farms"])
def test_services_without_farms_are_not_among_them(operator: Operator, why: str) -> None:
    headless: Json = {"clusterIP": "None", "clusterIPs": ["None"]} if why == "they are headless" else {}
    if not headless:
        operator = Operator(NamespaceLimits(farms=1))
    for number in range(SERVICES_MAX):
        later: Json = {"created": "2027-01-01T00:00:00Z", "version": 50 + number}
        operator.ingest.put(SERVICES, raw_service(f"a{number:03}", selector=LABELS, **later, **headless))
    verdict = operator.decide()
    assert (verdict.programmed, verdict.unlisted) == (False, (WEB,))


def test_a_pod_that_has_ended_does_not_hide_the_one_that_has_its_ip(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.pod(gate=True, version=6)
    operator.pod(name="ended", uid="ended", gate=True, containers="False", version=7)
    assert gated_ips(operator.cache, WEB)["ipv4"] == [IP]


def test_nodes_and_endpoints_are_counted_once_for_all_ips(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    ips = [f"10.244.1.{number}" for number in range(20)]
    operator.farm(version=90, generation=2, ips=ips)
    for number, ip in enumerate(ips):
        operator.pod(name=f"p{number}", uid=f"p{number}", ip=ip, gate=True, version=10 + number)
    of = Mock(wraps=operator.cache.slices.index.of)
    monkeypatch.setattr(operator.cache.slices.index, "of", of)
    gated_ips(operator.cache, WEB)
    of.assert_called_once_with(WEB)


def test_a_pod_with_the_label_alone_is_not_kept() -> None:
    raw = raw_gated_pod()
    raw["spec"] = {}
    assert slim(raw) is None


def test_a_node_with_more_failures_than_it_reports_is_named(operator: Operator) -> None:
    operator.farm(version=90, generation=2, ips=[IP])
    operator.node("n2", farms=100, slices=100, version=2, failed_namespaces=["default"])
    assert operator.decide().message == "more farms of the namespace failed than n2 reports"
