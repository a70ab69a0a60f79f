"""The loop over nftlb when events come in an order that is rare, and farms that are written to harm others."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.dsr.modes import Links, PodLink, PodVip
from kube_nftlb.agent.dsr.pod_addresses import PodAddresses
from kube_nftlb.agent.dsr.record import Entry
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.api.address_ranges import address_range
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from tests.builders import farm, raw_backend, raw_policy
from tests.fakes import nft
from tests.fakes.node import until
from tests.unit.agent.engine.nftlb.conftest import Node

POD = PodLink(1, "eth0", "02:00:00:00:00:02", "cni0")


def at(ip: str, ports: str = "80", **more: Any) -> list[dict[str, Any]]:
    return [{"ip": ip, "ports": ports, **more}]


@pytest.mark.parametrize("name", ["environment", "pools", "plain"])
async def test_no_name_of_a_farm_changes_what_others_have_in_the_agent_table(node: Node, name: str) -> None:
    node.state.set_node(NodeFacts("node-1", pod_cidrs={"ipv4": ("10.244.1.0/24",)}), {"ipv4": ("10.96.0.0/12",)})
    node.state.set_pools([address_range("203.0.113.0/24")])
    await node.program([farm(addresses=at("10.96.0.10"))], 20)
    await node.passes(3)
    shared = {each for each in node.nft.sets if each.startswith(("local-pods", "service-ranges", "pool-ranges"))}
    limited = at("203.0.113.9", type="LoadBalancer", sourceRanges=["10.0.0.0/8"])
    await node.change(farm(name, addresses=limited, version=21))
    await node.change(farm("victim--http", namespace="other", addresses=at("10.96.0.60"), version=30))
    assert shared <= node.nft.sets.keys()
    assert "203.0.113.9" in str(node.nft.sets["source-ranges-ip"])
    assert node.nftlb.farms.keys() == {"web--http", name, "other.victim--http"}


@pytest.mark.parametrize("refused", [False, True], ids=["served", "refused"])
async def test_farms_in_the_mode_dsr_that_nftlb_cannot_have_stop_no_other(node: Node, *, refused: bool) -> None:
    node.pod_links.found = Links({"10.244.1.2": POD}, {"eth0": "02:00:00:00:00:01"}, frozenset())
    # An address for documentation, which the keeper of the ingress chains must not need.
    await node.program([farm("first--http", addresses=at("192.0.2.1", "1", type="ExternalIP"))], 20)
    if refused:
        node.nftlb.refuses.add("169.254.255.254")
    direct = {"mode": "dsr", "backends": [raw_backend("a", "10.244.1.2", 80)]}
    node.put(farm("direct--http", addresses=at("10.96.0.50"), version=21, **direct))
    await node.change(farm("victim--http", namespace="other", addresses=at("10.96.0.60"), version=30))
    assert "other.victim--http" in node.nftlb.farms
    assert ("direct--http" in node.nftlb.farms) != refused
    assert node.loop.progress.pass_error is None


async def test_a_farm_that_nftlb_deletes_as_something_else_fails_is_not_in_its_start_up_file(node: Node) -> None:
    both = [raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")]
    sticky = {"addresses": at("10.96.0.2"), "persistence": "srcip"}
    await node.program([farm("a--http", addresses=at("10.96.0.1")), farm("p--http", backends=both, **sticky)], 20)
    await node.passes(5)
    find = node.conntrack.find

    async def fails_once(*_: Any, **__: Any) -> Any:
        node.conntrack.find = find  # type: ignore[method-assign]  # as it was
        raise errors.KernelError("netfilter does not answer")

    node.conntrack.find = fails_once  # type: ignore[method-assign]  # once
    node.remove(FarmKey("default", "a--http"), 21)
    await node.change(farm("p--http", backends=both[:1], generation=2, version=22, **sticky))
    await node.passes(70)
    saved = json.loads((node.folder / "nftlb.json").read_text())
    assert "a--http" not in {each["name"] for each in saved["farms"]}
    assert not node.engine._startup_file.lost(node.engine.mirror.present)  # noqa: SLF001 - it would program all anew


async def test_whom_a_policy_denies_is_denied_until_a_farm_that_changes_its_family_has_changed(node: Node) -> None:
    node.state.put_policy(raw_policy(version=11))
    await node.program([farm(policies=["list"], addresses=at("10.96.0.10"))], 20)

    def met() -> Any:
        entry = node.nft.sets.get("policy-ip", {}).get("tcp . 10.96.0.10 . 80", "")
        return nft.rules_met(entry.strip("{} ").rpartition(" ")[2], node.nft.chains, node.nft.sets)

    before = met()
    assert before
    node.nftlb.reachable = False
    await until(lambda: bool(node.loop.progress.engine_error))
    six: dict[str, Any] = {"family": "ipv6", "backends": [raw_backend("a", "fd00::2")]}
    node.put(farm(policies=["list"], addresses=at("fd00::10"), generation=2, version=21, **six))
    await node.passes(60)
    assert met() == before, "nftlb still serves it"


class Pods(PodAddresses):
    """Knows one pod, whose network namespace is not entered."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.present: set[str] = set()
        """The addresses that the pod has."""

    async def look(self) -> bool:
        before, self.links = self.links, Links({"10.244.1.2": POD}, {"eth0": "02:00:00:00:00:01"}, frozenset())
        return before != self.links

    def _give(self, ip: str, pod: PodLink, vips: Mapping[str, frozenset[str]]) -> None:
        known = self._record.entries.get(ip) or Entry(pod.namespace, pod.interface, {}, {})
        self._record.entries[ip] = replace(known, vips={**known.vips, **vips})
        self.present |= vips.keys()

    def _take(self, ip: str, entry: Entry, vips: Collection[str]) -> None:
        self._confirmed.pop(ip, None)
        self._record.entries[ip] = replace(entry, vips={vip: of for vip, of in entry.vips.items() if vip not in vips})
        self.present -= set(vips)


