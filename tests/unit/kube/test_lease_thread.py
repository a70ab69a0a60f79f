"""A Lease that is held in a thread of its own."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from kube_nftlb import errors
from kube_nftlb.kube.lease_thread import LeaseThread

PATIENCE_S = 10


class FakeLease:
    """Leads at once, counts renewals without pause, and is lost if told so."""

    def __init__(self) -> None:
        self.leading = asyncio.Event()
        self.renewed = threading.Event()
        self.is_lost = threading.Event()
        self.released = False
        self.is_certain = True

    async def run(self) -> None:
        self.leading.set()
        while not self.is_lost.is_set():
            self.renewed.set()
            await asyncio.sleep(0.001)
        raise errors.LeaseLostError("taken")

    async def release(self) -> None:
        self.released = True


class Election:
    """A thread with a fake Lease, and the exit statuses with which it would have ended the program."""

    def __init__(self, grace_s: float = 60) -> None:
        self.leases: list[FakeLease] = []
        self.exits: list[int] = []
        self.exited = threading.Event()
        self.thread = LeaseThread(self._connect, self._make, self._exit, grace_s)

    async def _connect(self) -> AbstractAsyncContextManager[None]:
        @asynccontextmanager
        async def connection() -> AsyncIterator[None]:
            yield

        return connection()

    def _make(self, _: None) -> FakeLease:
        self.leases.append(FakeLease())
        return self.leases[-1]

    def _exit(self, status: int) -> None:
        self.exits.append(status)
        self.exited.set()


@pytest.fixture
async def election() -> AsyncIterator[Election]:
    election = Election()
    yield election
    await election.thread.release()


async def test_it_leads_and_renews_while_the_programs_loop_is_busy(election: Election) -> None:
    running = asyncio.create_task(election.thread.run())
    await asyncio.wait_for(election.thread.leading.wait(), PATIENCE_S)
    (lease,) = election.leases
    lease.renewed.clear()
    # This blocks the loop of the program, not that of the Lease.
    assert lease.renewed.wait(PATIENCE_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not lease.released
    await election.thread.release()
    assert lease.released


async def test_a_loss_ends_it_with_the_reason(election: Election) -> None:
    running = asyncio.create_task(election.thread.run())
    await asyncio.wait_for(election.thread.leading.wait(), PATIENCE_S)
    election.leases[0].is_lost.set()
    with pytest.raises(errors.LeaseLostError, match="taken"):
        await asyncio.wait_for(running, PATIENCE_S)
    assert not election.thread.leading.is_set()
    assert not election.leases[0].released


async def test_a_program_too_busy_to_notice_a_loss_is_ended() -> None:
    election = Election(grace_s=0.01)
    running = asyncio.create_task(election.thread.run())
    await asyncio.wait_for(election.thread.leading.wait(), PATIENCE_S)
    election.leases[0].is_lost.set()
    assert election.exited.wait(PATIENCE_S)
    assert election.exits == [1]
    with pytest.raises(errors.LeaseLostError):
        await running
    await election.thread.release()


async def test_it_leads_for_certain_as_long_as_the_lease_says_so(election: Election) -> None:
    assert not election.thread.is_certain
    running = asyncio.create_task(election.thread.run())
    await asyncio.wait_for(election.thread.leading.wait(), PATIENCE_S)
    assert election.thread.is_certain
    election.leases[0].is_certain = False
    assert not election.thread.is_certain
    await election.thread.release()
    await asyncio.gather(running, return_exceptions=True)


async def test_one_that_was_never_begun_is_released(election: Election) -> None:
    await election.thread.release()
    assert election.leases == []


async def test_it_ends_though_it_is_told_so_before_it_has_begun(election: Election) -> None:
    running = asyncio.create_task(election.thread.run())
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_S):
        await election.thread.release()
        await running
    assert all(lease.released for lease in election.leases)
