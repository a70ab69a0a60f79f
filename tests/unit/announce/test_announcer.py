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
from kube_nftlb.announce.ownership.node import Address
from kube_nftlb.announce.ownership.records import NOBODY, Record
from kube_nftlb.announce.wire.messages import Probed, Ready

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


@pytest.mark.parametrize("refusals", [0, 1, 3])
async def test_an_api_server_that_refuses_requests_at_first_is_back_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    monkeypatch.setattr(announcer, "_PATIENCE_S", 0.05)
    leases = FailingLeases()
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
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
