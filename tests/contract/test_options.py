"""A farm's options as they are in the kernel: all are taken, changed and cleared, and nothing of them stays."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.agent.table import kernel_features
from kube_nftlb.agent.table.kernel_features import FeatureProbe
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.agent.table.verify import TableVerifier
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.values import IPV4_HELPERS, KERNEL_HELPERS
from tests.builders import farm, raw_backend
from tests.contract.bench import Bench, bench
from tests.contract.conftest import PORT
from tests.views import view

FAMILIES: dict[str, dict[str, Any]] = {
    "ipv4": {
        "addresses": [{"ip": "10.96.0.10", "ports": "80,443"}, {"ip": "10.96.0.11", "ports": "80"}],
        "backends": [raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")],
    },
    "ipv6": {
        "family": "ipv6",
        "addresses": [{"ip": "fd00:96::a", "ports": "80,443"}, {"ip": "fd00:96::b", "ports": "80"}],
        "backends": [raw_backend("a", "fd00:244::2"), raw_backend("b", "fd00:244::3")],
    },
}
SOURCE = {"ipv4": ("192.0.2.1", "192.0.2.2"), "ipv6": ("2001:db8::1", "2001:db8::2")}
LONG_NAME = "n" * 63

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "new": ({"limits": {"new": "5/second"}}, {"limits": {"new": "7/week", "newBurst": 3, "newLogPrefix": "a b:"}}),
    "reset": (
        {"limits": {"reset": "10/second", "new": "1/hour"}},
        {"limits": {"reset": "10/minute", "resetBurst": 9, "resetLogPrefix": "x"}},
    ),
    "established": ({"limits": {"established": 5}}, {"limits": {"established": 6, "establishedLogPrefix": "x" * 40}}),
    "tcpStrict": ({"limits": {"tcpStrict": True}}, {"limits": {"tcpStrict": True, "tcpStrictLogPrefix": "x y"}}),
    "forgetSeconds": (
        {"limits": {"new": "5/second", "forgetSeconds": 7}},
        {"limits": {"new": "5/second", "forgetSeconds": 9}},
    ),
    "logRate": (
        {"limits": {"tcpStrict": True, "logRate": "3/minute"}},
        {"limits": {"tcpStrict": True, "logRate": "4/day", "new": "1/second"}},
    ),
    "verdict": (
        {"limits": {"new": "1/second", "verdict": "log"}},
        {"limits": {"new": "1/second", "verdict": "drop"}},
    ),
    "log": ({"log": "input"}, {"log": "input forward output", "logPrefix": "shop: web"}),
    "mark": ({"mark": "0x1000"}, {"mark": "0xffff000"}),
}


class Node:
    """nftlb and the agent's own table, and a look at the kernel."""

    def __init__(self, engine: Bench, table: AgentTable) -> None:
        self.engine, self.table = engine, table

    async def bring(self, wanted: Farm) -> None:
        name = wanted.metadata.name
        seen, _, contents, _ = view(wanted, self.engine.present.get(name))
        await self.table.update({name: contents})
        assert await self.engine.mirror.send_steps(plan_steps(self.engine.present, {name: seen})) == {}
        await self.engine.mirror.sync()
        assert plan_steps(self.engine.present, {name: seen}) == []
        await self.intact()

    async def intact(self) -> None:
        for name in self.engine.present:
            assert await self.engine.verifier.farm(name) is None
        assert await self.engine.verifier.base() is None
        assert await TableVerifier(self.table, self.engine.reader).drift() is None
        assert "recovery in progress" not in self.engine.log.read_text()


@pytest.fixture
async def node(real_nftlb: Path, run_dir: Path) -> AsyncIterator[Node]:
    async with bench(f"http://127.0.0.1:{PORT}", real_nftlb, run_dir) as opened:
        table = AgentTable(opened.nft)
        await opened.mirror.sync()
        await table.create()
        yield Node(opened, table)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("option", CHANGES)
