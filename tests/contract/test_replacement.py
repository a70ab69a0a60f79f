"""A table that is made anew is never half there: clients are served by the old one or the new one, or wait."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.agent import keep_nat
from kube_nftlb.agent.engine.base import FarmChanges
from kube_nftlb.agent.engine.nftables import skeleton
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.table.base import environment
from kube_nftlb.agent.table.layout import ENVIRONMENT
from kube_nftlb.api.base import Family
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from kube_nftlb.netfilter.readback import RulesetReader
from tests.builders import farm
from tests.contract import connecting as connecting_program
from tests.contract.nftables_node import HERE, VIPS, Node, ask, listed, nft, spec
from tests.contract.servers import ENDPOINTS

MANY = 2_000
SERVICES: Mapping[Family, list[str]] = {"ipv4": ["10.96.0.0/12"], "ipv6": ["fd00::/108"]}


def many(number: int = MANY) -> dict[str, dict[str, Any]]:
    farms = {
        f"web-{each}": spec(f"10.97.{each // 250}.{each % 250}", *ENDPOINTS[: 1 + each % 3]) for each in range(number)
    }
    return farms | {"watched": spec(VIPS[0], *ENDPOINTS[:2])}


def changes(specs: dict[str, dict[str, Any]]) -> FarmChanges:
    return {name: node_farm(farm(name=name, **each), HERE, None) for name, each in specs.items()}


class Outcomes:
    """What a client notices that connects all the time (``connecting``), once it has ended."""

    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {}
        self.longest_s = 0.0
        """The longest time without a connection that was served."""


@contextmanager
def connecting(vip: str, patience_s: float = 0.02) -> Iterator[Outcomes]:
    """Connect to an address all the time, for so long at most each time."""
    program = [sys.executable, connecting_program.__file__, vip, "80", str(patience_s)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        client.stdout.readline()
        outcomes = Outcomes()
        yield outcomes
        time.sleep(0.1)
        told = json.loads(client.communicate("stop")[0])
        outcomes.counts, outcomes.longest_s = told["counts"], told["longest_s"]


@pytest.fixture
async def node(node: Node) -> Node:
    await node.table.update({ENVIRONMENT: environment({}, SERVICES)})
    assert not (await node.engine.apply(changes(many()))).refused
    return node


@pytest.fixture
async def upgraded(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:  # noqa: ARG001 - first
    """An agent whose table has another layout than the one that serves."""
    monkeypatch.setattr(skeleton, "seal", lambda: "layout-of-another-version")
    upgraded = await Node.open(tmp_path)
    yield upgraded
    upgraded.close()


async def test_a_table_of_another_layout_serves_until_this_one_is_whole(upgraded: Node) -> None:
    with socket.create_connection((VIPS[0], 80), timeout=10) as open_before:
        assert open_before.recv(100)
        # A busy machine takes tens of milliseconds for a packet now and then; what was dropped comes after a second.
        with connecting(VIPS[0], patience_s=0.7) as outcomes:
            assert ask(VIPS[0]) in ENDPOINTS
            await upgraded.engine.begin(lambda: changes(many()))
        # The server ends what its client has ended.
        open_before.shutdown(socket.SHUT_WR)
        assert open_before.recv(100) == b"", "both directions are still translated"
    assert outcomes.counts.keys() == {"served"}, (outcomes.counts, outcomes.longest_s)
    assert "layout-of-another-version" in listed()
    assert upgraded.engine.sent.keys() == many().keys()
    assert await upgraded.engine.drift() is None


async def test_a_change_while_the_other_layout_serves_is_in_the_table_that_takes_its_place(upgraded: Node) -> None:
    await upgraded.put("watched", spec(VIPS[0], ENDPOINTS[4]))
    assert ask(VIPS[0]) in ENDPOINTS[:2], "the old table has not changed"
    specs = {**many(5), "watched": spec(VIPS[0], ENDPOINTS[4])}
    await upgraded.engine.begin(lambda: changes(specs))
    assert ask(VIPS[0]) == ENDPOINTS[4]
    assert await upgraded.engine.drift() is None


def another_table() -> None:
    """Add a table that the kernel needs some milliseconds to remove."""
    chains = "".join(f"chain c{number} {{ accept; }}\n" for number in range(5_000))
    subprocess.run(["nft", "-f", "-"], input=f"table inet another {{\n{chains}}}\n", text=True, check=True)


@pytest.mark.parametrize("tables", [("kube-nftlb", "another", TABLE), (TABLE, "another", "kube-nftlb")])
async def test_clients_wait_while_a_table_that_was_flushed_is_written_anew(node: Node, tables: tuple[str, ...]) -> None:
    another_table()
    keeping = NftSocket.open()
    await keep_nat.create(keeping)
    # As the loop does: the agent table first, with clients waiting, then the engine's, then nobody waits any more.
    with connecting(VIPS[0]) as outcomes:
        # As flush ruleset does; the kernel unhooks the chains of one table after the other.
        nft("; ".join(f"delete table inet {table}" for table in tables))
        assert await node.engine.is_missing()
        node.table.lets_wait = True
        await node.table.create()
        await node.engine.repair()
        await node.table.refuse()
    assert outcomes.counts.keys() <= {"served", "waited"}, outcomes.counts
    assert outcomes.counts["served"] > 0
    assert await node.engine.drift() is None
    assert ask("10.96.0.200") == "refused"
    keeping.close()


@pytest.mark.usefixtures("node")
async def test_established_connections_outlive_flush_ruleset_while_the_agent_runs() -> None:
    keeping = asyncio.create_task(keep_nat.run())
    with socket.create_server((ENDPOINTS[0], 9090)) as server:
        async with asyncio.timeout(20):
            while keep_nat.TABLE not in listed("tables"):
                await asyncio.sleep(0.01)
        nft("add table inet before; add chain inet before to { type nat hook output priority -110; }")
        nft(f"add rule inet before to ip daddr 10.96.0.99 tcp dport 80 dnat ip to {ENDPOINTS[0]}:9090")
        with socket.create_connection(("10.96.0.99", 80), timeout=5) as client, server.accept()[0] as accepted:
            nft("flush ruleset")
            accepted.settimeout(5)
            client.sendall(b"asked")
            assert accepted.recv(100) == b"asked"
            accepted.sendall(b"answered")
            assert client.recv(100) == b"answered"
    assert keep_nat.TABLE in listed("tables")
    keeping.cancel()
    await asyncio.wait([keeping])
    assert keep_nat.TABLE not in listed("tables")


async def test_a_table_is_written_in_one_transaction(node: Node) -> None:
    nft(f"delete table inet {TABLE}")
    before = await generation()
    await node.engine.repair()
    assert await generation() == before + 1
    assert await node.engine.drift() is None


async def generation() -> int:
    reader = RulesetReader.open()
    number = await reader.generation()
    reader.close()
    return number


async def test_what_the_kernel_refuses_of_a_new_table_stops_nobody_else(
    upgraded: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    netfilter = upgraded.engine._netfilter  # noqa: SLF001 - the kernel refuses
    commit = netfilter.commit

    async def refusing(messages: Any, family: str = "inet") -> None:
        if any(b"web-7\0" in each.attributes for each in messages):
            raise errors.KernelError("nftables refused: Cannot allocate memory")
        await commit(messages, family)

    monkeypatch.setattr(netfilter, "commit", refusing)
    await upgraded.engine.begin(lambda: changes(many(20)))
    assert ask(VIPS[0]) in ENDPOINTS
    assert upgraded.engine.sent.keys() == many(20).keys() - {"web-7"}
    assert await upgraded.engine.drift("web-7") is not None
