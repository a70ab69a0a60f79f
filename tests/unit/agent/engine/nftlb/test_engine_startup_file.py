"""nftlb's start-up file, as the loop has it written."""

import asyncio
import copy
import json
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.dsr.modes import Links, PodLink
from kube_nftlb.api.farm import Farm
from kube_nftlb.netfilter.conntrack.entries import Entry
from tests.builders import farm, raw_backend
from tests.fakes.node import WEB, until
from tests.unit.agent.engine.nftlb.conftest import Node

POD = PodLink(1, "eth0", "02:00:00:00:00:02", "cni0")


async def test_a_start_up_file_that_cannot_be_written_stops_nothing(node: Node) -> None:
    (node.folder / "nftlb.new").mkdir()
    await node.program([farm()], 20)
    await until(lambda: "start-up file" in (node.loop.progress.last_error or ""))
    node.nft.damage()
    node.reader.foreign_changes += 1
    await until(lambda: node.loop.progress.drift_repaired > 0)
    assert "start-up file" in (node.loop.progress.last_error or ""), "it lasts while it is not tried again"
    (node.folder / "nftlb.new").rmdir()
    await until(lambda: node.loop.progress.last_error is None)


async def test_the_start_up_file_holds_what_is_in_the_kernel(node: Node) -> None:
    node.reader.refused.add("bad--http")
    bad = farm("bad--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}])
    await node.program([farm(), bad], 20)

    def saved() -> list[dict[str, Any]]:
        path = node.folder / "nftlb.json"
        return json.loads(path.read_text())["farms"] if path.exists() else []

    await until(lambda: [entry["name"] for entry in saved()] == ["web--http"])


async def test_nftlb_starts_with_the_interfaces_of_dsr_farms_although_the_agent_was_restarted(node: Node) -> None:
    node.pod_links.found = Links({"10.244.1.2": POD}, {"eth0": "02:00:00:00:00:01"}, frozenset())
    wanted = [farm(mode="dsr", backends=[raw_backend("a", "10.244.1.2", 80)])]
    await node.program(wanted, 20)
    await node.restart_agent()
    (node.folder / "nftlb.json").unlink(missing_ok=True)
    await node.program(wanted, 20)
    await node.passes(5)
    saved = json.loads((node.folder / "nftlb.json").read_text())["farms"]
    assert [entry["iface"] for each in saved for entry in each["addresses"]] == ["eth0", "eth0"]
    node.nftlb.end()
    await node.passes(5)
    assert (node.nftlb.ends, node.loop.progress.drift_repaired, node.reason()) == (1, 0, None)
    assert node.nftlb.farms["web--http"]["state"] == "up"


async def test_nftlb_starts_with_dsr_farms_that_a_restarted_agent_leaves_as_they_are(node: Node) -> None:
    node.pod_links.found = Links({"10.244.1.2": POD}, {"eth0": "02:00:00:00:00:01"}, frozenset())
    await node.program([farm(mode="dsr", backends=[raw_backend("a", "10.244.1.2", 80)])], 20)
    await node.passes(5)
    before = json.loads((node.folder / "nftlb.json").read_text())["farms"]
    await node.restart_agent()
    node.list([], 20)
    node.put_unreadable(WEB, 21)
    await node.settle(21)
    assert "web--http" in node.nftlb.farms
    # Another farm has it saved again.
    await node.change(farm("other", addresses=[{"ip": "10.96.0.11", "ports": "80"}], version=22))
    await node.passes(5)
    after = json.loads((node.folder / "nftlb.json").read_text())["farms"]
    (saved,) = (each for each in after if each["name"] == "web--http")
    (known,) = (each for each in before if each["name"] == "web--http")
    assert [saved[key] for key in ("oface", "addresses")] == [known[key] for key in ("oface", "addresses")]
    assert [each["ether-addr"] for each in saved["backends"]] == [POD.mac]


@pytest.mark.parametrize("content", ["", "[]", '{"farms": [{}]}', '{"farms": 1}'])
async def test_a_start_up_file_that_cannot_be_read_stops_nothing(node: Node, content: str) -> None:
    (node.folder / "nftlb.json").write_text(content)
    await node.program([farm()], 20)
    assert "web--http" in node.nftlb.farms


async def test_a_restarted_agent_misses_the_listeners_of_dsr_farms(node: Node) -> None:
    node.pod_links.found = Links({"10.244.1.2": POD}, {"eth0": "02:00:00:00:00:01"}, frozenset())
    wanted = [farm(mode="dsr", backends=[raw_backend("a", "10.244.1.2", 80)])]
    await node.program(wanted, 20)
    await node.restart_agent()
    await node.program(wanted, 20)
    await node.passes(5)
    for address in node.nftlb.farms["web--http"]["addresses"].values():
        del address["iface"]
    assert "is missing in the kernel" in (await node.engine.drift("web--http") or "")
    node.reader.foreign_changes += 1
    await node.passes(5)
    assert await node.engine.drift("web--http") is None
    assert (node.loop.progress.drift_repaired, node.reason()) == (1, None)


async def test_the_start_up_file_has_the_last_change_before_the_agent_ends(node: Node) -> None:
    node.list([farm("a", addresses=[{"ip": "10.96.0.1", "ports": "80"}])], 20)
    await until(lambda: bool(node.nftlb.farms))
    node.loop.stop()
    await asyncio.wait_for(node.task, 5)
    saved = json.loads((node.folder / "nftlb.json").read_text())["farms"]
    assert [entry["name"] for entry in saved] == ["a"]


async def test_the_start_up_file_is_saved_although_stale_connections_cannot_be_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")
    await node.program([farm(persistence="srcip", backends=[first, second])], 20)
    await node.passes(5)

    async def find(*_: object) -> list[Entry]:
        raise errors.KernelError("busy")

    await node.change(farm(persistence="srcip", backends=[first], generation=2, version=21))
    monkeypatch.setattr(node.conntrack, "find", find)
    node.loop.stop()
    await asyncio.wait_for(node.task, 5)
    saved = json.loads((node.folder / "nftlb.json").read_text())["farms"]
    assert [len(entry["backends"]) for entry in saved] == [1]


async def test_nftlb_restarted_with_older_farms_before_they_are_verified(node: Node) -> None:
    def farms(*backends: dict[str, Any], generation: int) -> list[Farm]:
        return [
            farm(f"{name}--http", addresses=[{"ip": ip, "ports": "80"}], backends=list(backends), generation=generation)
            for name, ip in (("a", "10.96.1.1"), ("b", "10.96.1.2"))
        ]

    first, second = raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")
    await node.program(farms(first, generation=1), 20)
    await node.passes(5)
    older = copy.deepcopy(node.nftlb.farms)
    node.list(farms(first, second, generation=2), 21)
    await until(lambda: len(node.state.queue.unverified) == 2)
    node.nftlb.farms, node.nftlb.key = older, "other"
    (node.folder / "key").write_text("other")
    node.reader.foreign_changes += 1
    await until(lambda: [len(each["backends"]) for each in node.nftlb.farms.values()] == [2, 2])


async def test_rules_that_can_wait_are_not_lost_when_another_farm_is_refused(node: Node) -> None:
    await node.program([farm("old--http")], 20)
    await node.passes(3)
    node.reader.refused.add("bad--http")
    node.put(
        farm("empty--http", addresses=[{"ip": "10.96.1.2", "ports": "80"}], backends=[], version=21),
        farm("bad--http", addresses=[{"ip": "10.96.1.3", "ports": "80"}], version=22),
    )
    await until(lambda: "tcp . 10.96.1.2 . 80" in node.nft.sets["no-endpoints-ip"])


async def test_the_start_up_file_is_written_again_after_nftlb_ended_over_it(node: Node) -> None:
    path = node.folder / "nftlb.json"
    await node.program([farm()], 20)
    await until(path.exists)
    path.rename(node.folder / "nftlb.failed")
    node.nftlb.end()
    await until(path.exists)
    assert [each["name"] for each in json.loads(path.read_text())["farms"]] == ["web--http"]


async def test_the_start_up_file_gets_its_name_back_once_nftlb_answers(node: Node) -> None:
    path = node.folder / "nftlb.json"
    await node.program([farm()], 20)
    await until(path.exists)
    path.rename(node.folder / "nftlb.loading")
    node.nftlb.end()
    await until(path.exists)
    assert not (node.folder / "nftlb.loading").exists()
