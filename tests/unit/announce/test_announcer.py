"""What a node does while the API server is away, and once it answers again."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kube_nftlb import errors
from kube_nftlb.announce import announcer
from kube_nftlb.announce.announcer import Announcer
from kube_nftlb.announce.leases import Leases
from kube_nftlb.announce.ownership import node
from kube_nftlb.announce.ownership.node import Address
from kube_nftlb.announce.ownership.records import NOBODY, Record
from kube_nftlb.announce.wire.messages import Probed, Ready, State
from kube_nftlb.metrics.registry import REGISTRIES

VIP = "192.0.2.10"
FREE = Address("eth0", "02:00:00:00:00:01", ("me",))


class FailingLeases:
    """Is away for the first requests, then refuses some, then answers."""

    def __init__(self) -> None:
        self.answers: list[Exception | None] = [errors.KubeUnreachableError("it is away")] * 2
        self.written = asyncio.Event()

    async def watch(self, _: Callable[[str, Record], None], listed: Callable[[], None]) -> None:
        listed()
        await asyncio.Event().wait()

    async def read(self, _: str) -> Record:
        self._fail()
        return NOBODY

    async def write(self, _: Any) -> Record:
        self._fail()
        self.written.set()
        return Record("1", "me", FREE.mac)

    def _fail(self) -> None:
        if self.answers and (error := self.answers.pop(0)) is not None:
            raise error


def taken() -> float | None:
    """How often this process has taken an address that nobody held, as it exports it."""
    return REGISTRIES["agent"].get_sample_value("kube_nftlb_addresses_taken_total", {"before": "nobody"})


@pytest.mark.parametrize("refusals", [0, 1, 3])
async def test_an_api_server_that_refuses_requests_at_first_is_back_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    monkeypatch.setattr(announcer, "_PATIENCE_S", 0.05)
    leases = FailingLeases()
    before = taken()
    leases.answers += [errors.KubeError(403, "Forbidden", "its rights are not loaded yet")] * refusals
    me = Announcer("me", tmp_path / "responder", cast(Leases, leases))
    running = asyncio.create_task(me.run())
    me.facts({VIP: FREE})
    await asyncio.sleep(0.05)
    me._heard(Ready(holds=True))  # noqa: SLF001 - as the responder would say
    await asyncio.sleep(0.05)
    me._heard(Probed(VIP, FREE.link))  # noqa: SLF001 - as the responder would say
    async with asyncio.timeout(10):
        await leases.written.wait()
        while taken() == before:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class BusyLeases(FailingLeases):
    """Hangs until it is told to answer, and counts the requests that wait at once."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = []
        self.hangs = True
        self.waiting = self.most = 0
        self.holders: dict[str, str] = {}

    async def write(self, writing: Any) -> Record:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            await (asyncio.Event().wait() if self.hangs else asyncio.sleep(0.001))
        finally:
            self.waiting -= 1
        self.holders[writing.ip] = "me"
        return Record("1", "me", FREE.mac)

    async def read(self, _: str) -> Record:
        if self.hangs:
            await asyncio.Event().wait()
        return NOBODY


@pytest.mark.parametrize("hangs_s", [0.0, 0.5])
async def test_hundreds_of_requests_do_not_wait_for_each_other_so_long_that_the_api_server_seems_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs_s: float
) -> None:
    monkeypatch.setattr(announcer, "_PATIENCE_S", 0.2)
    leases = BusyLeases()
    leases.hangs = hangs_s > 0
    ips = [f"192.0.2.{number}" for number in range(1, 201)]
    me = Announcer("me", tmp_path / "responder", cast(Leases, leases))
    running = asyncio.create_task(me.run())
    me.facts(dict.fromkeys(ips, FREE))
    await asyncio.sleep(0.05)
    me._heard(Ready(holds=True))  # noqa: SLF001 - as the responder would say
    await asyncio.sleep(0.05)
    for ip in ips:
        me._heard(Probed(ip, FREE.link))  # noqa: SLF001 - as the responder would say
    await asyncio.sleep(hangs_s)
    leases.hangs = False
    async with asyncio.timeout(20):
        while len(leases.holders) < len(ips):
            await asyncio.sleep(0.01)
    assert leases.most == 16
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class QuietLeases(FailingLeases):
    """Has a Lease of this node, and is away."""

    async def watch(self, seen: Callable[[str, Record], None], listed: Callable[[], None]) -> None:
        seen(VIP, Record("1", "me", FREE.mac))
        await super().watch(seen, listed)

    async def read(self, _: str) -> Record:
        raise errors.KubeUnreachableError("it is away")


async def test_a_holder_notices_that_the_api_server_is_away_though_it_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "_CHECK_S", 0.05)
    monkeypatch.setattr(node, "_OUTDATED_S", 0.05)
    me = Announcer("me", tmp_path / "responder", cast(Leases, QuietLeases()))
    told: list[State] = []
    monkeypatch.setattr(me._client, "want", told.append)  # noqa: SLF001 - what the responder gets
    running = asyncio.create_task(me.run())
    me.facts({VIP: FREE})
    await asyncio.sleep(0.01)
    me._heard(Ready(holds=True))  # noqa: SLF001 - as the responder would say
    async with asyncio.timeout(10):
        while not (told and told[-1].outdated):
            await asyncio.sleep(0.01)
    assert [place.ip for place in told[-1].answer] == [VIP], "it goes on answering"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


class MissedLeases(FailingLeases):
    """Has Leases of this node, which others take without the first watch hearing of it."""

    def __init__(self, *ips: str) -> None:
        super().__init__()
        self.records = {ip: Record(str(number), "me", FREE.mac) for number, ip in enumerate(ips, start=1)}
        self.watches = 0
        self.read_ips: list[str] = []

    async def watch(self, seen: Callable[[str, Record], None], listed: Callable[[], None]) -> None:
        self.watches += 1
        for ip, record in self.records.items():
            seen(ip, record)
        await super().watch(seen, listed)

    async def read(self, ip: str) -> Record:
        self.read_ips.append(ip)
        return self.records[ip]


async def test_a_holder_that_has_stood_still_stops_at_all_addresses_that_others_have_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "_CHECK_S", 0.02)
    ips = [f"192.0.2.{number}" for number in range(1, 6)]
    leases = MissedLeases(*ips)
    me = Announcer("me", tmp_path / "responder", cast(Leases, leases))
    told: list[State] = []
    monkeypatch.setattr(me._client, "want", told.append)  # noqa: SLF001 - what the responder gets
    running = asyncio.create_task(me.run())
    me.facts(dict.fromkeys(ips, FREE._replace(candidates=("me", "other"))))
    await asyncio.sleep(0.01)
    me._heard(Ready(holds=True))  # noqa: SLF001 - as the responder would say
    async with asyncio.timeout(10):
        while len(leases.read_ips) < 2 * len(ips):
            await asyncio.sleep(0.01)
        assert sorted(leases.read_ips[: len(ips)]) == ips, "each in turn"
        assert leases.watches == 1, "nothing was missed"
        assert sorted(place.ip for place in told[-1].answer) == ips
        for ip in ips[:4]:
            leases.records[ip] = Record("9", "other", "02:00:00:00:00:02")
        while len(told[-1].answer) != 1:
            await asyncio.sleep(0.01)
    assert leases.watches == 2
    assert [place.ip for place in told[-1].answer] == ips[4:]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
