"""Whom the kernel names when nftables is changed."""

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kube_nftlb import errors
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.nftables import messages, transaction
from kube_nftlb.netfilter.notifications import LOST, Notifications, own_name

SO_DETACH_FILTER = 27
ADD = "add table inet notified; add set inet notified s { type inet_service; elements = { 1 } }"


@pytest.fixture
def watch(private_network: None) -> Iterator[Notifications]:  # noqa: ARG001 - a fixture is asked for by name
    watch = Notifications.open("nftlb")
    yield watch
    watch.close()
    by_another_program("flush ruleset")


def by_another_program(command: str) -> None:
    subprocess.run(["nft", command], check=True)


async def test_programs_are_told_apart_by_name(watch: Notifications) -> None:
    await Nft.open().run(ADD)
    assert watch.others() == set(), f"{own_name()} is this program"
    by_another_program("add table inet foreign")
    assert watch.others() == {"nft"}
    assert watch.others() == set()


async def test_a_foreign_change_beside_our_own_is_noticed(watch: Notifications) -> None:
    nft = Nft.open()
    await nft.run(ADD)
    by_another_program("flush set inet notified s")
    await nft.run("add element inet notified s { 80 }")
    assert watch.others() == {"nft"}


async def test_a_transaction_of_many_elements_takes_no_room(watch: Notifications) -> None:
    nft = Nft.open()
    # For as many ports, a list that it walks for each, the kernel would take 30 s, and hold up a processor: what it
    # should run there, also of other networks, waits as long.
    await nft.run("add table inet notified; add set inet notified many { type mark; }")
    await nft.run(f"add element inet notified many {{ {', '.join(map(str, range(1, 60_000)))} }}")
    assert watch.others() == set()


@pytest.fixture
async def large(watch: Notifications) -> AsyncIterator[transaction.NftSocket]:
    """A socket that mutes the notifications for large transactions, and a set for these."""
    await Nft.open().run("add table inet notified; add set inet notified many { type mark; }")
    assert watch.others() == set()
    netfilter = transaction.NftSocket.open(watch.muted)
    yield netfilter
    netfilter.close()


def elements(of: str = "many", number: int = 40_000) -> list[messages.Message]:
    some = (messages.element(each.to_bytes(4, "little")) for each in range(number))
    return list(messages.new_parts("notified", of, some))


async def test_a_large_transaction_is_not_told_at_all(watch: Notifications, large: transaction.NftSocket) -> None:
    watch.socket.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    await large.commit(elements())
    assert list(watch.socket.waiting()) == []
    assert watch.others() == set()
    await large.commit(elements(number=40_002)[-1:])
    assert list(watch.socket.waiting()) != []
    by_another_program("add table inet foreign")
    assert watch.others() == {"nft"}


async def test_what_others_have_begun_before_is_told(
    watch: Notifications, large: transaction.NftSocket, tmp_path: Path
) -> None:
    ruleset = tmp_path / "foreign.nft"
    numbers = ", ".join(map(str, range(60_000)))
    ruleset.write_text(f"table inet foreign {{ set many {{ type mark; elements = {{ {numbers} }}; }}; }}\n")
    before = watch._generation()  # noqa: SLF001 - the kernel tells it before it has committed all
    foreign = subprocess.Popen(["nft", "-f", ruleset])  # noqa: ASYNC220 - nothing else runs
    while watch._generation() == before:  # noqa: SLF001
        assert foreign.poll() is None
    await large.commit(elements())
    assert foreign.wait() == 0
    assert watch.others() == {"nft"}


async def test_one_that_is_refused_leaves_no_doubt(watch: Notifications, large: transaction.NftSocket) -> None:
    with pytest.raises(errors.KernelError):
        await large.commit(elements("missing"))
    assert watch.others() == set()


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("committed", [True, False])
async def test_what_others_change_beside_a_large_transaction_is_doubtful(watch: Notifications, committed: bool) -> None:
    with contextlib.closing(transaction.NftSocket.open()) as inside, watch.muted() as own:
        if committed:
            await inside.commit(elements(number=2))
            own.number = 1
        by_another_program("add table inet foreign")
    assert watch.pending
    assert watch.others() == {LOST}
    assert watch.others() == set()


async def test_what_the_kernel_could_not_tell_is_doubtful(watch: Notifications) -> None:
    watch.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    nft = Nft.open()
    for _ in range(40):
        await nft.run("add table inet notified; delete table inet notified")
    assert watch.others() == {LOST}
    assert watch.others() == set()


def named_as_by_python_3_14() -> None:
    """Give this thread a name of its own, as ``Thread.start`` does from Python 3.14 on."""
    Path("/proc/thread-self/comm").write_text("asyncio_0")


@pytest.fixture
async def other_names() -> None:
    executor = ThreadPoolExecutor(1, initializer=named_as_by_python_3_14)
    asyncio.get_running_loop().set_default_executor(executor)


@pytest.mark.usefixtures("other_names")
async def test_threads_with_names_of_their_own_change_nftables_as_this_program(
    watch: Notifications,
) -> None:
    await Nft.open().run(ADD)
    with contextlib.closing(transaction.NftSocket.open()) as nftables:
        await nftables.commit([messages.delete_table("notified")])
    assert watch.others() == set()
