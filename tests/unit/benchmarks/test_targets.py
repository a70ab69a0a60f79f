from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from benchmarks import packets, targets
from benchmarks.records import Record
from benchmarks.subjects import KUBE_PROXY, NFTABLES, NFTLB
from benchmarks.targets import MISSED, NOT_MEASURED, OPEN, REACHED, Verdict


def latency(
    subject: str, value: float, load: str = "steady", metric: str = "created until answered", repetition: int = 0
) -> Record:
    parameters: dict[str, str | int | float] = {
        "size": 10,
        "load": load,
        "endpoints": "found by selector",
        "repetition": repetition,
    }
    return Record("latency", subject, metric, "ms", value, parameters)


def rate(subject: str, value: float, number: int) -> Record:
    return Record("datapath", subject, "requests per second", "1/s", value, {"users": 1, "round": number})


def outcome(*records: Record) -> str:
    (verdict,) = measured(records)
    return verdict.outcome


def measured(records: Iterable[Record]) -> list[Verdict]:
    return [verdict for verdict in targets.verdicts(records) if verdict.outcome != NOT_MEASURED]


def repeated(
    subject: str, values: Sequence[float], load: str = "steady", metric: str = "created until answered"
) -> list[Record]:
    return [latency(subject, value, load, metric, number) for number, value in enumerate(values)]


@pytest.mark.parametrize(("ours", "expected"), [(80, REACHED), (81, MISSED)])
def test_ten_times_sooner(ours: float, expected: str) -> None:
    assert outcome(*repeated(NFTLB, [ours] * 6), *repeated(KUBE_PROXY, [800] * 6)) == expected


def test_each_engine_has_its_verdict() -> None:
    records = [*repeated(NFTLB, [90] * 6), *repeated(NFTABLES, [9] * 6), *repeated(KUBE_PROXY, [800] * 6)]
    assert [(each.subject, each.outcome) for each in measured(records)] == [
        (NFTLB, MISSED),
        (NFTABLES, REACHED),
    ]


def test_one_outlier_decides_nothing() -> None:
    ours, theirs = [20, 21, 900, *([20, 21, 22] * 3)], [25] * 12
    assert outcome(*repeated(NFTLB, ours, "idle"), *repeated(KUBE_PROXY, theirs, "idle")) == REACHED


@pytest.mark.parametrize("ours", [[30, 36, 31, 37, 32, 38], [20] * 4])
def test_noisy_or_few_values_are_not_decided(ours: list[float]) -> None:
    theirs = [34] * len(ours)
    assert outcome(*repeated(NFTLB, ours, "idle"), *repeated(KUBE_PROXY, theirs, "idle")) == OPEN


def test_a_deletion_seen_before_its_response_is_faster() -> None:
    deleted = "deleted until refused"
    theirs = repeated(KUBE_PROXY, [-1] * 6, "idle", deleted)
    assert outcome(*repeated(NFTLB, [2] * 6, "idle", deleted), *theirs) == MISSED
    assert outcome(*repeated(NFTLB, [-2] * 6, "idle", deleted), *theirs) == REACHED


@pytest.mark.parametrize(("worse", "expected"), [(0.99, REACHED), (1.0, MISSED)])
def test_a_target_applies_to_the_highest_value(worse: float, expected: str) -> None:
    def idle(value: float, process: str = "agent", **more: Any) -> Record:
        point = {"services": 1000, "load": "idle", "process": process, **more}
        return Record("cost", NFTLB, "processor time", "% of a core", value, point)

    assert outcome(idle(0.5), idle(worse), idle(0.5), idle(0.5, endpoints=1), idle(7, "operator")) == expected


@pytest.mark.parametrize(("many", "expected"), [(300, REACHED), (1000, MISSED)])
def test_rules_grow_with_services(many: int, expected: str) -> None:
    counts = {0: 100, 1: 102, 100: many}
    records = [Record("latency", NFTLB, "rules", "", count, {"services": n}) for n, count in counts.items()]
    assert outcome(*records) == expected


@pytest.mark.parametrize(
    ("shares", "expected"), [([0.99] * 5, REACHED), ([0.9] * 5, MISSED), ([0.9, 0.95, 1.0, 1.05, 1.1], OPEN)]
)
def test_the_data_path_is_compared_round_by_round(shares: list[float], expected: str) -> None:
    # Every round is twice as fast as the one before it.
    records = [rate(KUBE_PROXY, 100 * 2**number, number) for number in range(5)]
    records += [rate("kube-nftlb snat", share * 100 * 2**number, number) for number, share in enumerate(shares)]
    assert outcome(*records) == expected


def test_three_rounds_decide_nothing() -> None:
    records = [rate(subject, 99, number) for subject in (KUBE_PROXY, "kube-nftlb snat") for number in range(3)]
    assert outcome(*records) == OPEN


@pytest.mark.parametrize(
    ("shares", "expected"), [([1.01] * 5, REACHED), ([1.1] * 5, MISSED), ([0.9, 0.95, 1.0, 1.05, 1.1], OPEN)]
)
def test_less_time_per_packet_is_better(shares: list[float], expected: str) -> None:
    def packet(subject: str, value: float, number: int) -> Record:
        return Record("datapath", subject, packets.LATER, "ns", value, {"others": 10, "round": number})

    records = [packet(KUBE_PROXY, 1000, number) for number in range(5)]
    records += [packet("kube-nftlb dnat", share * 1000, number) for number, share in enumerate(shares)]
    assert outcome(*records) == expected


@pytest.mark.parametrize(("ours", "expected"), [(1.5, REACHED), (1.6, MISSED)])
def test_what_a_change_costs_is_a_multiple(ours: float, expected: str) -> None:
    metric = "bytes to etcd per change"
    records = [Record("endpoints", name, metric, "bytes", value) for name, value in ((NFTABLES, ours), (KUBE_PROXY, 1))]
    assert outcome(*records) == expected


@pytest.mark.parametrize(("ours", "expected"), [(600, REACHED), (800, MISSED)])
def test_the_agent_is_compared_with_kube_proxy(ours: float, expected: str) -> None:
    def peak(subject: str, process: str, value: float) -> Record:
        point: dict[str, str | int | float] = {"services": 8000, "endpoints": 30, "process": process}
        return Record("scale", subject, "memory at most", "MB", value, point)

    records = [peak(NFTABLES, "agent", ours), peak(NFTABLES, "apiserver", 9000), peak(KUBE_PROXY, "kube-proxy", 700)]
    assert outcome(*records) == expected


def test_a_target_without_records_is_not_measured() -> None:
    verdicts = targets.verdicts([])
    assert {verdict.outcome for verdict in verdicts} == {NOT_MEASURED}
    assert len(verdicts) == len(targets.verdicts([latency(NFTLB, 1), latency(KUBE_PROXY, 1)]))
