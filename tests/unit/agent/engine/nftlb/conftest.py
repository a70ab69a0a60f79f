"""A node whose nftlb and kernel are not real."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube_nftlb.agent.engine.nftlb.engine import NftlbEngine
from kube_nftlb.nftlb.client import NftlbClient
from tests.fakes.nftlb import KEY, FakeKernel, FakeNftlb
from tests.fakes.node import FakeNode


class Node(FakeNode[NftlbEngine]):
    reader: FakeKernel

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        (folder / "key").write_text(KEY)
        self.nftlb = FakeNftlb()
        self.nftlb.key_file, self.nftlb.startup_file = folder / "key", folder / "nftlb.json"
        self.reader = FakeKernel(self.nftlb, self.nft)

    def make_engine(self) -> NftlbEngine:
        client = NftlbClient("http://nftlb", self.folder / "key", transport=self.nftlb.transport())
        file = self.folder / "nftlb.json"
        return NftlbEngine(client, self.reader, self.conntrack, self.connections, self.nft, file, self.clock)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    node.start([])
    yield node
    await node.stop()
