"""What the kernel refuses, or does not acknowledge, is told and tried again, and is never taken for programmed."""

import errno
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.apply import Outcome
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.netfilter.nftables.blueprint import blueprint_of
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.transaction import NftSocket
from tests.builders import farm
from tests.contract.nftables_node import HERE, VIPS, Node, ask, reached, spec
from tests.contract.servers import ENDPOINTS

OLD, NEW = spec(VIPS[0], *ENDPOINTS[:2]), spec(VIPS[0], *ENDPOINTS[2:4])
LOST_BEFORE, LOST_AFTER = "lost before it was carried out", "lost after it was carried out"
REFUSALS = [errno.ENOMEM, errno.EBUSY, errno.EEXIST, errno.ENOENT, LOST_BEFORE, LOST_AFTER]
NAMES = ["ENOMEM", "EBUSY", "EEXIST", "ENOENT", "lost-before", "lost-after"]


class Unwilling:
    """The kernel, which refuses transactions with these bytes in them, or does not acknowledge them."""

    def __init__(self, netfilter: NftSocket) -> None:
        self._netfilter = netfilter
        self.refuses = b"\0"
        self.how: int | str | None = None
        self.times = -1
        """How often it does; -1: always."""

    def close(self) -> None:
        self._netfilter.close()

    async def commit(self, messages: Sequence[Message], family: str = "inet") -> None:
        ours = [each.attributes for each in messages if blueprint_of(TABLE).encode() not in each.attributes]
        concerned = self.times and any(self.refuses in each for each in ours)
        if self.how is None or not concerned:
            await self._netfilter.commit(messages, family)
            return
        self.times -= 1
        if isinstance(self.how, int):
            raise errors.KernelError(f"nftables refused: {os.strerror(self.how)}", self.how)
        if self.how == LOST_AFTER:
            await self._netfilter.commit(messages, family)
        raise errors.UnansweredError("nftables does not answer: timed out")


class UnwillingNode:
    """A node whose kernel may refuse."""

    def __init__(self, node: Node, kernel: Unwilling) -> None:
        self.node, self.kernel = node, kernel

    async def apply(self, **specs: dict[str, Any] | None) -> Outcome:
        changes = []
        for name, wanted in specs.items():
            placed = node_farm(farm(name=name, **wanted), HERE, None) if wanted is not None else None
            changes.append(FarmChange(name, placed))
        return await self.node.applier.apply(changes)

    async def is_refused(self, web: dict[str, Any] | None) -> bool:
        """Change the farm web; False if there is no answer at all: then the loop begins anew."""
        try:
            applied = await self.apply(web=web)
        except errors.UnansweredError:
            return False
        assert list(applied.refused) == ["web"]
        return True

    async def drift(self, name: str | None = None) -> str | None:
        return await self.node.engine.drift(name)

    def begin(self, how: int | str, times: int = -1, refuses: bytes = b"\0") -> None:
        self.kernel.how, self.kernel.times, self.kernel.refuses = how, times, refuses

    def end(self) -> None:
        self.kernel.how = None


