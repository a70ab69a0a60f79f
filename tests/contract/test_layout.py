"""nftlb builds in the kernel what ``layout`` expects, for every value of a farm's fields."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftlb import translate
from kube_nftlb.agent.engine.nftlb.mirror import listeners
from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.api import farm as model
from tests.builders import farm, raw_backend
from tests.contract.bench import Bench, bench
from tests.contract.conftest import PORT
from tests.contract.nftables_node import nft
from tests.views import translated

IPV4: dict[str, Any] = {"addresses": [{"ip": "10.96.0.10", "ports": "80"}]}
IPV6: dict[str, Any] = {"family": "ipv6", "addresses": [{"ip": "fd00:96::a", "ports": "80"}]}
BACKENDS = {
    "ipv4": [raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3", weight=3), raw_backend("c", "10.244.1.4")],
    "ipv6": [
        raw_backend("a", "fd00:244::2"),
        raw_backend("b", "fd00:244::3", weight=3),
        raw_backend("c", "fd00:244::4"),
    ],
}


@pytest.fixture
async def engine(real_nftlb: Path, run_dir: Path) -> AsyncIterator[Bench]:
    async with bench(f"http://127.0.0.1:{PORT}", real_nftlb, run_dir) as opened:
        await opened.mirror.sync()
        yield opened


async def bring(engine: Bench, wanted: model.Farm | None, name: str = "web--http") -> None:
    """Plan, apply, and compare all that there is with the kernel."""
    seen = translated(wanted, engine.present.get(name)) if wanted else None
    assert await engine.mirror.send_steps(plan_steps(engine.present, {name: seen})) == {}
    if seen is not None:
        assert await engine.verifier.farm(name) is None
    assert await engine.verifier.base() is None
    await engine.mirror.sync()
    assert plan_steps(engine.present, {name: seen}) == [], "what nftlb shows is what it was sent"


async def test_a_farm_may_have_no_address_on_a_node(engine: Bench) -> None:
    ported = [{"type": "NodePort", "ports": "30080"}]
    await bring(engine, farm(addresses=ported, backends=BACKENDS["ipv4"]))
    assert engine.present["web--http"].addresses == {}
    await bring(engine, farm(addresses=ported, backends=BACKENDS["ipv4"][1:]))
    await bring(engine, None)


async def test_ipv6_farms_go_and_come_back_and_the_others_stay(engine: Bench) -> None:
    def six(number: int, name: str) -> model.Farm:
        address = {"ip": f"fd00:96::{number}", "ports": "80"}
        return farm(name, **{**IPV6, "addresses": [address]}, backends=BACKENDS["ipv6"])

    for number, name in enumerate(("web--http", "b", "c"), 1):
        await bring(engine, six(number, name), name)
    await bring(engine, farm("four", addresses=[{"ip": "10.96.0.1", "ports": "80"}], backends=BACKENDS["ipv4"]), "four")
    for name in ("b", "c"):
        await bring(engine, None, name)
    assert engine.present.keys() == {"web--http", "four"}
    await bring(engine, six(2, "b"), "b")
    assert [await engine.verifier.farm(name) for name in engine.present] == [None, None, None]


@pytest.mark.parametrize("base", [IPV4, IPV6], ids=["ipv4", "ipv6"])
async def test_a_farm_lives_through_all_changes(engine: Bench, base: dict[str, Any]) -> None:
    a, b, c = BACKENDS[base.get("family", "ipv4")]
    ip = base["addresses"][0]["ip"]
    other = {"ip": ip + "1", "ports": "80"}
    steps: list[dict[str, Any]] = [
        {"backends": []},
        {"backends": [a]},
        {"backends": [a, b, c]},
        {"backends": [b]},
        {"backends": [{**b, "port": 9090}, c]},
        {"backends": [{**b, "ip": c["ip"]}, {**c, "ip": b["ip"]}]},
        {"backends": [b], "scheduler": "weight"},
        {"backends": [b, c], "persistence": "srcip", "persistTTL": 7},
        {"backends": [c], "persistence": "srcip", "mode": "dnat"},
        {"backends": [c], "intraConnect": False},
        {"backends": [a, c], "addresses": [{"ip": ip, "ports": "80,443"}]},
        {"backends": [a, c], "addresses": [{"ip": ip, "ports": "443,8000-8010"}]},
        {"backends": [a, c], "addresses": [{"ip": ip, "ports": "8005-8020"}, other]},
        {"backends": [a, c], "addresses": [other]},
        {"backends": [a, c], "addresses": [other], "protocol": "UDP"},
        {"backends": [a, c], "addresses": [other], "protocol": "TCP"},
        {"backends": []},
    ]
    for changes in steps:
        await bring(engine, farm(**{**base, **changes}))
    await bring(engine, None)
    assert engine.present == {}
    for family in ("ip", "ip6"):
        assert await engine.reader.listeners(family) == set()


@pytest.mark.parametrize("first", ["idle", "dsr"])
async def test_rules_are_written_anew_whatever_farm_comes_first(engine: Bench, first: str) -> None:
    """nftlb makes no rules of a farm that is down, and of one in the mode dsr none in these tables."""
    idle = replace(translated(farm("a-first", addresses=[{"ip": "10.96.9.9", "ports": "80"}])), backends={})
    keeper = translate.keeper({"lo": "00:00:00:00:00:00"})
    odd = replace(idle, options={**idle.options, "state": "down"}) if first == "idle" else keeper
    assert await engine.mirror.send_steps(plan_steps({}, {odd.name: odd})) == {}
    await bring(engine, farm(backends=BACKENDS["ipv4"]))
    assert next(iter(engine.present)) == odd.name
    await engine.mirror.rebuild()
    assert await engine.verifier.farm("web--http") is None
    assert await engine.verifier.base() is None


@pytest.mark.parametrize(
    "damage",
    [
        "flush chain {family} nftlb postrouting",
        "delete rule {family} nftlb filter handle 2",
        "insert rule {family} nftlb prerouting accept",
        "add rule {family} nftlb output-nat counter",
        "add rule {family} nftlb output-filter counter",
    ],
)
@pytest.mark.parametrize(("base", "family"), [(IPV4, "ip"), (IPV6, "ip6")], ids=["ipv4", "ipv6"])
async def test_damage_to_what_farms_share_is_found(
    engine: Bench, base: dict[str, Any], family: str, damage: str
) -> None:
    await bring(engine, farm(**base, backends=BACKENDS[base.get("family", "ipv4")]))
    nft(damage.format(family=family))
    drift = await engine.verifier.base()
    assert drift is not None
    assert f"the chain {damage.split()[4]} of the table {family} nftlb" in drift
    await engine.mirror.rebuild()
    assert await engine.verifier.base() is None


async def test_an_address_moves_from_farm_to_farm(engine: Bench) -> None:
    await bring(engine, farm("old", backends=BACKENDS["ipv4"]), "old")
    new = translated(farm("new", backends=BACKENDS["ipv4"]))
    assert engine.mirror.sent.owners(list(listeners(new))) == {"old"}
    assert await engine.mirror.send_steps(plan_steps(engine.present, {"new": new, "old": None})) == {}
    assert await engine.verifier.farm("new") is None
    assert await engine.verifier.base() is None


async def test_four_thousand_and_ninety_four_backends_are_the_most(engine: Bench) -> None:
    many = [raw_backend(f"b{n}", f"10.{244 + n // 65536}.{n // 256 % 256}.{n % 256}") for n in range(1, 4095)]
    await bring(engine, farm(backends=many))
