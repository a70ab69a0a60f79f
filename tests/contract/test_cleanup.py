"""Taking everything away from a node whose nftlb still runs."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube_nftlb.agent import cleanup
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.settings import NftlbSettings
from tests.contract.conftest import PORT
from tests.contract.test_nftlb_patches import Daemon, dsr, farm, nft

FOREIGN = "table inet somebody-elses"
POD_IP = "10.1.0.1"


@pytest.fixture
def settings(tmp_path: Path) -> NftlbSettings:
    (tmp_path / "nftlb.key").write_text("key")
    (tmp_path / "nftlb.json").write_text("{}")
    (tmp_path / "bfd.json").write_text("{}")
    return NftlbSettings(run_dir=tmp_path, port=PORT)


@pytest.fixture
def nftlb(private_network: None, patched_nftlb: Path, tmp_path: Path) -> Iterator[Daemon]:  # noqa: ARG001 - by name
    """An nftlb with farms in the kernel, one of which follows the MAC address of its backend."""
    subprocess.run(["ip", "link", "add", "in0", "type", "bridge"], check=True)
    subprocess.run(["ip", "link", "set", "in0", "up"], check=True)
    subprocess.run(["nft", "add", *FOREIGN.split()], check=True)
    daemon = Daemon(patched_nftlb, tmp_path)
    try:
        daemon.post(farm("one"), farm("two", "ipv6"), dsr("direct", number=2))
        assert "goto nat-one" in nft("list", "map", "ip", "nftlb", "nat-proto-services")
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.wait()
        subprocess.run(["nft", "flush", "ruleset"], check=True)
        subprocess.run(["ip", "link", "delete", "in0"], check=True)


def learn(ip: str) -> None:
    """Have the kernel learn a neighbour."""
    neighbour = [ip, "lladdr", "02:00:00:00:00:44", "dev", "in0", "nud", "permanent"]
    subprocess.run(["ip", "neigh", "replace", *neighbour], check=True)


def tables() -> list[str]:
    return nft("list", "tables").splitlines()


async def test_an_nftlb_that_lives_has_no_farms_that_it_could_write_again(
    nftlb: Daemon, settings: NftlbSettings
) -> None:
    await cleanup.clean(settings, Nft.open())
    assert tables() == [FOREIGN]
    assert not settings.startup_file.exists()
    assert not settings.intervals_file.exists()
    learn(POD_IP)
    await asyncio.sleep(0.5)
    assert nftlb.ask("GET", "/farms")[1] == {"farms": []}
    assert tables() == [FOREIGN]


async def test_nobody_waits_long_for_an_nftlb_that_hangs(nftlb: Daemon, settings: NftlbSettings) -> None:
    nftlb.process.send_signal(signal.SIGSTOP)
    try:
        await cleanup.clean(settings, Nft.open(), 0.3)
        assert tables() == [FOREIGN]
    finally:
        nftlb.process.send_signal(signal.SIGCONT)


async def test_without_nftlb_its_tables_go_all_the_same(nftlb: Daemon, settings: NftlbSettings) -> None:
    nftlb.process.kill()
    nftlb.process.wait()
    await cleanup.clean(settings, Nft.open())
    assert tables() == [FOREIGN]
