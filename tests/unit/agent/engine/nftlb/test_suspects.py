"""A farm over which nftlb ends: it is found, left out and named, and all others are served."""

import json
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftlb import mirror, suspects
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from tests.builders import farm
from tests.fakes.node import until
from tests.unit.agent.engine.nftlb.conftest import Node


def numbered(number: int, generation: int = 1, version: int = 10, **more: Any) -> Farm:
    name = "bad--http" if number == 5 else f"web-{number}--http"
    addresses = [{"ip": f"10.96.1.{number + 1}", "ports": "80"}]
    return farm(name, addresses=addresses, generation=generation, version=version, **more)


BAD = '"bad--http"'
ALL = [numbered(number) for number in range(12)]
OTHERS = {each.metadata.name for each in ALL} - {"bad--http"}


async def test_a_farm_over_which_nftlb_ends_is_left_out_and_named(node: Node) -> None:
    node.nftlb.deadly.add(BAD)
    began = node.clock.now()
    await node.program(ALL, 20)
    assert node.nftlb.ends == 2
    assert node.nftlb.farms.keys() == OTHERS
    assert node.reason("bad--http") == "NftlbDefect"
    assert [node.reason(name) for name in OTHERS] == [None] * len(OTHERS)
    assert node.clock.now() - began < 5, "the others did not wait"
    await node.passes(60)
    assert node.nftlb.ends == 2, "it is not sent again"


async def test_farms_that_come_meanwhile_are_served_before_a_suspect(node: Node) -> None:
    served: list[int] = []
    end = node.nftlb.end

    def counted() -> None:
        served.append(len(node.nftlb.farms))
        end()

    node.nftlb.end = counted  # type: ignore[method-assign] # a fake that tells more
    node.nftlb.deadly.add(BAD)
    node.list(ALL, 20)
    await until(lambda: node.nftlb.ends == 1)
    node.put(*(numbered(number, version=21 + number) for number in range(20, 60)))
    await node.settle(80)
    assert len(node.nftlb.farms) == len(OTHERS) + 40
    # The other suspects may come after it.
    assert served[1] >= 40


async def test_it_is_tried_again_after_a_while_or_when_its_spec_changes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspects, "LEFT_OUT_S", 120)
    node.nftlb.deadly.add(BAD)
    await node.program(ALL, 20)
    await node.passes(125)
    assert node.nftlb.ends == 3, "tried once, alone"
    assert node.reason("bad--http") == "NftlbDefect"
    node.put(numbered(5, generation=2, version=30))
    await until(lambda: node.nftlb.ends == 5)
    await node.settle(30)
    node.nftlb.deadly.clear()
    await node.change(numbered(5, generation=3, version=31))
    assert node.nftlb.farms.keys() == OTHERS | {"bad--http"}
    assert node.reason("bad--http") is None


async def test_a_farm_that_was_only_beside_it_is_cleared(node: Node) -> None:
    node.nftlb.deadly.add(BAD)
    await node.program(ALL, 20)
    assert set(node.engine.suspects) == {"bad--http"}


async def test_a_farm_made_anew_under_its_name_is_sent(node: Node) -> None:
    node.nftlb.deadly.add(BAD)
    await node.program(ALL, 20)
    await node.program([each for each in ALL if each.metadata.name != "bad--http"], 30)
    node.nftlb.deadly.clear()
    await node.change(numbered(5, version=31, uid="another"))
    assert "bad--http" in node.nftlb.farms


async def test_a_farm_stays_as_it_was_before_the_change_over_which_nftlb_ends(node: Node) -> None:
    def saved() -> set[str]:
        path = node.folder / "nftlb.json"
        return {each["name"] for each in json.loads(path.read_text())["farms"]} if path.exists() else set()

    await node.program(ALL, 20)
    await until(lambda: saved() == OTHERS | {"bad--http"})
    node.nftlb.deadly.add('"dnat"')
    await node.change(numbered(5, generation=2, version=30, mode="dnat"))
    assert node.reason("bad--http") == "NftlbDefect"
    assert node.nftlb.ends == 2
    await node.passes(10)
    assert node.nftlb.farms["bad--http"]["mode"] == "snat"
    assert saved() == OTHERS | {"bad--http"}


@pytest.mark.parametrize("hang_s", [0, 0.5])
async def test_a_farm_over_whose_removal_nftlb_ends_is_no_longer_in_its_start_up_file(
    node: Node, hang_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "SILENT_AFTER_S", 0.1)
    node.nftlb.hang_s = hang_s
    await node.program(ALL, 20)
    await until((node.folder / "nftlb.json").exists)
    node.nftlb.deadly.add("DELETE /farms/bad--http")
    node.remove(FarmKey("default", "bad--http"), 30)
    await node.settle(30)
    await until(lambda: node.nftlb.farms.keys() == OTHERS)


async def test_a_suspect_does_not_wait_for_others_for_ever(node: Node) -> None:
    await node.program(ALL, 20)
    node.engine._suspects.sending({"bad--http"})  # noqa: SLF001 - as if nftlb had ended over it
    node.engine._suspects.ended()  # noqa: SLF001
    assert node.engine.suspects == {"bad--http"}
    await node.passes(31)
    assert not node.engine.suspects
    assert "bad--http" in node.engine._suspects, "it still goes alone"  # noqa: SLF001
