"""A farm's options in the agent's own table."""

from typing import Any

import pytest

from kube_nftlb.agent.table import base, farm_options, kernel_features
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import listeners_of
from kube_nftlb.netfilter.table_text import Chain, Contents, Element
from tests.builders import farm, raw_backend


def contents(wanted: Farm) -> Contents:
    return farm_options.contents(wanted.spec, "web--http", [each for _, each in listeners_of(wanted)])


def test_a_farm_without_options_has_nothing() -> None:
    assert not contents(farm())


def test_every_listener_leads_to_the_chains_of_its_farm() -> None:
    wanted = farm(addresses=[{"ip": "10.96.0.10", "ports": "80,443"}], limits={"new": "5/second"})
    assert {(entry.set, entry.key, entry.value) for entry in contents(wanted).elements} == {
        ("connections-ip", f"tcp . 10.96.0.10 . {port}", "jump connections-web--http") for port in (80, 443)
    }


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"new": "5/second"}, 120),
        ({"new": "5/hour"}, 3600),
        ({"new": "5/week"}, 604800),
        ({"new": "5/week", "forgetSeconds": 9}, 9),
    ],
)
def test_a_client_is_remembered_for_the_time_of_its_rate(limits: dict[str, Any], seconds: int) -> None:
    (clients,) = contents(farm(limits=limits)).sets
    assert f"timeout {seconds}s;" in clients.declaration


@pytest.mark.parametrize("limit", [{"new": "5/second"}, {"reset": "5/second"}, {"established": 5}])
def test_the_kernel_is_told_no_number_of_clients_to_allocate_for(limit: dict[str, Any]) -> None:
    (clients,) = contents(farm(limits=limit)).sets
    assert "size" not in clients.declaration


def test_another_rate_begins_with_a_new_set() -> None:
    names = {contents(farm(limits=limits)).sets[0].name for limits in ({"new": "5/second"}, {"new": "6/second"})}
    assert len(names) == 2, "the kernel keeps the rate of clients that are in a set already"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"helper": "ftp", "protocol": "UDP"}, "the helpers ftp, irc, pptp and sane require protocol TCP"),
        ({"helper": "tftp"}, "the helpers amanda, netbios-ns, snmp and tftp require protocol UDP"),
        ({"mode": "dsr", "log": "input"}, "helper, log and mark require mode snat or dnat"),
        ({"mode": "dsr", "onGone": "cut"}, "onGone cut requires mode snat or dnat"),
        ({"mode": "dsr", "limits": {"new": "5/second"}}, "limits require mode snat, dnat or local"),
        (
            {"mode": "dnat", "backends": [raw_backend("a", "10.244.1.2", sourceAddress="10.0.0.9")]},
            "sourceAddress of a backend requires mode snat",
        ),
        (
            {"backends": [raw_backend("a", "10.244.1.2", sourceAddress="fd00::9")]},
            "must be of the farm's family",
        ),
        (
            {"protocol": "All", "addresses": [{"ip": "10.96.0.10"}], "backends": [], "log": "input"},
            "protocol All does not support helper, log, sourceAddress and limits",
        ),
        ({"limits": {"newLogPrefix": 'a" drop'}}, "should match"),
    ],
)
def test_options_that_do_not_go_together_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        farm(**changes)


def test_a_farm_needs_of_the_kernel_what_its_options_say() -> None:
    assert list(kernel_features.needed(farm().spec)) == []
    lacking = [entry.lacking for entry in kernel_features.needed(farm(queue=3, helper="ftp").spec)]
    assert ["CONFIG_NF_CONNTRACK_FTP" in lacking[0], "CONFIG_NFT_QUEUE" in lacking[1]] == [True, True]


def test_a_queue_comes_between_choosing_a_backend_and_translating() -> None:
    cases: tuple[tuple[dict[str, Any], Element], ...] = (
        ({}, Element("queues-ip", "tcp . 10.96.0.10 . 80", "jump queues-web--http")),
        (
            {"protocol": "All", "addresses": [{"ip": "10.96.0.10"}], "backends": []},
            Element("queues-all-ip", "10.96.0.10", "jump queues-web--http"),
        ),
    )
    for changes, element in cases:
        asked = farm(queue=3, **changes)
        found = contents(asked)
        assert element in found.elements
        assert Chain("queues-web--http", ("queue num 3 bypass",)) in found.chains
        hooks = {chain.name: chain.hook for chain in base.base(frozenset({element.set})).chains if chain.hook}
        assert hooks["queueing-prerouting"] == "type filter hook prerouting priority -140; policy accept;"
        assert hooks["queueing-output"] == "type filter hook output priority -140; policy accept;"


@pytest.mark.parametrize(
    ("changes", "elements"),
    [
        ({}, set()),
        ({"onGone": "cut"}, {Element("cut-ip", "tcp . 10.96.0.10 . 80", "goto refuse")}),
        ({"onGone": "cut", "protocol": "UDP"}, set()),
        (
            {"onGone": "cut", "protocol": "All", "addresses": [{"ip": "10.96.0.10"}], "backends": []},
            {Element("cut-all-ip", "10.96.0.10", "goto refuse")},
        ),
    ],
)
def test_connections_that_were_cut_are_reset_if_policies_admit_the_client(
    changes: dict[str, Any], elements: set[Element]
) -> None:
    assert contents(farm(**changes)).elements == elements
    used = frozenset({"source-ranges-ip", "policy-ip", "no-endpoints-ip", *(each.set for each in elements)})
    (new,) = (chain.rules for chain in base.base(used).chains if chain.name == "new-ip")
    assert [rule.split("@")[1] for rule in new[1:]] == sorted(
        used, key=["source-ranges-ip", "policy-ip", "cut-ip", "cut-all-ip", "no-endpoints-ip"].index
    )
    assert ["tcp flags" in rule for rule in new[1:]] == ["@cut" in rule for rule in new[1:]]
