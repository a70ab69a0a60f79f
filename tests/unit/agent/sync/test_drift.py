"""Whose transactions were those, and which farms are compared when."""

import pytest

from kube_nftlb.agent.engine.base import TransactionCount
from kube_nftlb.agent.sync.drift import Audit, DriftDetector


class Kernel:
    def __init__(self) -> None:
        self.transactions = 5
        self.ours = TransactionCount(0, 0)

    async def generation(self) -> int:
        return self.transactions

    async def detector(self) -> DriftDetector:
        """One that has noticed everything so far."""
        detector = DriftDetector(self.generation, lambda: self.ours)
        await detector.notice()
        detector.suspected = detector.table_suspected = False
        return detector


@pytest.mark.parametrize(
    ("transactions", "ours", "suspected"),
    [
        (0, TransactionCount(0, 0), False),
        (1, TransactionCount(0, 0), True),
        (1, TransactionCount(0, 1), False),
        (2, TransactionCount(0, 1), True),
        (0, TransactionCount(0, 1), False),
        (9, TransactionCount(1, 0), False),
        (9, TransactionCount(1, 1), False),
    ],
    ids=[
        "nothing",
        "others",
        "ours",
        "others beside ours",
        "ours that changed nothing",
        "a daemon's",
        "a daemon's and ours",
    ],
)
async def test_transactions_that_are_not_ours_are_suspect(
    transactions: int, ours: TransactionCount, suspected: object
) -> None:
    kernel = Kernel()
    detector = await kernel.detector()
    kernel.transactions += transactions
    kernel.ours = ours
    await detector.notice()
    assert (detector.suspected, detector.table_suspected) == (suspected, suspected)


async def test_suspicion_lasts_until_it_is_cleared() -> None:
    kernel = Kernel()
    detector = await kernel.detector()
    kernel.transactions += 1
    await detector.notice()
    await detector.notice()
    assert detector.suspected


async def test_the_kernels_count_begins_anew_after_32_bits() -> None:
    kernel = Kernel()
    kernel.transactions = 2**32 - 1
    detector = await kernel.detector()
    kernel.transactions, kernel.ours = 0, TransactionCount(0, 1)
    await detector.notice()
    assert not detector.suspected
    kernel.transactions = 1
    await detector.notice()
    assert detector.suspected


def test_an_audit_begins_some_time_after_a_change() -> None:
    audit = Audit(every_s=60, batch=2)
    assert not audit.due(1000)
    audit.changed(0)
    assert (audit.due(59), audit.due(60)) == (False, True)


def test_a_later_change_does_not_put_an_audit_off() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.changed(0)
    audit.changed(50)
    assert audit.due(60)


def test_an_audit_can_begin_at_once() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.changed(0)
    audit.begin(1)
    assert audit.due(1)


def test_an_audit_takes_all_farms_a_few_at_a_time() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.start("abc")
    assert [audit.take(), audit.take(), audit.take()] == [["a", "b"], ["c"], []]


def test_an_audit_in_progress_is_ended_before_the_next() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.start("abc")
    audit.begin(0)
    assert not audit.due(0)
    audit.take()
    assert not audit.due(0)
    audit.take()
    assert audit.due(0)


def test_an_audit_that_has_begun_is_no_longer_due() -> None:
    audit = Audit(every_s=60, batch=2)
    audit.begin(0)
    audit.start("a")
    audit.take()
    assert not audit.due(1000)
