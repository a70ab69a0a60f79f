"""Figures of the engine nftables beside many farms, in a kernel that serves nothing else: docs/reliability.md has them.

They are those of a machine at its load of then. Bounds are asserted elsewhere, such as in test_affinity.py.
"""

import time
from pathlib import Path

import pytest

from kube_nftlb.agent import keep_nat
from kube_nftlb.agent.table.base import environment
from kube_nftlb.agent.table.layout import ENVIRONMENT
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from tests import engine
from tests.contract.affinity_cost import CROWDS, Crowd, Stopwatch, apply, ordinary
from tests.contract.nftables_node import VIPS, Node, nft, spec
from tests.contract.servers import ENDPOINTS
from tests.contract.test_replacement import SERVICES, connecting
from tests.functional.faults import suite

FLUSHED = {
    "2,000 farms of 2 endpoints": Crowd(2000, lambda _: 2, lambda _: {}),
    "2,000 farms of 2 to 10 endpoints": Crowd(2000, ordinary, lambda _: {}),
}
FLUSHES = 20

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not suite.LONG or engine.DEFAULT != "nftables", reason="figures are for the long form, and of this engine"
    ),
]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    watch = Stopwatch()
    monkeypatch.setattr(NftSocket, "_send", watch.method())
    return watch


@pytest.mark.parametrize("name", CROWDS)
async def test_others_and_an_agents_start_beside_farms_that_remember_clients(
    node: Node, watch: Stopwatch, tmp_path: Path, name: str
) -> None:
    await apply(node, CROWDS[name].changes())
    change_s = await watch.bystander_s(node)
    begun = time.perf_counter()
    again = await Node.open(tmp_path / "none")
    start_s = time.perf_counter() - begun
    again.close()
    assert len(again.engine.sent) == CROWDS[name].farms + 1
    suite.record_of("nftables", "affinity", "one endpoint more or less", "ms", change_s * 1000, beside=name)
    suite.record_of("nftables", "affinity", "start of an agent", "s", start_s, beside=name)


@pytest.mark.parametrize("name", FLUSHED)
async def test_new_connections_wait_after_a_flush(node: Node, watch: Stopwatch, name: str) -> None:
    # Else nobody would be refused.
    await node.table.update({ENVIRONMENT: environment({}, SERVICES)})
    keeping = NftSocket.open()
    await keep_nat.create(keeping)
    await node.engine.begin(dict)
    await apply(node, FLUSHED[name].changes())
    await node.put("watched", spec(VIPS[0], *ENDPOINTS[:2]))
    for _ in range(FLUSHED[name].farms // 64 + 2):
        await node.engine.maintain(busy=False)
    for _ in range(FLUSHES):
        watch.seconds.clear()
        with connecting(VIPS[0]) as outcomes:
            nft("flush ruleset")
            # As the loop does.
            node.table.lets_wait = await node.engine.is_missing()
            await node.table.create()
            await node.engine.repair()
            await node.table.refuse()
        assert outcomes.counts.keys() <= {"served", "waited"}, outcomes.counts
        for what, seconds in (("new connections waited", outcomes.longest_s), ("largest change", max(watch.seconds))):
            suite.record_of("nftables", "flushed", what, "ms", seconds * 1000, beside=name, times=FLUSHES)
    keeping.close()
