"""Farms that move between the two engines, over the real nftlb: what is verified on the way is there at once."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.engine.engines import Engines
from kube_nftlb.agent.engine.nftlb.engine import NftlbEngine
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.apply import Applier, Outcome
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.netfilter.conntrack.table import Conntrack
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.readback import NftlbReader
from tests.builders import raw_backend
from tests.contract.conftest import PORT
from tests.contract.nftables_node import HERE, Node, made_of

FARMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "persistent": {"persistence": "srcip"},
    "masqueraded": {"mode": "dnat", "masquerade": "AsNeeded"},
    "ports": {"addresses": [{"ip": "10.96.0.10", "ports": "80,8000-8020"}]},
    "empty": {"backends": []},
}


class Both:
    """A node with both engines."""

    def __init__(self, node: Node, nftlb: NftlbEngine) -> None:
        self.engines = Engines(node.engine, nftlb, MonotonicClock())
        self._applier = Applier(self.engines, node.table, node.connections)

    def serving(self) -> str:
        return self.engines.sent["web--http"].engine

    async def put(self, engine: str, changes: dict[str, Any]) -> Outcome:
        spec = {"backends": [raw_backend("a", "10.244.0.2"), raw_backend("b", "10.244.0.3")], **changes}
        wanted = node_farm(made_of("web--http", {**spec, "engine": engine}), HERE, None)
        return await self._applier.apply([FarmChange(wanted.name, wanted)])


@pytest.fixture
async def both(real_nftlb: Path, tmp_path: Path) -> AsyncIterator[Both]:
    node, reader, conntrack = await Node.open(tmp_path), NftlbReader.open(), Conntrack.open()
    client = NftlbClient(f"http://127.0.0.1:{PORT}", real_nftlb)
    file = tmp_path / "nftlb.json"
    nftlb = NftlbEngine(client, reader, conntrack, node.connections, Nft.open(), file, MonotonicClock())
    await nftlb.load()
    yield Both(node, nftlb)
    await client.close()
    for each in (reader, conntrack, node):
        each.close()


@pytest.mark.parametrize("changes", FARMS.values(), ids=FARMS)
async def test_a_farm_moves_to_nftlb_and_back(both: Both, changes: dict[str, Any]) -> None:
    for engine in ("nftables", "nftlb", "nftables", "nftlb"):
        assert not (await both.put(engine, changes)).refused
        assert both.serving() == engine
        assert await both.engines.drift("web--http") is None


async def test_a_farm_that_nft_refuses_of_nftlb_stays_in_nftables(both: Both) -> None:
    assert not (await both.put("nftables", {})).refused
    # nftlb, which says "success" all the same, may not write a table that another program owns.
    owner = Nft.open()
    await owner.run("table ip nftlb { flags owner; }")
    try:
        assert (await both.put("nftlb", {})).refused.keys() == {"web--http"}
        assert both.serving() == "nftables"
        assert await both.engines.drift("web--http") is None
    finally:
        await owner.run("delete table ip nftlb")
    assert not (await both.put("nftlb", {})).refused
    assert both.serving() == "nftlb"
