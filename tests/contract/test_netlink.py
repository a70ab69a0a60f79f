"""The agent's netlink socket, and the kernel's replies."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest

from kube_nftlb import errors
from kube_nftlb.netfilter import netlink, readback
from kube_nftlb.netfilter.netlink import NetfilterSocket
from kube_nftlb.netfilter.nftables import contents

ELEMENTS = 20_000
"""More than the kernel puts into the socket's buffer at once."""


@pytest.fixture
def many(private_network: None) -> Iterator[None]:  # noqa: ARG001 - by name
    """The set ``many`` of the table ``inet test``."""
    addresses = ", ".join(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(ELEMENTS))
    ruleset = f"table inet test {{ set many {{ type ipv4_addr; elements = {{ {addresses} }}; }}; }}"
    subprocess.run(["nft", "-f", "-"], input=ruleset, text=True, check=True)
    yield
    subprocess.run(["nft", "delete", "table", "inet", "test"], check=True)


@pytest.fixture
async def netfilter(many: None) -> AsyncIterator[NetfilterSocket]:  # noqa: ARG001 - by name
    opened = NetfilterSocket.open()
    yield opened
    opened.close()


async def dumped(netfilter: NetfilterSocket) -> int:
    payload = readback.set_payload("test", "many")
    answers = await netfilter.ask("inet", netlink.GET_ELEMENTS, payload, dump=True)
    return sum(len(contents.elements_of(answer)) for answer in answers)


async def test_everything_is_dumped_after_a_dump_that_was_cancelled(netfilter: NetfilterSocket) -> None:
    dump = asyncio.create_task(dumped(netfilter))
    # It is sent, and its first answers are read.
    for _ in range(5):
        await asyncio.sleep(0)
    dump.cancel()
    await asyncio.wait([dump])
    assert dump.cancelled()
    assert await dumped(netfilter) == ELEMENTS


async def test_everything_is_dumped_after_a_question_without_an_answer(
    netfilter: NetfilterSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        """Lose what was to be sent."""

    monkeypatch.setattr(netlink, "_TIMEOUT_S", 0)
    monkeypatch.setattr(NetfilterSocket, "_send", lost)
    with pytest.raises(errors.KernelError, match="does not answer"):
        await dumped(netfilter)
    monkeypatch.undo()
    assert await dumped(netfilter) == ELEMENTS
