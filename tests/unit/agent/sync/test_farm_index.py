"""The index of the farms."""

from typing import Any

import pytest

from kube_nftlb.agent.dsr.modes import NO_LINKS
from kube_nftlb.agent.farm_objects import parse
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.decide import Facts
from kube_nftlb.agent.sync.farm_index import FarmIndex
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.agent.table.policy_references import References
from kube_nftlb.api.conflicts import FarmKey, farm_key
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.policy import PolicyKey
from tests.builders import endpoint, endpoint_slice, farm, raw_route_farm
from tests.fakes.nft import FakeNft
from tests.fakes.node import WEB

LATE = FarmKey("default", "late--http")
LIST = PolicyKey("default", "list")


@pytest.fixture
def policies() -> Policies:
    return Policies()


@pytest.fixture
def nft() -> FakeNft:
    return FakeNft()


@pytest.fixture
def index(policies: Policies, nft: FakeNft) -> FarmIndex:
    return FarmIndex(policies, FeatureProbe(nft))


def facts(index: FarmIndex, now: float = 0) -> Facts:
    return index.facts(WEB, NO_LINKS, now)


def test_a_farm_is_looked_at_again_only_if_its_spec_or_rank_changes(index: FarmIndex) -> None:
    assert index.put(farm()) == {WEB}
    assert index.put(farm(version=11)) == set()
    assert index.put(farm(generation=2)) == {WEB}
    assert index.put(farm(generation=2, uid="another")) == {WEB}
    assert index.put(farm(generation=2, uid="another", owner="web")) == {WEB}


