"""Chains of another program, read from the kernel."""

import subprocess
from collections.abc import Iterator

import pytest

from kube_nftlb.netfilter.chains import ForeignChain, Jump, KernelChains

RULES = 5000
"""More than the kernel puts into the socket's buffer at once."""


def nft(ruleset: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=ruleset, text=True, check=True)


@pytest.fixture
def services(private_network: None) -> Iterator[str]:  # noqa: ARG001 - by name
    """The rules of a chain that jumps for each of many Services."""
    rules = "\n".join("add rule ip proxy services counter jump one" for _ in range(RULES))
    nft(f"add table ip proxy\nadd chain ip proxy services\nadd chain ip proxy one\n{rules}")
    yield rules
    nft("delete table ip proxy")


async def test_a_chain_is_known_by_its_first_rule_until_it_is_written_anew(services: str) -> None:
    reader = KernelChains.open()
    try:
        table, first = await reader.table_handle("ip", "proxy"), await reader.first_rule("ip", "proxy", "services")
        assert table
        assert first
        # A dump that is not read to its end does not keep others from theirs.
        assert await reader.first_rule("ip", "proxy", "services") == first
        jumps = await reader.jumps("ip", "proxy")
        assert len(jumps) == RULES
        assert jumps[0] == Jump("services", first, "one")
        assert await reader.chains("ip", "proxy") == [ForeignChain("services", False), ForeignChain("one", False)]
        assert await reader.first_rule("ip", "proxy", "one") is None
        assert await reader.first_rule("ip", "proxy", "none") is None
        assert await reader.table_handle("ip", "none") is None
        nft(f"flush chain ip proxy services\n{services}")
        assert await reader.first_rule("ip", "proxy", "services") not in (None, first)
        assert await reader.table_handle("ip", "proxy") == table
    finally:
        reader.close()
