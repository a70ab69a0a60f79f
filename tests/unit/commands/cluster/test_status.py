"""The output of ``status`` and ``why``."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from kube_nftlb.commands.cluster import terminal
from kube_nftlb.commands.cluster.findings import find, of_farms
from kube_nftlb.commands.cluster.name_arguments import parse
from kube_nftlb.commands.cluster.status import chosen, status_json, status_text, well
from kube_nftlb.commands.cluster.status import line as in_one_line
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.kube import timestamps
from kube_nftlb.names import LABEL_SERVICE
from tests.builders import raw_node, raw_service_farm
from tests.unit.commands.cluster.test_findings import NO_BACKENDS, NOW, farm, node, told

Json = dict[str, Any]

CONFLICT = told("Accepted", "False", "AddressConflict", "shop/a has\n10.0.0.1 [80]")


def seen(*farms: Json) -> ClusterView:
    report = node()
    report["status"] |= {"farms": 3, "engines": {"nftlb": 2, "nftables": 1}, "versions": {"agent": "1.2.3"}}
    return ClusterView(farms, [raw_node()], [report])


def text(view: ClusterView) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(*status_text(view, find(view, NOW), NOW), sep="\n")
    return captured.get()


def as_json(*farms: Json) -> Json:
    view = seen(*farms)
    return status_json(view, find(view, NOW), NOW)


def test_one_look_shows_nodes_engines_and_farms() -> None:
    shown = text(seen(farm(), farm(name="empty", ready=0, total=0)))
    assert "n1     ready   yes       3       2       1" in shown
    assert "FARMS      2: 1 serving, 1 without backends" in shown
    assert "PROBLEMS   none" in shown


def test_the_addresses_of_pools_are_counted_where_there_are_pools() -> None:
    view = seen(farm())
    assert "ADDRESSES" not in text(view)
    assert status_json(view, [], NOW)["addresses"] == {"pools": 0, "used": 0, "announced": 0}
    report = node()
    report["status"]["addresses"] = {"number": 3, "announced": [f"192.0.2.{number}" for number in range(3)]}
    accepted = told("Accepted", "True", "Valid")
    pool = {"metadata": {"name": "office"}, "spec": {"ranges": ["192.0.2.0/24"]}}
    pool["status"] = {"ipv4": {"used": 2, "free": 254}, "ipv6": {"used": 1}, "conditions": [accepted]}
    shown = text(replace(view, reports=[report], pools=[pool]))
    assert "ADDRESSES  Services have 3 addresses of 1 pool; nodes announce 3" in shown
    assert "PROBLEMS   none" in shown


POOL = {"metadata": {"name": "office"}, "status": {"conditions": [told("Accepted", "True", "Valid")]}}


def with_addresses(*lists: tuple[int, list[str]], silent: int = 0) -> ClusterView:
    """Nodes that announce so many addresses, and list these; the first ones are silent."""
    reports = []
    for index, (number, listed) in enumerate(lists):
        ready = told("Ready", "Unknown", "AgentSilent") if index < silent else told("Ready", "True", "AgentReady")
        report = node(ready)
        report["metadata"]["name"] = f"n{index}"
        report["status"]["addresses"] = {"number": number, "announced": listed}
        reports.append(report)
    return ClusterView(reports=reports, pools=[POOL])


@pytest.mark.parametrize(
    ("view", "announced"),
    [
        (with_addresses((2, ["192.0.2.1", "192.0.2.2"]), (2, ["192.0.2.1", "192.0.2.2"])), "2"),
        (with_addresses((1, ["192.0.2.1"]), (1, ["192.0.2.2"])), "2"),
        (with_addresses((1, ["192.0.2.1"]), (1, ["192.0.2.2"]), silent=1), "1"),
        (with_addresses((1, ["192.0.2.1"]), silent=1), "0"),
        (with_addresses((3, ["192.0.2.1", "192.0.2.2"])), "at least 2"),
    ],
    ids=["by BGP", "by ARP", "one silent", "all silent", "more than shown"],
)
def test_an_address_counts_once_and_only_while_the_agent_of_its_node_reports(view: ClusterView, announced: str) -> None:
    assert f"nodes announce {announced}\n" in text(view)
    assert status_json(view, [], NOW)["addresses"]["announced"] == int(announced[-1])


def test_of_a_node_whose_agent_is_silent_it_is_unknown_if_it_is_in_sync() -> None:
    view = with_addresses((0, []), (0, []), silent=1)
    assert [line.split()[:4] for line in text(view).splitlines()[1:3]] == [
        ["n0", "not", "ready", "unknown"],
        ["n1", "ready", "yes", "0"],
    ]
    assert [each["inSync"] for each in status_json(view, [], NOW)["nodes"]] == [None, True]


def lease(holder: str, seconds: int) -> ClusterView:
    renewed = timestamps.micros(NOW - timedelta(seconds=seconds))
    return ClusterView(leases=[{"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}])


@pytest.mark.parametrize(
    ("view", "operator"),
    [
        (lease("operator-abc_12", 5), "operator-abc leads"),
        (lease("operator-abc_12", 3600), "nobody leads: operator-abc no longer renews its Lease"),
        (lease("", 5), "nobody leads"),
    ],
)
def test_a_replica_leads_only_while_it_renews_its_lease(view: ClusterView, operator: str) -> None:
    assert f"OPERATOR   {operator}\n" in text(view)
    assert status_json(view, [], NOW)["operator"] == operator


def test_what_is_wrong_is_one_line_with_its_age_and_what_to_do() -> None:
    shown = text(seen(farm(CONFLICT)))
    assert "PROBLEMS   1" in shown
    told_line = next(line for line in shown.splitlines() if "web--http" in line)
    assert told_line.strip().startswith(
        "farm default/web--http for 5m: AddressConflict: shop/a has 10.0.0.1 [80] → give one of the two another"
    )


def test_what_a_message_says_itself_is_not_said_twice() -> None:
    advice = "give one of the two another address or port, or delete one"
    view = seen(farm(told("Accepted", "False", "AddressConflict", f"b has it; {advice}")))
    (line,) = [in_one_line(each, NOW) for each in of_farms(view, view.farms, NOW)]
    assert line.count(advice) == 1


def test_a_screen_does_not_overflow() -> None:
    shown = text(seen(*(farm(CONFLICT, name=f"f{number}") for number in range(50))))
    assert "... and 30 more: kubectl nftlb why" in shown
    assert len(shown.splitlines()) < 50


def test_programs_get_everything() -> None:
    said = as_json(farm(CONFLICT))
    assert said["healthy"] is False
    assert said["farms"] == {"total": 1, "with problems": 1}
    assert said["problems"][0]["since"] == "2026-01-01T00:55:00+00:00"
    assert as_json(farm())["healthy"] is True


def test_a_change_on_its_way_counts_as_pending() -> None:
    assert as_json(farm(told("Programmed", "False", "Pending")))["farms"] == {"total": 1, "pending": 1}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("web", ["web--a", "web--b"]),
        ("web--a", ["web--a"]),
        ("shop/x", ["x"]),
        ("svc/web", ["web--a", "web--b"]),
        ("farm/web", []),
        ("farm/y", ["y"]),
        ("service/y", []),
        ("y", ["y"]),
        ("both", ["both"]),
        ("services/both", ["both--a"]),
    ],
)
def test_a_name_means_a_farm_or_the_farms_of_a_service(name: str, names: list[str]) -> None:
    farms = [raw_service_farm("web--a"), raw_service_farm("web--b"), farm(name="x", namespace="shop"), farm(name="y")]
    of_both = raw_service_farm("both--a")
    of_both["metadata"]["labels"][LABEL_SERVICE] = "both"
    farms += [farm(name="both"), of_both]
    assert [raw["metadata"]["name"] for raw in chosen(farms, parse(name, None, "default"))] == names


def test_why_has_one_line_for_each_unhealthy_farm() -> None:
    view = seen(farm(), farm(CONFLICT, name="b"), farm(ready=0, name="a"))
    lines = [in_one_line(each, NOW) for each in of_farms(view, view.farms, NOW)]
    assert len(lines) == 2
    assert "farm default/a" in lines[0]
    assert "farm default/b" in lines[1]
    assert "\n" not in "".join(lines)


def test_a_healthy_farm_is_called_so() -> None:
    assert well(farm()) == "farm default/web--http is healthy: programmed on 1/1 nodes, 1/1 backends ready"
    assert well(farm(ready=0, total=0)).endswith(f"and refuses connections: {NO_BACKENDS}")
    assert "has just changed" in well(farm(told("Programmed", "False", "Pending")))


@pytest.mark.parametrize(
    ("seconds", "age"), [(5, "5s"), (119, "119s"), (600, "10m"), (7200, "2h"), (86400 * 3, "3d"), (-4, "0s")]
)
def test_ages_are_as_kubectl_writes_them(seconds: int, age: str) -> None:
    assert terminal.age(NOW - timedelta(seconds=seconds), NOW) == age
    assert terminal.age(None, NOW) == "-"


def test_an_old_status_is_no_reason_to_fail() -> None:
    assert "n1" in text(ClusterView((), [raw_node()], [{"metadata": {"name": "n1"}}]))
