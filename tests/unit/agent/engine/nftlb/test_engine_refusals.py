"""What nftlb refuses, or the kernel refuses to nftlb, leaves a farm as it was, is told, and is tried again."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from tests.builders import farm, raw_backend
from tests.fakes.node import WEB, until
from tests.unit.agent.engine.nftlb.conftest import Node

OLD = [raw_backend("old", "10.244.1.2")]
NEW = [raw_backend("new", "10.244.1.3")]
LIMITED = {"type": "LoadBalancer", "ports": "80", "sourceRanges": ["192.0.2.0/24"]}


HOW = ["nftlb refuses it", "the kernel refuses what nftlb writes", "lost before it was done", "lost after it was done"]


async def served(node: Node, *before: Farm) -> None:
    await node.program([*before, farm("other--http", addresses=[{"ip": "10.96.0.99", "ports": "80"}])], 20)
    await until(lambda: node.loop.settled)


def backends(node: Node) -> list[str]:
    return sorted(each["ip-addr"] for each in node.nftlb.farms["web--http"]["backends"].values())


async def test_an_update_that_nftlb_refuses_leaves_the_farm_as_it_was(node: Node) -> None:
    await served(node, farm(backends=OLD))
    node.nftlb.refuses.add("10.244.1.3")
    await node.change(farm(generation=2, version=21, backends=NEW))
    assert node.reason() == "Refused"
    assert "it stays as it was" in node.loop.progress.problems[WEB].message
    assert backends(node) == ["10.244.1.2"]
    node.nftlb.refuses.clear()
    await until(lambda: not node.loop.progress.problems)
    assert backends(node) == ["10.244.1.3"]


async def test_an_update_that_the_kernel_refuses_leaves_the_farm_as_it_was(node: Node) -> None:
    await served(node, farm(backends=OLD))
    node.reader.stick("web--http")
    await node.change(farm(generation=2, version=21, backends=NEW))
    assert node.reason() == "Refused"
    assert backends(node) == ["10.244.1.2"], "nftlb has what the kernel has"
    node.reader.stuck.clear()
    await until(lambda: not node.loop.progress.problems)
    assert backends(node) == ["10.244.1.3"]


async def test_a_new_farm_that_nftlb_refuses_is_retried(node: Node) -> None:
    node.nftlb.refuses.add("10.244.1.3")
    await served(node, farm(backends=NEW))
    assert node.reason() == "Refused"
    assert "other--http" in node.engine.sent
    node.nftlb.refuses.clear()
    await until(lambda: not node.loop.progress.problems)
    assert backends(node) == ["10.244.1.3"]


@pytest.fixture
async def anew(node: Node) -> Node:
    """A node whose farm nftlb has deleted, to make it anew with another protocol, and then refuses."""
    await served(node, farm(backends=OLD), farm("stuck--http", addresses=at(98), backends=OLD))
    await node.passes(5)
    node.nftlb.refuses.add('"udp"')
    await node.change(farm(generation=2, version=21, protocol="UDP", backends=OLD))
    assert "it is not served" in node.loop.progress.problems[WEB].message
    return node


async def test_a_farm_that_nftlb_refuses_to_make_anew_concerns_no_other(
    anew: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued, add = set[FarmKey](), anew.state.add

    def added(keys: Iterable[FarmKey], since: int | None = None) -> None:
        keys = list(keys)
        queued.update(keys)
        add(keys, since)

    monkeypatch.setattr(anew.state, "add", added)
    anew.reader.stick("stuck--http")
    await anew.change(farm("stuck--http", generation=2, version=22, addresses=at(98), backends=NEW))
    await anew.passes(120)
    assert anew.reason("stuck--http") == "Refused"
    assert FarmKey("default", "other--http") not in queued


async def test_an_nftlb_that_restarts_does_not_serve_a_farm_as_it_was_before_it_was_refused(anew: Node) -> None:
    await anew.passes(5)
    anew.nftlb.end()
    assert anew.nftlb.farms.keys() == {"other--http", "stuck--http"}


async def test_a_removal_that_nftlb_refuses_is_retried(node: Node) -> None:
    await served(node, farm(backends=OLD))
    node.nftlb.refuses.add("DELETE /farms/web--http")
    node.remove(WEB, 21)
    await node.settle(21)
    assert "web--http" in node.nftlb.farms
    node.nftlb.refuses.clear()
    await until(lambda: "web--http" not in node.nftlb.farms)


def at(*last: int) -> list[dict[str, Any]]:
    return [{"ip": f"10.96.0.{each}", "ports": "80"} for each in last]


def shared(node: Node) -> set[str]:
    """The addresses that two farms have in nftlb."""
    ips = [address["ip-addr"] for each in node.nftlb.farms.values() for address in each["addresses"].values()]
    return {ip for ip in ips if ips.count(ip) > 1}


LEAVES, GETS, GOES = "DELETE /farms/web--http/addresses", '"10.96.0.3"', "DELETE /farms/web--http"


@pytest.mark.parametrize(("refused", "stays"), [(LEAVES, {1, 2}), (GETS, {1}), (GOES, {1, 2})])
async def test_two_farms_never_share_an_address_though_nftlb_refuses_that_one_leaves_it_or_gets_another(
    node: Node, monkeypatch: pytest.MonkeyPatch, refused: str, stays: set[int]
) -> None:
    def web(*last: int, **more: Any) -> Farm:
        addresses = [{"ip": f"10.96.0.{each}", **LIMITED} for each in last]
        return farm(created="2020-01-01T00:00:00Z", addresses=addresses, **more)

    def addresses(name: str) -> set[str]:
        return {each["ip-addr"] for each in node.nftlb.farms.get(name, {"addresses": {}})["addresses"].values()}

    await served(node, web(1, 2))
    node.nftlb.refuses.add(refused)
    answer, shared = node.nftlb.answer, set[str]()

    def answered(method: str, path: str, body: bytes) -> tuple[int, str]:
        outcome = answer(method, path, body)
        shared.update(addresses("web--http") & addresses("taking--http"))
        return outcome

    monkeypatch.setattr(node.nftlb, "answer", answered)
    if refused == GOES:
        node.remove(WEB, 21)
    else:
        node.put(web(*((1,) if refused == LEAVES else (1, 3)), generation=2, version=21))
    node.put(farm("taking--http", version=22, addresses=[{"ip": "10.96.0.2", "ports": "80"}]))
    await node.settle(22)
    await node.passes(90)
    assert addresses("web--http") == {f"10.96.0.{each}" for each in stays}
    assert {f"tcp . {ip} . 80" for ip in addresses("taking--http")}.isdisjoint(node.nft.sets["source-ranges-ip"])
    node.nftlb.refuses.clear()
    await until(lambda: addresses("taking--http") == {"10.96.0.2"} and not node.loop.progress.problems)
    assert not shared


async def test_clients_are_kept_out_of_where_a_refused_farm_still_is(node: Node) -> None:
    await served(node, farm(backends=OLD, addresses=[{**LIMITED, "ip": "10.96.0.10"}]))
    node.reader.stick("web--http")
    await node.change(farm(generation=2, version=21, backends=OLD, addresses=[{**LIMITED, "ip": "10.96.0.20"}]))
    assert node.reason() == "Refused"
    assert "tcp . 10.96.0.10 . 80" in node.nft.sets["source-ranges-ip"]
    addresses = node.nftlb.farms["web--http"]["addresses"].values()
    assert [each["ip-addr"] for each in addresses] == ["10.96.0.10"]


def begin(node: Node, change: str, how: str) -> None:
    request = "DELETE /farms/web--http" if change == "delete" else "10.244.1.3"
    if how == HOW[0]:
        node.nftlb.refuses.add(request)
    elif how == HOW[1] and change == "new":
        node.reader.refused.add("web--http")
    elif how == HOW[1]:
        node.reader.stick("web--http")
    else:
        node.nftlb.loses[request] = how == HOW[3]


def end(node: Node) -> None:
    node.nftlb.refuses.clear()
    node.reader.refused.clear()
    node.reader.stuck.clear()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("change", ["update", "new", "delete"])
async def test_no_change_counts_that_the_kernel_does_not_have_and_each_comes_in_the_end(
    node: Node, change: str, how: str
) -> None:
    wanted = set() if change == "delete" else {"10.244.1.3"}
    await served(node, *([] if change == "new" else [farm(backends=OLD)]))
    other = node.reader.endpoints_of("other--http")
    begin(node, change, how)
    if change == "delete":
        node.remove(WEB, 21)
    else:
        node.put(farm(generation=2, version=21, backends=NEW))
    ends_at = node.clock.now() + 10
    while node.clock.now() < ends_at:
        await asyncio.sleep(0)
        assert node.reader.endpoints_of("other--http") == other
        if change != "delete" and node.loop.progress.watermark >= 21 and WEB not in node.loop.progress.failed:
            assert node.reader.endpoints_of("web--http") == wanted
    end(node)
    await until(lambda: node.reader.endpoints_of("web--http") == wanted and not node.loop.progress.problems)


async def test_what_the_kernel_still_has_of_a_deleted_farm_is_found_at_once(node: Node) -> None:
    await served(node, farm(backends=OLD))
    node.reader.stick("web--http")
    began = node.clock.now()
    node.remove(WEB, 21)
    await until(lambda: node.loop.progress.drift_repaired > 0)
    assert node.clock.now() - began < 2
    node.reader.stuck.clear()
    await until(lambda: node.loop.settled)
    assert not node.reader.endpoints_of("web--http")
