"""A node whose engines have no data plane."""

from collections.abc import AsyncIterator

import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.nft import FakeTableReader
from tests.fakes.node import FakeNode


class Node(FakeNode[FakeEngine]):
    def make_engine(self) -> FakeEngine:
        engine = FakeEngine(self.engine.farms if hasattr(self, "engine") else None)
        self.reader = FakeTableReader(self.nft, lambda: engine.writes)
        return engine


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node()
    node.start([])
    yield node
    await node.stop()