async def test_an_option_is_set_changed_and_cleared(node: Node, family: str, option: str) -> None:
    bystander = {**FAMILIES[family], "addresses": [{"ip": FAMILIES[family]["addresses"][0]["ip"], "ports": "8080"}]}
    await node.bring(farm("bystander", **bystander, limits={"new": "5/second"}, log="input"))
    await node.bring(farm(**FAMILIES[family]))
    without = node.table.state
    fresh = node.engine.present["web--http"].options
    first, second = CHANGES[option]
    await node.bring(farm(**FAMILIES[family], **first))
    await node.bring(farm(**FAMILIES[family], **second))
    if family == "ipv4":
        # nftlb drops the table ip6 when an address goes (docs/nftlb-defects.md).
        one_address = {**FAMILIES[family], "addresses": FAMILIES[family]["addresses"][:1]}
        await node.bring(farm(**one_address, **second))
    await node.bring(farm(**FAMILIES[family]))
    assert node.engine.present["web--http"].options == fresh
    assert node.table.state == without


@pytest.mark.parametrize("family", FAMILIES)
async def test_sources_and_limits_of_backends_are_set_changed_and_cleared(node: Node, family: str) -> None:
    base, (one, other) = FAMILIES[family], SOURCE[family]
    await node.bring(farm(**base))
    without = node.table.state
    a, b = base["backends"]
    for changes in (
        {"sourceAddress": one},
        {"sourceAddress": other, "backends": [{**a, "sourceAddress": one}, b]},
        {"backends": [{**a, "sourceAddress": one, "established": 3}, {**b, "established": 4}]},
        {"backends": [{**a, "established": 5, "establishedLogPrefix": "x" * 40}, b]},
        {"backends": [a]},
    ):
        await node.bring(farm(**{**base, **changes}))
    assert node.table.state == without


async def test_the_longest_names_fit(node: Node) -> None:
    """nft's prefixes, chains and sets have 127 characters at most."""
    limits = {"new": "1000000/second", "reset": "1/week", "established": 1, "tcpStrict": True}
    backend = raw_backend("b" * 63, "10.244.1.2", established=1)
    name = LONG_NAME
    wanted = farm(name, **{**FAMILIES["ipv4"], "backends": [backend]}, limits=limits, log="forward", helper="ftp")
    await node.bring(wanted)


@pytest.mark.parametrize("helper", KERNEL_HELPERS, ids="-".join)
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_helper_is_probed_and_set(node: Node, helper: tuple[str, str], family: str) -> None:
    name, protocol = helper
    if family == "ipv6" and name in IPV4_HELPERS:
        with pytest.raises(ValueError, match="require family ipv4"):
            farm(**FAMILIES[family], helper=name, protocol=protocol)
        return
    wanted = farm(**FAMILIES[family], helper=name, protocol=protocol)
    before = await node.engine.reader.generation()
    features = FeatureProbe(node.engine.nft)
    await features.probe(wanted.spec)
    assert await node.engine.reader.generation() == before, "a probe changes nothing"
    if missing := features.missing(wanted.spec):
        pytest.skip(missing)
    await node.bring(wanted)
    await node.bring(
        farm(
            "other",
            **{**FAMILIES[family], "addresses": [{"ip": SOURCE[family][0], "ports": "80"}]},
            helper=name,
            protocol=protocol,
        )
    )
    await node.bring(farm(**FAMILIES[family], protocol=protocol))


@pytest.mark.parametrize(
    "limits",
    [
        {"new": "1/week", "newBurst": 30500},
        {"new": "1/second", "newBurst": 1000000},
        {"reset": "5/day", "resetBurst": 1000000},
        {"reset": "1000000/week", "resetBurst": 1000000},
    ],
)
async def test_the_kernel_takes_the_longest_bursts(node: Node, limits: dict[str, Any]) -> None:
    await node.bring(farm(**FAMILIES["ipv4"], limits=limits))


async def test_another_helper_takes_the_place_of_one(node: Node) -> None:
    helpers = ("ftp", "sip")
    wanted = [farm(**FAMILIES["ipv4"], helper=helper) for helper in helpers]
    features = FeatureProbe(node.engine.nft)
    for each in wanted:
        await features.probe(each.spec)
        if missing := features.missing(each.spec):
            pytest.skip(missing)
    for each in wanted:
        await node.bring(each)
        (named,) = [named for named in node.table.state.sets.values() if named.kind == "ct helper"]
        assert f'"{each.spec.helper}"' in named.declaration


async def test_what_no_kernel_has_is_found_lacking(node: Node) -> None:
    """The probe of a kernel that lacks a helper, asked for one that there is nowhere."""
    feature = next(kernel_features.needed(farm(**FAMILIES["ipv4"], helper="ftp").spec))
    assert await node.engine.nft.check(feature.probe.replace('"ftp"', '"nonsense"'))
