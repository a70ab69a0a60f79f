"""The kernel's events about a traced flow, and the remains of a trace."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.notifications import Notifications
from kube_nftlb.netfilter.tracing import replies, rules, table
from kube_nftlb.netfilter.tracing.packets import Packets
from kube_nftlb.netfilter.tracing.table import Flow
from kube_nftlb.netfilter.tracing.tracer import PROGRAM, tracing
from kube_nftlb.nftlb import daemon

LOOPBACK = {"ip": "127.0.0.1", "ip6": "::1"}

WAITING = f"""
import asyncio
from kube_nftlb.netfilter.notifications import set_own_name
from kube_nftlb.netfilter.tracing.table import Flow
from kube_nftlb.netfilter.tracing.tracer import tracing

async def main():
    async with tracing(Flow("192.0.2.1", "192.0.2.2", "TCP", 80)):
        print("traced", flush=True)
        await asyncio.sleep(60)

set_own_name("{PROGRAM}")
asyncio.run(main())
"""


@pytest.fixture
def watch(private_network: None) -> Iterator[Notifications]:  # noqa: ARG001 - a fixture is asked for by name
    """The changes by others that the agent sees."""
    watch = Notifications.open(daemon.PROGRAM, PROGRAM)
    yield watch
    watch.close()


def tables() -> str:
    return subprocess.run(["nft", "list", "tables"], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("family", ["ip", "ip6"])
@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
async def test_the_way_of_a_packet(private_network: None, family: str, protocol: str) -> None:  # noqa: ARG001 - by name
    kind = socket.SOCK_STREAM if protocol == "TCP" else socket.SOCK_DGRAM
    version, ip = (socket.AF_INET6 if family == "ip6" else socket.AF_INET), LOOPBACK[family]
    with socket.socket(version, kind) as server, socket.socket(version, kind) as client:
        server.bind((ip, 0))
        if protocol == "TCP":
            server.listen()
        flow = Flow(ip, ip, protocol, server.getsockname()[1])
        async with tracing(flow) as tracer:
            packets = Packets(tracer.table)
            client.connect((ip, flow.port))
            if protocol == "UDP":
                client.send(b"hello")
            async with asyncio.timeout(10):
                while not any(each.ended for each in packets.all):
                    for event in await tracer.read():
                        packets.add(event)
        first = packets.all[0]
        assert first.opens
        assert first.addresses == (ip, client.getsockname()[1], ip, flow.port)
        assert {event.chain for event in first.events} >= {"first-output", "state-output", "translated-output"}
        assert tables() == ""
        netfilter = NetfilterSocket.open()
        told = await replies.wait_for_reply(netfilter, flow, client.getsockname()[1], 0)
        netfilter.close()
        assert told == {"TCP": "replied", "UDP": "silent"}[protocol]


async def test_only_its_flow_is_traced(private_network: None) -> None:  # noqa: ARG001 - by name
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        async with tracing(Flow("127.0.0.9", "127.0.0.1", "TCP", server.getsockname()[1])) as tracer:
            socket.create_connection(server.getsockname()).close()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await tracer.read()


def test_nothing_stays_of_a_trace_that_is_killed_and_the_agent_takes_no_notice(watch: Notifications) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "traced\n"
    assert tables() == f"table inet {table.name(process.pid)}\n"
    # Nobody else can change it, and a flush of all passes it over.
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    assert tables() == f"table inet {table.name(process.pid)}\n"
    watch.others()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert tables() == ""
    assert watch.others() == set()


async def test_the_table_of_a_trace_is_no_change_by_others(watch: Notifications) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WAITING, stdout=subprocess.PIPE)
    assert process.stdout
    assert await process.stdout.readline() == b"traced\n"
    process.kill()
    await process.wait()
    assert watch.others() == set()


@pytest.fixture
def scheduling(private_network: None) -> Iterator[None]:  # noqa: ARG001 - by name
    """A table with a rule of each kind that chooses."""
    lines = ["add table ip read", "add map ip read known { type ipv4_addr : mark; }", "add chain ip read one"]
    lines += ["add chain ip read other", "add rule ip read other drop"]
    for each in (
        "ip saddr map @known",
        "numgen random mod 2",
        "numgen inc mod 2",
        "jhash ip saddr mod 2",
        "symhash mod 2",
    ):
        lines.append(f"add rule ip read one ct mark set {each}")
    subprocess.run(["nft", "; ".join(lines)], check=True)
    yield
    subprocess.run(["nft", "delete table ip read"], check=True)


async def test_rules_are_read_with_what_they_look_up(scheduling: None) -> None:  # noqa: ARG001 - by name
    netfilter = NetfilterSocket.open()
    chain = rules.Chain("ip", "read", "one")
    found = await rules.read(netfilter, [chain, rules.Chain("ip", "read", "absent")])
    netfilter.close()
    assert {of for of, _ in found} == {chain}
    known, *choices = found.values()
    assert known.looks_up("known")
    told = [each for rule in choices for each in rule.expressions if each.startswith(("numgen", "hash"))]
    assert told == ["numgen 1", "numgen 0", "hash 0", "hash 1"]


async def test_rules_that_were_removed_are_known_too(scheduling: None) -> None:  # noqa: ARG001 - by name
    netfilter = NetfilterSocket.open()
    chain = rules.Chain("ip", "read", "one")
    removed = rules.RemovedRules.open()
    present = await rules.read(netfilter, [chain])
    netfilter.close()
    assert len(present) == 5
    assert removed.read() == {}
    change = ["nft", "flush chain ip read one; add rule ip read one drop"]
    await asyncio.to_thread(subprocess.run, change, check=True)
    told = removed.read()
    removed.close()
    assert told == present