@pytest.fixture
async def unwilling(
    endpoints: None,  # noqa: ARG001 - by name
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[UnwillingNode]:
    kernel = Unwilling(NftSocket.open())
    monkeypatch.setattr(NftSocket, "open", lambda _: kernel)
    node = await Node.open(tmp_path)
    yield UnwillingNode(node, kernel)
    node.close()


@pytest.mark.parametrize("how", REFUSALS[:4], ids=NAMES[:4])
async def test_an_update_that_is_refused_is_told_until_it_is_taken(unwilling: UnwillingNode, how: int) -> None:
    await unwilling.apply(web=OLD, other=spec(VIPS[1], ENDPOINTS[4]))
    unwilling.begin(how)
    assert list((await unwilling.apply(web=NEW, other=spec(VIPS[1], ENDPOINTS[4]))).refused) == ["web"]
    assert os.strerror(how) in (await unwilling.drift("web") or "")
    assert await unwilling.drift("other") is None
    assert await unwilling.drift() is None, "what the kernel has is what was acknowledged"
    assert reached(VIPS[0], 4).keys() == set(ENDPOINTS[:2])
    unwilling.end()
    await served_anew(unwilling)


@pytest.mark.parametrize("how", REFUSALS[4:], ids=NAMES[4:])
async def test_what_is_never_acknowledged_is_not_taken_for_programmed(unwilling: UnwillingNode, how: str) -> None:
    await unwilling.apply(web=OLD, other=spec(VIPS[1], ENDPOINTS[4]))
    unwilling.begin(how)
    if await unwilling.is_refused(NEW):
        assert await unwilling.drift("web") is not None
    unwilling.end()
    await served_anew(unwilling)


@pytest.mark.parametrize("change", [None, OLD], ids=["removed", "new"])
@pytest.mark.parametrize("how", REFUSALS[4:], ids=NAMES[4:])
async def test_a_farm_that_comes_or_goes_unacknowledged_does_so_at_the_next_try(
    unwilling: UnwillingNode, how: str, change: dict[str, Any] | None
) -> None:
    await unwilling.apply(**({} if change else {"web": OLD}), other=spec(VIPS[1], ENDPOINTS[4]))
    unwilling.begin(how)
    await unwilling.is_refused(change)
    unwilling.end()
    await unwilling.apply(web=change)
    assert ("web" in unwilling.node.engine.sent) == (change is not None)
    assert await unwilling.drift() is None
    answered = ask(VIPS[0])
    assert answered in ENDPOINTS[:2] if change else answered not in ENDPOINTS
    assert ask(VIPS[1]) == ENDPOINTS[4]


async def served_anew(unwilling: UnwillingNode) -> None:
    await unwilling.apply(web=NEW)
    assert await unwilling.drift("web") is None
    assert await unwilling.drift() is None
    assert reached(VIPS[0], 4).keys() == set(ENDPOINTS[2:4])
    assert ask(VIPS[1]) == ENDPOINTS[4]


@pytest.mark.parametrize("how", REFUSALS, ids=NAMES)
async def test_what_is_refused_once_is_tried_again(unwilling: UnwillingNode, how: int | str) -> None:
    await unwilling.apply(web=OLD)
    unwilling.begin(how, times=1)
    applied = await unwilling.apply(web=NEW)
    if applied.refused:
        assert await unwilling.drift("web") is not None
        assert not (await unwilling.apply(web=NEW)).refused
    assert await unwilling.drift("web") is None
    assert await unwilling.drift() is None
    assert reached(VIPS[0], 4).keys() == set(ENDPOINTS[2:4])


@pytest.mark.parametrize("how", REFUSALS[:4], ids=NAMES[:4])
async def test_a_new_farm_that_is_refused_stops_no_other(unwilling: UnwillingNode, how: int) -> None:
    await unwilling.apply(first=spec(VIPS[3], ENDPOINTS[0]))
    unwilling.begin(how, refuses=b"bad\0")
    many = {f"web-{number}": spec(f"10.96.1.{number}", ENDPOINTS[0]) for number in range(12)}
    applied = await unwilling.apply(**many, bad=spec(VIPS[1], ENDPOINTS[1]))
    assert list(applied.refused) == ["bad"]
    assert await unwilling.drift("bad") is not None
    assert await unwilling.drift() is None
    assert unwilling.node.engine.sent.keys() == {"first", *many}
    unwilling.end()
    assert not (await unwilling.apply(bad=spec(VIPS[1], ENDPOINTS[1]))).refused
    assert await unwilling.drift("bad") is None
    assert ask(VIPS[1]) == ENDPOINTS[1]


@pytest.mark.parametrize("how", REFUSALS[:4], ids=NAMES[:4])
async def test_a_removal_that_is_refused_is_told(unwilling: UnwillingNode, how: int) -> None:
    await unwilling.apply(web=OLD)
    unwilling.begin(how)
    assert list((await unwilling.apply(web=None)).refused) == ["web"]
    assert "web" in unwilling.node.engine.sent
    assert await unwilling.drift("web") is not None
    unwilling.end()
    assert not (await unwilling.apply(web=None)).refused
    assert not unwilling.node.engine.sent
    assert ask(VIPS[0]) not in ENDPOINTS


async def test_a_refusal_costs_no_dump(unwilling: UnwillingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    await unwilling.apply(web=OLD)
    dumps = []
    reader = type(unwilling.node.engine._table._reader)  # noqa: SLF001 - how much is read is what matters
    dump = reader.dump

    async def counted(self: Any, *args: Any) -> Any:
        dumps.append(args)
        return await dump(self, *args)

    monkeypatch.setattr(reader, "dump", counted)
    unwilling.begin(errno.ENOMEM, refuses=b"bad\0")
    many = {f"web-{number}": spec(f"10.96.1.{number}", ENDPOINTS[0]) for number in range(12)}
    assert list((await unwilling.apply(**many, bad=spec(VIPS[1], ENDPOINTS[1]))).refused) == ["bad"]
    assert dumps == []


async def test_a_reverted_farm_is_served_as_it_was(unwilling: UnwillingNode) -> None:
    await unwilling.apply(web=OLD)
    unwilling.begin(errno.ENOMEM)
    await unwilling.apply(web=NEW)
    assert await unwilling.node.engine.revert("web")
    assert await unwilling.drift("web") is None
    assert reached(VIPS[0], 4).keys() == set(ENDPOINTS[:2])
    assert not await unwilling.node.engine.revert("nobody")


async def test_clients_are_kept_out_of_what_a_refused_farm_still_has(unwilling: UnwillingNode) -> None:
    def limited(vip: str) -> dict[str, Any]:
        address = {"type": "LoadBalancer", "ip": vip, "ports": "80", "sourceRanges": ["192.0.2.0/24"]}
        return spec(vip, ENDPOINTS[0]) | {"addresses": [address]}

    await unwilling.apply(web=limited(VIPS[0]))
    assert ask(VIPS[0], source="127.0.1.1") == "nothing"
    unwilling.begin(errno.ENOMEM)
    await unwilling.apply(web=limited(VIPS[1]))
    assert ask(VIPS[0], source="127.0.1.1") == "nothing"


async def test_a_listener_goes_from_one_farm_to_another_beside_one_that_is_refused(unwilling: UnwillingNode) -> None:
    await unwilling.apply(web=OLD)
    unwilling.begin(errno.ENOMEM, refuses=b"bad\0")
    applied = await unwilling.apply(bad=spec(VIPS[1], ENDPOINTS[1]), taker=NEW, web=None)
    assert list(applied.refused) == ["bad"]
    assert reached(VIPS[0], 4).keys() == set(ENDPOINTS[2:4])


async def test_a_table_that_is_refused_as_a_whole_is_written_later_with_all_that_is_used(
    unwilling: UnwillingNode,
) -> None:
    await unwilling.apply(web=OLD, other=spec(VIPS[1], *ENDPOINTS[2:5]), gone=spec(VIPS[2], ENDPOINTS[0]))
    await unwilling.apply(other=spec(VIPS[1], ENDPOINTS[4]), gone=None)
    for _ in range(2):
        await unwilling.node.engine.maintain(busy=True)
        subprocess.run(["nft", "delete", "table", "inet", TABLE], check=True)  # noqa: ASYNC221 - nothing else runs
        unwilling.begin(errno.ENOMEM, times=1)
        with pytest.raises(errors.KernelError):
            await unwilling.node.engine.repair()
        await unwilling.node.engine.repair()
        assert await unwilling.drift() is None
        assert reached(VIPS[0], 4).keys() == set(ENDPOINTS[:2])
        assert ask(VIPS[1]) == ENDPOINTS[4]
        await unwilling.node.engine.maintain(busy=False)
        assert await unwilling.drift() is None
