import asyncio
from pathlib import Path

import pytest

from kube_nftlb.agent.node import connection_tracking
from kube_nftlb.agent.node.connection_tracking import TableSize
from kube_nftlb.settings import ConntrackSettings
from tests.fakes.clock import FakeClock

DEFAULTS = ConntrackSettings.from_environment({})
NONE = ConntrackSettings(max_per_core=0, tcp_established_s=0, tcp_close_wait_s=0)


@pytest.mark.parametrize(
    ("cpus", "limit", "most"),
    [(2, 65536, "131072"), (8, 65536, "262144"), (8, 262144, None), (8, 1 << 20, None), (2, 0, "131072")],
)
def test_the_limit_is_raised_as_kube_proxy_does_and_never_lowered(cpus: int, limit: int, most: str | None) -> None:
    assert connection_tracking.wanted(DEFAULTS, cpus, limit).get("nf_conntrack_max") == most


def test_without_settings_nothing_is_changed() -> None:
    assert connection_tracking.wanted(NONE, 8, 1000) == {}


def test_what_can_be_written_is_whatever_cannot(tmp_path: Path) -> None:
    folder = tmp_path / "net/netfilter"
    folder.mkdir(parents=True)
    (folder / "nf_conntrack_max").write_text("65536\n")
    (folder / "nf_conntrack_count").write_text("17\n")
    (folder / "nf_conntrack_tcp_timeout_close_wait").mkdir()
    connection_tracking.apply(DEFAULTS, tmp_path, 2)
    assert connection_tracking.size(tmp_path) == TableSize(17, 131072)
    assert (folder / "nf_conntrack_buckets").read_text() == "32768"
    assert (folder / "nf_conntrack_tcp_timeout_established").read_text() == "86400"


async def test_at_boot_the_settings_wait_for_the_kernel_to_have_them(tmp_path: Path) -> None:

    async def passes(rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0)

    keeping = asyncio.create_task(connection_tracking.apply_once_loaded(DEFAULTS, tmp_path, 2, FakeClock()))
    await passes(60)
    folder = tmp_path / "net/netfilter"
    assert not folder.exists()
    folder.mkdir(parents=True)
    (folder / "nf_conntrack_max").write_text("65536\n")
    await passes(60)
    assert (folder / "nf_conntrack_tcp_timeout_established").read_text() == "86400"
    assert not keeping.done(), "a duty that ends ends the agent"
    keeping.cancel()


def test_a_table_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert connection_tracking.size(tmp_path) == TableSize(0, 0)