@pytest.mark.parametrize("how", ["refused", "away", "taken"])
async def test_a_pod_has_the_address_at_which_nftlb_sends_it_packets(tmp_path: Path, how: str) -> None:
    node, pods = Node(tmp_path), Pods(tmp_path / "pods.json")
    node.pod_links = pods  # type: ignore[assignment]  # the bookkeeping is the agent's own
    node.start([])
    direct: dict[str, Any] = {"mode": "dsr", "backends": [raw_backend("a", "10.244.1.2", 80)]}
    await node.program([farm(addresses=at("10.96.0.10"), **direct)], 20)
    await node.passes(8)
    assert pods.present == {"10.96.0.10"}
    provide = pods.provide

    async def provide_and_go(vips: Mapping[str, frozenset[PodVip]]) -> None:
        await provide(vips)
        node.nftlb.reachable = how != "away"

    pods.provide = provide_and_go  # type: ignore[method-assign]  # between the plan and its application
    if how == "refused":
        node.nftlb.refuses.add("10.96.0.77")
    node.put(farm(addresses=at("10.96.0.77"), generation=2, version=21, **direct))
    await node.passes(20)
    served = {each["ip-addr"] for each in node.nftlb.farms["web--http"]["addresses"].values()}
    assert served == {"10.96.0.77" if how == "taken" else "10.96.0.10"}
    assert served <= pods.present
    if how == "taken":
        assert pods.present == served
    await node.stop()


@pytest.mark.parametrize("order", ["the leaving one first", "the taking one first"])
@pytest.mark.parametrize("what", ["policy", "source-ranges"])
async def test_a_listener_that_passes_to_another_farm_is_restricted_as_both_are_meanwhile(
    node: Node, what: str, order: str
) -> None:
    for name in ("of-a", "of-b"):
        node.state.put_policy(raw_policy(name, version=11))

    def restricted(name: str, ip: str, ranges: str, **more: Any) -> Farm:
        if what == "policy":
            return farm(f"{name}--http", addresses=at(ip, type="LoadBalancer"), policies=[f"of-{name}"], **more)
        return farm(f"{name}--http", addresses=at(ip, type="LoadBalancer", sourceRanges=[ranges]), **more)

    def chains() -> set[str]:
        """The restrictions that clients of the listener pass."""
        entries = node.nft.sets[f"{what}-ip"].get("tcp . 10.96.0.10 . 80", "").split(",")
        lead = next(each.strip(" {}").rpartition("jump ")[2] for each in entries if "10.96.0.10" in each)
        return {each.rpartition("jump ")[2] for each in node.nft.chains[lead]} if lead.startswith("both-") else {lead}

    a, b = "172.16.0.0/12", "192.168.0.0/16"
    await node.program([restricted("a", "10.96.0.10", a), restricted("b", "10.96.0.12", b)], 20)
    (of_a,) = chains()
    met: list[set[str]] = []
    answer = node.nftlb.answer

    def noted(method: str, path: str, body: bytes) -> tuple[int, str]:
        answered = answer(method, path, body)
        has = node.nftlb.farms.get("b--http", {"addresses": {}})["addresses"].values()
        if any(each["ip-addr"] == "10.96.0.10" for each in has):
            met.append(chains())
        return answered

    node.nftlb.answer = noted  # type: ignore[method-assign]  # noted, and answered
    changed = [("a", "10.96.0.11", a), ("b", "10.96.0.10", b)]
    if order == "the taking one first":
        changed.reverse()
    for version, (name, ip, ranges) in enumerate(changed, 21):
        node.put(restricted(name, ip, ranges, generation=2, version=version))
    await node.settle(22)
    (of_b,) = chains()
    assert of_a != of_b
    assert met
    assert all(of_b in each for each in met), "nobody gets into b whom b keeps out"
    assert not [name for name in node.nft.chains if name.startswith("both-")]
