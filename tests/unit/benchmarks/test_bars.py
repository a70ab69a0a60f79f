import pytest

from benchmarks import bars, packets
from benchmarks.bars import IPTABLES, MISSED, NFTABLES, OPEN, OURS, REACHED
from benchmarks.records import Record


def latency(subject, value, load="steady", metric="created until answered", repetition=0):
    parameters = {"size": 10, "load": load, "endpoints": "found by selector", "repetition": repetition}
    return Record("latency", subject, metric, "ms", value, parameters)


def rate(subject, value, number):
    return Record("datapath", subject, "requests per second", "1/s", value, {"users": 1, "round": number})


def outcome(*records):
    (verdict,) = bars.verdicts(records)
    return verdict.outcome


@pytest.mark.parametrize(("ours", "expected"), [(80, REACHED), (81, MISSED)])
def test_ten_times_faster_than_the_faster_of_the_two(ours, expected):
    assert outcome(latency(OURS, ours), latency(NFTABLES, 800), latency(IPTABLES, 900)) == expected


def test_medians_are_compared():
    ours = [latency(OURS, value, "idle", repetition=number) for number, value in enumerate((20, 21, 900))]
    assert outcome(*ours, latency(NFTABLES, 25, "idle")) == REACHED


def test_a_deletion_that_was_seen_before_its_answer_is_the_faster_one():
    deleted = "deleted until refused"
    assert outcome(latency(OURS, 2, "idle", deleted), latency(NFTABLES, -1, "idle", deleted)) == MISSED
    assert outcome(latency(OURS, -2, "idle", deleted), latency(NFTABLES, -1, "idle", deleted)) == REACHED


@pytest.mark.parametrize(("worse", "expected"), [(0.99, REACHED), (1.0, MISSED)])
def test_an_aim_holds_for_the_highest_median(worse, expected):
    def idle(value, process="agent", **more):
        point = {"services": 1000, "load": "idle", "process": process, **more}
        return Record("cost", OURS, "processor time", "% of a core", value, point)

    assert outcome(idle(0.5, endpoints=1), idle(worse, endpoints=10), idle(7, "operator")) == expected


@pytest.mark.parametrize(("many", "expected"), [(300, REACHED), (1000, MISSED)])
def test_rules_grow_with_services(many, expected):
    counts = {0: 100, 1: 102, 100: many}
    records = [Record("latency", OURS, "rules", "", count, {"services": n}) for n, count in counts.items()]
    assert outcome(*records) == expected


@pytest.mark.parametrize(
    ("shares", "expected"), [([0.99] * 5, REACHED), ([0.9] * 5, MISSED), ([0.9, 0.95, 1.0, 1.05, 1.1], OPEN)]
)
def test_the_data_path_is_compared_round_by_round(shares, expected):
    # Every round is twice as fast as the one before it.
    records = [rate(NFTABLES, 100 * 2**number, number) for number in range(5)]
    records += [rate("kube-nftlb snat", share * 100 * 2**number, number) for number, share in enumerate(shares)]
    assert outcome(*records) == expected


@pytest.mark.parametrize(
    ("shares", "expected"), [([1.01] * 5, REACHED), ([1.1] * 5, MISSED), ([0.9, 0.95, 1.0, 1.05, 1.1], OPEN)]
)
def test_less_time_for_a_packet_is_better(shares, expected):
    def packet(subject, value, number):
        return Record("datapath", subject, packets.LATER, "ns", value, {"others": 10, "round": number})

    records = [packet(NFTABLES, 1000, number) for number in range(5)]
    records += [packet("kube-nftlb dnat", share * 1000, number) for number, share in enumerate(shares)]
    assert outcome(*records) == expected


def test_without_records_there_is_nothing_to_say():
    assert bars.verdicts([]) == []
