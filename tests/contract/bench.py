"""The parts of the nftlb engine over a real nftlb, and a look at the kernel."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from kube_nftlb.agent.clock import MonotonicClock
from kube_nftlb.agent.engine.nftlb.mirror import Mirror
from kube_nftlb.agent.engine.nftlb.stale_sessions import StaleSessions
from kube_nftlb.agent.engine.nftlb.suspects import Suspects
from kube_nftlb.agent.engine.nftlb.verify import Verifier
from kube_nftlb.netfilter.conntrack.table import Conntrack
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.readback import NftlbReader


class Bench(NamedTuple):
    """The objects that tests drive and look at."""

    mirror: Mirror
    verifier: Verifier
    stale: StaleSessions
    reader: NftlbReader
    nft: Nft
    log: Path

    @property
    def present(self) -> dict[str, objects.Farm]:
        """The farms of nftlb, as far as is known."""
        return self.mirror.present


@asynccontextmanager
async def bench(url: str, key_file: Path, run_dir: Path) -> AsyncIterator[Bench]:
    client, reader, nft = NftlbClient(url, key_file), NftlbReader.open(), Nft.open()
    conntrack = Conntrack.open()
    mirror = Mirror(client, reader, nft, Suspects(MonotonicClock()), lambda: None)
    try:
        yield Bench(
            mirror,
            Verifier(mirror.present, reader, mirror.sessions),
            StaleSessions(mirror.present, mirror.sessions, conntrack),
            reader,
            nft,
            run_dir / "nftlb.log",
        )
    finally:
        await client.close()
        reader.close()
        conntrack.close()
