"""Measure how long new connections wait after ``flush ruleset``, with 2,000 farms of the engine nftables.

::

    unshare --net python -m tests.contract.flush_cost

prints a line for each crowd of farms: the longest time without a served connection, as a client saw it that connects
all the time, and how long the kernel took for the largest transaction. Times are those of a machine at its load of
then.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from kube_nftlb.agent import keep_nat
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from tests.contract import servers
from tests.contract.affinity_cost import Crowd, Stopwatch, apply, ordinary
from tests.contract.nftables_node import VIPS, Node, nft, spec
from tests.contract.servers import ENDPOINTS
from tests.contract.test_replacement import connecting

CROWDS = {
    "2,000 farms of two endpoints": Crowd(2000, lambda _: 2, lambda _: {}),
    "2,000 farms of 2 to 10 endpoints": Crowd(2000, ordinary, lambda _: {}),
}


async def gap_s(node: Node, watch: Stopwatch) -> tuple[float, float]:
    """Return the longest time without a served connection after a flush, and that of the kernel, in seconds."""
    watch.seconds.clear()
    with connecting(VIPS[0]) as outcomes:
        nft("flush ruleset")
        # As the loop does.
        node.table.lets_wait = await node.engine.is_missing()
        await node.table.create()
        await node.engine.repair()
        await node.table.refuse()
    assert outcomes.counts.keys() <= {"served", "waited"}, outcomes.counts
    return outcomes.longest_s, max(watch.seconds)


async def main(flushes: int) -> None:
    """Print the results."""
    watch = Stopwatch()
    NftSocket._send = watch.method()  # type: ignore[method-assign]  # noqa: SLF001 - to measure
    for name, crowd in CROWDS.items():
        with tempfile.TemporaryDirectory() as folder:
            keeping = NftSocket.open()
            await keep_nat.create(keeping)
            node = await Node.open(Path(folder))
            await node.engine.begin(dict)
            await apply(node, crowd.changes())
            await node.put("watched", spec(VIPS[0], *ENDPOINTS[:2]))
            for _ in range(crowd.farms // 64 + 2):
                await node.engine.maintain(busy=False)
            gaps = [await gap_s(node, watch) for _ in range(flushes)]
            node.close()
            keeping.close()
        waited, kernel = ([round(each * 1000) for each in times] for times in zip(*gaps, strict=True))
        print(f"{name}: new connections waited {sorted(waited)} ms, median {statistics.median(waited):g};")
        print(f"  of these the kernel took {sorted(kernel)} ms")
        subprocess.run(["nft", "flush", "ruleset"], check=True)  # noqa: ASYNC221 - nothing else runs


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with servers.start() as server:
        asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 20))
        assert server.stdin is not None
        server.stdin.close()
