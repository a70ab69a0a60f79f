"""Farms in the modes dsr and local, and what a node's nftlb is sent for them."""

from typing import Any

import pytest

from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.dsr.modes import NO_LINKS, Links, PodLink, PodVip
from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.nftlb import layout, objects
from kube_nftlb.nftlb.requests import PutFarm, RemoveFarm
from tests.builders import farm, raw_backend
from tests.views import served, view


def pod(number: int, bridge: str = "cni0") -> PodLink:
    return PodLink(number, "eth0", f"02:00:00:00:00:{number:02x}", bridge)


LINKS = Links(
    {"10.244.1.2": pod(2), "10.244.1.3": pod(3), "10.244.9.4": pod(4, "br-other")},
    {"cni0": "02:00:00:00:01:01", "eth0": "02:00:00:00:01:02"},
    frozenset({"172.31.0.11", "10.244.1.1"}),
)
WITH_NODE_PORT = [{"ip": "10.96.0.10", "ports": "80"}, {"type": "NodePort", "ports": "30080"}]
NEAR = [raw_backend("a", "10.244.1.2", 80), raw_backend("b", "10.244.1.3", 80)]


def shaped(**changes: Any) -> tuple[objects.Farm, str]:
    wanted = farm(**{"mode": "dsr", "backends": NEAR, **changes})
    seen = view(wanted, links=LINKS)
    return seen.farm, seen.problem


def test_a_dsr_farm_is_sent_with_what_nftlb_would_have_to_find_out() -> None:
    seen, hindrance = shaped()
    assert hindrance == ""
    wire = seen.wire()
    assert {(entry["iface"], entry["ether-addr"]) for entry in wire["addresses"]} == set(LINKS.inlets.items())
    assert [entry["ether-addr"] for entry in wire["backends"]] == ["02:00:00:00:00:02", "02:00:00:00:00:03"]
    assert list(wire)[-1] == "oface", "nftlb forgets it when it reads an address or a backend after it"
    for entry in wire["addresses"] + wire["backends"]:
        assert next(iter(entry)) == "name"
    assert list(wire["backends"][0]).index("ip-addr") < list(wire["backends"][0]).index("ether-addr")


@pytest.mark.parametrize(
    ("changes", "scheduler", "fields"),
    [
        ({}, "hash", "srcip srcport"),
        ({"scheduler": "weight"}, "hash", "srcip srcport"),
        ({"scheduler": "hash"}, "hash", "srcip srcport"),
        ({"scheduler": "hash", "schedParam": "srcip"}, "hash", "srcip"),
        ({"persistence": "srcip"}, "hash", "srcip"),
        ({"scheduler": "symhash"}, "symhash", "none"),
        ({"scheduler": "symhash", "persistence": "srcip"}, "hash", "srcip"),
    ],
)
def test_all_packets_of_a_connection_go_to_one_backend(changes: dict[str, Any], scheduler: str, fields: str) -> None:
    options = shaped(**changes)[0].options
    assert (options["scheduler"], options["sched-param"], options["persistence"]) == (scheduler, fields, "none")


def test_backends_that_are_elsewhere_are_left_out() -> None:
    far = raw_backend("far", "10.244.2.2", 80)
    other = raw_backend("other", "10.244.9.4", 80)
    seen, hindrance = shaped(backends=[*NEAR, far, other])
    assert (list(seen.backends), hindrance) == (["a", "b"], "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"backends": [raw_backend("far", "10.244.2.2", 80)]}, "NoLocalBackend"),
        ({"backends": [raw_backend("a", "10.244.1.2", 8080)]}, "PortsDiffer"),
        ({"addresses": [{"ip": "10.96.0.10", "ports": "80,443"}]}, "PortsDiffer"),
        ({"addresses": [{"ip": "172.31.0.11", "ports": "80"}]}, "AddressInUse"),
        ({"addresses": [{"ip": "10.244.1.2", "ports": "80"}]}, "AddressInUse"),
        ({"addresses": WITH_NODE_PORT}, "AddressInUse"),
        ({"addresses": WITH_NODE_PORT, "backends": []}, "AddressInUse"),
        ({"addresses": [{"ip": "10.96.0.10", "ports": "80", "sourceRanges": ["10.0.0.0/8"]}]}, "Unsupported"),
        ({"queue": 1}, "Unsupported"),
        ({"backends": [raw_backend("a", "10.244.1.2", 80, established=3)]}, "Unsupported"),
    ],
)
def test_a_farm_that_cannot_work_says_why_gives_pods_nothing_and_refuses(changes: dict[str, Any], reason: str) -> None:
    seen, hindrance = shaped(**changes)
    assert hindrance.startswith(f"{reason}: ")
    assert seen.backends == {}
    wanted = served(farm(**{"mode": "dsr", "backends": NEAR, **changes}), links=LINKS).farm
    assert wanted.refuses
    assert wanted.direct is None, "pods get no address"
    assert layout.expected(seen).listeners == frozenset()


def test_a_node_whose_agent_sees_no_pods_names_the_value_of_the_chart_by_which_it_would() -> None:
    assert "dsr.enabled" in view(farm(mode="dsr", backends=NEAR), links=NO_LINKS).problem
    assert "dsr.enabled" not in shaped(backends=[raw_backend("far", "10.244.2.2", 80)])[1]


def test_ready_pods_of_the_node_get_every_address() -> None:
    addresses = [{"ip": "10.96.0.10", "ports": "80"}, {"ip": "10.96.0.11", "ports": "80"}]
    gone = raw_backend("b", "10.244.1.3", 80, ready=False)
    wanted = farm(mode="dsr", addresses=addresses, backends=[NEAR[0], gone])
    assert modes.pod_vips(wanted.spec, ["10.96.0.10", "10.96.0.11"], LINKS) == {
        PodVip("10.244.1.2", "10.96.0.10"),
        PodVip("10.244.1.2", "10.96.0.11"),
    }


def test_a_local_farm_has_neither_backends_nor_refusals() -> None:
    seen, _ = shaped(mode="local")
    assert (seen.backends, seen.options["intra-connect"]) == ({}, "off")
    assert not served(farm(mode="local", backends=NEAR)).farm.refuses
    assert {entry.map for entry in layout.expected(seen).listeners} == {"filter-proto-services"}


@pytest.mark.parametrize("there", ["dsr", "snat"])
def test_a_farm_is_made_anew_when_its_rules_move_to_other_tables(there: str) -> None:
    after = {"dsr": "snat", "snat": "dsr"}[there]
    before = shaped(mode=there)[0]
    kinds = [type(step) for step in plan_steps({before.name: before}, {before.name: shaped(mode=after)[0]})]
    assert kinds[-2:] == [RemoveFarm, PutFarm]


def test_what_nftlb_never_tells_is_remembered() -> None:
    sent = shaped()[0]
    told = objects.parse({"farms": [_told(sent)]})
    assert plan_steps(objects.recalled(told, {sent.name: sent}), {sent.name: sent}) == []
    (again,) = plan_steps(objects.recalled(told, {}), {sent.name: sent})
    assert isinstance(again, PutFarm), "an agent that was restarted tells it once more"


def _told(sent: objects.Farm) -> dict[str, Any]:
    wire = sent.wire()
    hidden = ("oface", "iface", "ether-addr")
    return {
        **{key: value for key, value in wire.items() if key not in hidden},
        **{
            part: [{key: value for key, value in entry.items() if key not in hidden} for entry in wire[part]]
            for part in ("addresses", "backends")
        },
    }
