"""Farms in the modes dsr and local in a real nftlb: what it makes of them, and what it does to others."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kube_nftlb.agent.dsr.modes import Links, PodLink
from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.agent.engine.nftlb.translate import KEEPER, keeper
from kube_nftlb.netfilter.libnftables import Nft
from tests.builders import farm, raw_backend
from tests.contract.bench import Bench
from tests.contract.test_layout import engine  # noqa: F401 - a fixture
from tests.views import view

BASE: dict[str, Any] = {"addresses": [{"ip": "10.96.0.10", "ports": "80"}]}
IPS = ["10.244.1.2", "10.244.1.3", "10.244.1.4"]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def links() -> Iterator[Links]:
    """A node with a bridge, and an interface to the outside that a bridge stands for, too."""
    inlets = {}
    for number, name in enumerate(("cni0", "br-out.7")):
        mac = f"02:00:00:00:01:0{number}"
        _ip("link", "add", name, "address", mac, "type", "bridge")
        _ip("link", "set", name, "up")
        inlets[name] = mac
    _ip("address", "add", "10.244.1.1/24", "dev", "cni0")
    pods = {ip: PodLink(number, "eth0", f"02:00:00:00:02:0{number}", "cni0") for number, ip in enumerate(IPS)}
    yield Links(pods, inlets, frozenset())
    for name in inlets:
        _ip("link", "delete", name)


async def bring(engine: Bench, links: Links, name: str, **changes: Any) -> None:  # noqa: F811 - the fixture's value
    wanted = farm(name, **changes)
    seen, _, _, problem = view(wanted, engine.present.get(name), links=links)
    assert problem == ""
    assert await engine.mirror.send_steps(plan_steps(engine.present, {KEEPER: keeper(links.inlets), name: seen})) == {}
    assert await engine.verifier.farm(KEEPER) is None
    assert await engine.verifier.farm(name) is None
    assert await engine.verifier.base() is None
    await engine.mirror.sync()
    assert plan_steps(engine.present, {name: seen}) == [], "what nftlb shows is what it was sent"


def backends(count: int) -> list[dict[str, Any]]:
    return [raw_backend(f"pod-{number}", ip, 80) for number, ip in enumerate(IPS[:count])]


@pytest.mark.parametrize("mode", ["snat", "dsr"])
async def test_a_dsr_farm_lives_through_all_changes_beside_another_farm(
    engine: Bench,  # noqa: F811 - the fixture's value
    links: Links,
    mode: str,
) -> None:
    addresses = [{"ip": "10.96.0.11", "ports": "80"}]
    await bring(engine, links, "other", mode=mode, addresses=addresses, backends=backends(2))
    steps: list[dict[str, Any]] = [
        {"backends": backends(1)},
        {"backends": backends(3)},
        {"backends": backends(2), "persistence": "srcip"},
        {"backends": backends(2), "scheduler": "symhash"},
        {"backends": backends(2), "protocol": "UDP"},
        {"backends": backends(3), "mode": "snat"},
        {"backends": backends(3)},
        {"backends": backends(3), "mode": "local"},
        {"backends": backends(3)},
    ]
    for changes in steps:
        await bring(engine, links, "web", **{"mode": "dsr", **BASE, **changes})
        assert await engine.verifier.farm("other") is None, changes
    assert await engine.mirror.send_steps(plan_steps(engine.present, {"web": None})) == {}
    assert (await engine.verifier.farm("other"), await engine.verifier.base()) == (None, None)
    assert set(engine.present) == {KEEPER, "other"}


async def test_a_lost_rule_of_a_dsr_farm_is_found_and_written_anew(
    engine: Bench,  # noqa: F811 - the fixture's value
    links: Links,
) -> None:
    await bring(engine, links, "web", mode="dsr", **BASE, backends=backends(3))
    await Nft.open().run("flush chain netdev nftlb web")
    assert "packets go to" in (await engine.verifier.farm("web") or "")
    await engine.mirror.reload("web")
    assert await engine.verifier.farm("web") is None


async def test_a_restarted_agent_leaves_the_rules_of_a_dsr_farm_as_they_are(
    engine: Bench,  # noqa: F811 - the fixture's value
    links: Links,
) -> None:
    changes = {"mode": "dsr", **BASE, "backends": backends(3)}
    await bring(engine, links, "web", **changes)
    before = await engine.reader.generation()
    engine.present.clear()
    await engine.mirror.sync()
    await bring(engine, links, "web", **changes)
    assert await engine.reader.generation() == before


async def test_a_restarted_agent_misses_the_listeners_of_a_dsr_farm_that_nftlb_started_without_its_interfaces(
    engine: Bench,  # noqa: F811 - the fixture's value
    links: Links,
) -> None:
    wanted = view(farm("web", mode="dsr", **BASE, backends=backends(3)), links=links).farm
    # As it is in the start-up file of an agent that did not know them.
    lost = replace(
        wanted, addresses={name: replace(each, interface="", mac="") for name, each in wanted.addresses.items()}
    )
    steps = plan_steps(engine.present, {KEEPER: keeper(links.inlets), "web": lost})
    assert await engine.mirror.send_steps(steps) == {}
    engine.mirror.locate({"web": wanted})
    assert "is missing in the kernel" in (await engine.verifier.farm("web") or "")
    await engine.mirror.reload("web")
    assert await engine.verifier.farm("web") is None


async def test_a_dsr_farm_may_have_a_name_that_nft_cannot_parse(
    engine: Bench,  # noqa: F811 - the fixture's value
    links: Links,
) -> None:
    for number, name in enumerate(("2048--http", "ip", "drop"), 20):
        addresses = [{"ip": f"10.96.0.{number}", "ports": "80"}]
        await bring(engine, links, name, mode="dsr", addresses=addresses, backends=backends(2))
