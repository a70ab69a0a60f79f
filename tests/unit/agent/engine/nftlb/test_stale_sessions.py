"""The sessions of a persistent farm that are forgotten when it changes."""

from dataclasses import replace

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftlb import marks
from kube_nftlb.agent.engine.nftlb.stale_sessions import WATCH_S, StaleSessions
from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.nftlb import objects
from tests.builders.nftlb import backend, farm
from tests.fakes.conntrack import FakeConntrack


def sticky(*backends: objects.Backend) -> objects.Farm:
    made = farm("f", *backends)
    return replace(made, options={**made.options, "persistence": "srcip"})


def gone(before: objects.Farm, after: objects.Farm | None) -> dict[str, set[int]]:
    """Return the marks that the steps from one to the other leave behind."""
    present, wanted = {before.name: before}, {before.name: after}
    return marks.gone(plan_steps(present, wanted), wanted, present)


class Watched(StaleSessions):
    """Notes what it is to clean up."""

    def __init__(self) -> None:
        super().__init__({}, None, FakeConntrack())  # type: ignore[arg-type]  # asked for nothing
        self.told: list[tuple[str, set[int]]] = []
        self.fails = False

    async def release(self, name: str, marks: set[int]) -> None:
        self.told.append((name, marks))
        if self.fails:
            raise errors.KernelError("refused")


@pytest.mark.parametrize(
    ("before", "after", "marks"),
    [
        (sticky(backend("a", 2)), sticky(backend("a", 2), backend("b", 3)), {}),
        (sticky(backend("a", 2), backend("b", 3)), sticky(backend("b", 3)), {"f": {2}}),
        (sticky(backend("old", 5)), sticky(backend("new", 5)), {}),
        (sticky(backend("a", 2)), sticky(backend("a", 2, state="off")), {}),
        (sticky(backend("a", 2)), None, {}),
        (farm("f", backend("a", 2), backend("b", 3)), farm("f", backend("b", 3)), {}),
    ],
    ids=["one more", "one goes", "its mark becomes another's", "one is off", "the farm goes", "no persistence"],
)
def test_backends_that_go_leave_marks(
    before: objects.Farm, after: objects.Farm | None, marks: dict[str, set[int]]
) -> None:
    assert gone(before, after) == marks


async def test_what_is_left_is_looked_for_again_until_its_time_is_up() -> None:
    stale = Watched()
    stale.expect({"f": {2}})
    await stale.clean(100)
    await stale.again(101)
    assert stale.told == [("f", {2})] * 2
    await stale.again(100.1 + WATCH_S)
    assert stale.told == [("f", {2})] * 3, "a connection that was begun at the end of that time"
    await stale.again(200)
    assert stale.told == [("f", {2})] * 3


async def test_backends_that_go_one_after_the_other_are_all_looked_for() -> None:
    stale = Watched()
    stale.expect({"f": {2}})
    await stale.clean(100)
    stale.expect({"f": {3}})
    await stale.clean(101)
    await stale.again(101.5)
    assert stale.told[-1] == ("f", {2, 3})


async def test_what_steps_left_behind_that_broke_off_is_not_lost() -> None:
    stale = Watched()
    stale.expect({"f": {2}})
    stale.expect({"f": {3}})
    await stale.clean(100)
    assert stale.told == [("f", {2, 3})]
    await stale.clean(101)
    assert len(stale.told) == 1


async def test_what_the_kernel_refuses_for_good_does_not_fail_each_pass() -> None:
    stale = Watched()
    stale.fails = True
    stale.expect({"f": {2}})
    refused = 0
    for now in range(20):
        try:
            await stale.clean(now)
        except errors.KernelError:
            refused += 1
    assert 2 <= refused == len(stale.told) <= 5
