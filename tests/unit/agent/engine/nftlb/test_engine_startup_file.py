"""nftlb's start-up file, as the loop has it written."""

import asyncio
import json
from typing import Any

from tests.builders import farm
from tests.fakes.node import until
from tests.unit.agent.engine.nftlb.conftest import Node


async def test_a_start_up_file_that_cannot_be_written_stops_nothing(node: Node) -> None:
    (node.folder / "nftlb.new").mkdir()
    node.list([farm()], 20)
    await node.settle(20)
    await until(lambda: "start-up file" in node.loop.progress.last_error)
    node.nft.damage()
    node.reader.foreign_changes += 1
    await until(lambda: node.loop.progress.drift_repaired > 0)


async def test_the_start_up_file_holds_what_is_in_the_kernel(node: Node) -> None:
    node.reader.refused.add("bad--http")
    bad = farm("bad--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}])
    node.list([farm(), bad], 20)
    await node.settle(20)

    def saved() -> list[dict[str, Any]]:
        path = node.folder / "nftlb.json"
        return json.loads(path.read_text())["farms"] if path.exists() else []

    await until(lambda: [entry["name"] for entry in saved()] == ["web--http"])


async def test_the_start_up_file_has_the_last_change_before_the_agent_ends(node: Node) -> None:
    node.list([farm("a", addresses=[{"ip": "10.96.0.1", "ports": "80"}])], 20)
    await until(lambda: bool(node.nftlb.farms))
    node.loop.stop()
    await asyncio.wait_for(node.task, 5)
    saved = json.loads((node.folder / "nftlb.json").read_text())["farms"]
    assert [entry["name"] for entry in saved] == ["a"]