@pytest.mark.parametrize(
    "lost",
    [
        {"labels": {}},
        {"ownerReferences": []},
        {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/kept"], "generation": 2},
    ],
)
def test_what_was_the_farm_of_a_route_refuses_the_clients_of_other_namespaces(
    index: FarmIndex, lost: dict[str, Any]
) -> None:
    raw = raw_route_farm("web--http", backendsFrom=[{"namespace": "other", "service": "web", "port": "http"}])
    index.put_slice(("other", "web-1"), endpoint_slice(endpoint("10.244.1.2"), namespace="other"))
    made = parse(raw)
    assert isinstance(made, Farm)
    index.put(made)
    assert [each.ip for each in _resolved(index).spec.backends] == ["10.244.1.2"]
    left = parse({**raw, "metadata": {**raw["metadata"], **lost}})
    assert isinstance(left, Farm), "the agent would go on with what it had"
    assert index.put(left) == {WEB}
    assert _resolved(index).spec.backends == ()


def _resolved(index: FarmIndex) -> Farm:
    found = index.resolved(WEB)
    assert found is not None
    return found


def test_a_farm_that_is_listed_again_stays_the_same_object_unless_its_labels_differ(index: FarmIndex) -> None:
    index.put(first := farm())
    index.put(farm(version=11))
    assert index.get(WEB) is first
    labelled = farm(version=12)
    labelled = labelled.model_copy(update={"metadata": labelled.metadata.model_copy(update={"labels": {"team": "a"}})})
    index.put(labelled)
    assert index.get(WEB) is labelled


def test_farms_with_one_address_are_looked_at_together(index: FarmIndex) -> None:
    index.put(farm("late--http", created="2026-02-01T00:00:00Z"))
    assert index.put(farm()) == {WEB, LATE}
    index.measure([WEB, LATE])
    assert index.losers == {LATE}
    assert index.remove(WEB) == {WEB, LATE}
    index.measure([WEB, LATE])
    assert index.losers == set()


def test_conflicts_are_judged_anew_on_another_address_of_the_node(index: FarmIndex) -> None:
    index.put(farm("a", addresses=[{"type": "NodePort", "ports": "30080"}]))
    index.put(farm(addresses=[{"type": "ExternalIP", "ip": "172.31.0.11", "ports": "30080"}]))
    assert facts(index).loss is None
    index.set_node(NodeFacts("node-1", port_ips={"ipv4": ("172.31.0.11",)}))
    index.measure([WEB])
    assert index.losers == {WEB}


def test_a_removed_farm_is_known_by_name_until_it_is_forgotten(index: FarmIndex, policies: Policies) -> None:
    index.put(farm(policies=["list"]))
    assert index.remove(WEB) == {WEB}
    assert index.remove(WEB) == set()
    assert WEB not in index
    assert (index.key("web--http"), policies.referring(LIST)) == (WEB, 1)
    index.forget(WEB)
    assert (index.key("web--http"), policies.referring(LIST)) == (None, 0)


def test_a_farm_that_is_no_longer_understood_keeps_its_last_spec(index: FarmIndex, policies: Policies) -> None:
    index.put(farm(policies=["list"]))
    index.put_unreadable(WEB, References("default"))
    assert (facts(index).readable, index.get(WEB)) == (False, farm(policies=["list"]))
    assert policies.referring(LIST) == 1
    index.put(farm(generation=2))
    assert facts(index).readable


def test_a_farm_that_was_never_understood_has_policies_all_the_same(index: FarmIndex, policies: Policies) -> None:
    index.put_unreadable(WEB, References("default", frozenset({"list"}), unread=True))
    assert (index.get(WEB), index.all(), list(index)) == (None, {WEB}, [])
    assert (policies.referring(LIST), facts(index).restricted) == (1, True)
    assert index.remove(WEB) == {WEB}
    assert not facts(index).restricted


def test_refused_rules_are_retried_when_they_are_due(index: FarmIndex) -> None:
    index.put(farm())
    index.refuse_rules(WEB, "no")
    index.back_off(WEB, 60)
    assert (facts(index, 59).rules_refused, facts(index, 59).backing_off) == ("no", True)
    assert index.due(59) == []
    assert index.due(60) == [WEB]
    assert (facts(index, 60).rules_refused, facts(index, 60).backing_off) == (None, False)
    assert index.due(1000) == []


def test_a_farm_that_changes_is_not_left_alone(index: FarmIndex) -> None:
    index.put(farm())
    index.refuse_rules(WEB, "no")
    index.back_off(WEB, 60)
    index.put(farm(generation=2))
    assert (facts(index).rules_refused, facts(index).backing_off) == (None, False)


async def test_the_kernel_is_probed_for_what_new_farms_need(index: FarmIndex, nft: FakeNft) -> None:
    nft.lacks = ("queue num",)
    index.put(farm(queue=3))
    await index.probe()
    assert "CONFIG_NFT_QUEUE" in (facts(index).missing_feature or "")
    assert index.unprobed == set()
    index.put(farm(generation=2))
    await index.probe()
    assert facts(index).missing_feature is None


def test_farms_that_keep_no_connections_are_listed(index: FarmIndex) -> None:
    index.put(farm())
    index.put(farm("dsr", mode="dsr"))
    dsr = FarmKey("default", "dsr")
    assert index.stateless() == [dsr]
    assert index.stateless([WEB]) == []
    assert index.stateless([dsr, LATE]) == [dsr]


FROM_WEB: dict[str, Any] = {"backends": [], "backendsFrom": [{"service": "web", "port": "http"}]}


def ips(index: FarmIndex) -> list[str]:
    found = index.resolved(WEB)
    assert found is not None
    return [backend.ip for backend in found.spec.backends]


def put(index: FarmIndex, *pods: str, name: str = "web-1", **fields: Any) -> set[FarmKey]:
    each = endpoint_slice(*(endpoint(ip) for ip in pods), name=name, **fields)
    return index.put_slice((each.namespace, each.name), each)


def test_a_farm_follows_the_slices_of_its_service(index: FarmIndex) -> None:
    assert put(index, "10.244.1.2") == set()
    index.put(farm(**FROM_WEB))
    assert ips(index) == ["10.244.1.2"]
    assert put(index, "10.244.1.3", name="web-2") == {WEB}
    assert ips(index) == ["10.244.1.2", "10.244.1.3"]
    assert put(index, "10.244.1.3", name="web-2") == set()
    assert put(index, "10.244.9.9", name="other-1", service="other") == set()
    assert index.put_slice(("default", "web-1"), None) == {WEB}
    assert ips(index) == ["10.244.1.3"]


def test_a_farm_may_refer_to_another_service_or_none(index: FarmIndex) -> None:
    put(index, "10.244.1.2")
    put(index, "10.244.9.9", name="other-1", service="other")
    index.put(farm(**FROM_WEB))
    index.put(farm(generation=2, backends=[], backendsFrom=[{"service": "other", "port": "http"}]))
    assert ips(index) == ["10.244.9.9"]
    assert put(index) == set()
    index.put(farm(generation=3))
    assert ips(index) == ["10.244.1.2"]
    assert put(index, name="other-1", service="other") == set()


def test_a_farm_that_is_gone_follows_nothing(index: FarmIndex) -> None:
    index.put(farm(**FROM_WEB))
    index.remove(WEB)
    assert put(index, "10.244.1.2") == set()
    assert index.resolved(WEB) is None


def test_the_service_is_that_of_the_farms_namespace(index: FarmIndex) -> None:
    index.put(farm(**FROM_WEB))
    each = endpoint_slice(endpoint("10.244.9.9"))._replace(namespace="elsewhere")
    assert index.put_slice(("elsewhere", "web-1"), each) == set()
    assert ips(index) == []


def test_other_endpoints_are_a_reason_to_retry(index: FarmIndex) -> None:
    index.put(farm(**FROM_WEB))
    index.refuse_rules(WEB, "no")
    index.back_off(WEB, 100)
    put(index, "10.244.1.2")
    assert (facts(index).rules_refused, facts(index).backing_off) == (None, False)


def test_facts_have_the_backends_that_a_farm_refers_to(index: FarmIndex) -> None:
    put(index, "10.244.1.2")
    index.put(farm(**FROM_WEB))
    found = facts(index).farm
    assert found is not None
    assert [backend.ip for backend in found.spec.backends] == ["10.244.1.2"]


def test_a_farm_follows_the_endpoints_of_a_service_in_another_namespace(index: FarmIndex) -> None:
    group = {"namespace": "other", "service": "web", "port": "http"}
    index.put(made := Farm.model_validate(raw_route_farm(backendsFrom=[group])))
    own, foreign = (endpoint_slice(endpoint("10.244.0.1", space), namespace=space) for space in ("default", "other"))
    assert index.put_slice(("default", "web-1"), own) == set()
    assert index.put_slice(("other", "web-1"), foreign) == {farm_key(made)}
    resolved = index.resolved(farm_key(made))
    assert resolved is not None
    assert [each.name for each in resolved.spec.backends] == ["other"]
